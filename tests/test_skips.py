"""Skipped tests say what they lack; in a complete environment, nothing that can be installed is lacking."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

MODULES = {
    "gpu": "import pytest\n\ndef test_a():\n    pytest.skip('gpu: none here')\n",
    "package": "import pytest\npytest.importorskip('no_such_package')\n\ndef test_a():\n    pass\n",
    "mark": "import pytest\n\n@pytest.mark.skip(reason='tool: no compiler')\ndef test_a():\n    pass\n",
    "fixture": "import pytest\n\n@pytest.fixture\ndef a():\n    pytest.skip('later')\n\ndef test_a(a):\n    pass\n",
    "xfail": "import pytest\n\n@pytest.mark.xfail(reason='later')\ndef test_a():\n    assert False\n",
}


@pytest.mark.parametrize(
    ("setting", "refused"), [("", {"fixture"}), ("complete", {"fixture", "package", "mark"})], ids=["here", "complete"]
)
def test_a_skip_needs_a_reason_that_counts(setting: str, refused: set[str], tmp_path: Path) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "--continue-on-collection-errors",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'harness'}", "FLASHCORE_TESTS": setting}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    summary = done.stdout.partition("short test summary info")[2]
    assert set(re.findall(r"(?m)^(?:FAILED|ERROR) test_(\w+)\.py", summary)) == refused, done.stdout + done.stderr
    assert done.returncode in (1, 2)
