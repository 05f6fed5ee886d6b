"""The choice of `attention`: written by its script, and the kernels that it takes are as fast as the measured ones."""

from __future__ import annotations

import functools
import json
import lzma
import re
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashcore.runner.problem_file import load_file
from tests.conftest import ROOT

FOLDER = ROOT / "kernels/attention_general"
HEADER = FOLDER / "include/attention/choice.h"
NUMBER = r"\b\d+(?:\.\d+)?(?:e-?\d+)?\b"
Point = tuple[dict[str, Any], dict[str, float]]
#: B, H, S, D, CAUSAL of rows in fp16 on which a rule by hand was wrong → the kernel that was measured fastest.
ROWS = {
    (1, 8, 2048, 128, 0): "between_wide_dynamic",
    (4, 16, 4096, 128, 1): "between_even_dynamic",
    (1, 8, 512, 64, 0): "cluster_keys",
    (2, 96, 64, 128, 0): "short_in_step",
}


@functools.cache
def points() -> list[Point]:
    """Parameters of shapes, and the time of each variant that was measured there."""
    found: list[Point] = json.loads(lzma.decompress((FOLDER / "choice_points.json.xz").read_bytes()))
    return found


@pytest.mark.slow
def test_the_header_is_written_from_its_points(capsys: pytest.CaptureFixture[str]) -> None:
    load_file(str(FOLDER / "make_choice.py")).main([str(FOLDER / "choice_points.json.xz")])
    written, present = capsys.readouterr().out, HEADER.read_text()
    assert re.sub(NUMBER, "", written) == re.sub(NUMBER, "", present)
    numbers = [[float(x) for x in re.findall(NUMBER, text)] for text in (written, present)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=0.002)


@pytest.mark.skipif(shutil.which("g++") is None, reason="tool: no g++")
def test_the_kernels_that_are_taken_are_the_fastest_or_nearly(tmp_path: Path) -> None:
    assert f"from {len(points())} points" in HEADER.read_text()
    Path(tmp_path, "main.cpp").write_text(
        "#include <attention/choice.h>\n#include <iostream>\nstruct Shape { std::int64_t B, H, HKV, S, D; };\n"
        "int main() {\n  Shape s;\n  bool causal, half;\n"
        "  while (std::cin >> s.B >> s.H >> s.HKV >> s.S >> s.D >> causal >> half)\n"
        "    std::cout << choose(s, causal, half) << '\\n';\n}\n"
    )
    include = f"-I{FOLDER / 'include'}"
    subprocess.run(["g++", "-O1", "-std=c++17", "-Wall", "-Werror", include, "main.cpp"], cwd=tmp_path, check=True)
    some = points()[::5]
    names = ("B", "H", "HKV", "S", "D", "CAUSAL")
    asked = [(b, h, h, s, d, causal, 1) for b, h, s, d, causal in ROWS]
    asked += [(*(p[n] for n in names), int(p["DTYPE"] == "float16")) for p, _ in some]
    given = "\n".join(" ".join(map(str, one)) for one in asked)
    done = subprocess.run([tmp_path / "a.out"], input=given, capture_output=True, text=True, check=True)
    answers = done.stdout.split()
    named, others = answers[: len(ROWS)], answers[len(ROWS) :]
    assert named == [*ROWS.values()]
    taken = zip(others, some, strict=True)
    regrets = [times[name] / min(times.values()) for name, (_, times) in taken if name in times]
    assert len(regrets) > 0.8 * len(some)
    assert statistics.mean(regrets) < 1.0018 and sum(r > 1.05 for r in regrets) < 0.006 * len(regrets)
