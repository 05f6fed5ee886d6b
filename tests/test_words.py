"""The struck words: prose is plain technical English, understood at the first reading."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: What is not said → what is said instead.
STRUCK = {
    "to " + "mend:": "hint:",
    "chance " + "ends": "noise threshold",
    "became " + "of": "outcome",
    "its " + "door": "attributed to",
    "nobody is " + "at": "locked by process N",
    "nobody " + "said": "no reason was given",
    "nobody " + "asked": "not asked for",
    "gone " + "from the suite": "no longer in the suite",
    "held " + "by": "limited by",
}
PROSE = {".py", ".md", ".html", ".js", ".toml", ".h", ".cuh", ".cu", ".cpp", ".yml", ".txt", ""}


def test_no_struck_word_is_left() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no checkout of git")
    left = ("profiles/", "experiments/", "tests/data/", "benchmarks/results/", "kernels/attention/fragment.py")
    wrong = [
        f"{name}: say {said!r}, not {word!r}"
        for name in done.stdout.split("\n")
        if Path(name).suffix in PROSE and not name.startswith(left) and (ROOT / name).is_file()
        for word, said in STRUCK.items()
        if re.search(
            rf"\b{re.escape(word)}", (ROOT / name).read_text(encoding="utf-8", errors="replace"), re.IGNORECASE
        )
    ]
    assert not wrong, "\n".join(wrong)
