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


@functools.cache
def points() -> list[Point]:
    """Parameters of shapes, and the time of each variant that was measured there."""
    found: list[Point] = json.loads(lzma.decompress((FOLDER / "choice_points.json.xz").read_bytes()))
    return found


@pytest.mark.slow
def test_the_header_is_what_its_script_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """But for the numbers: to fit them to all points takes minutes."""
    few = tmp_path / "few.json.xz"
    few.write_bytes(lzma.compress(json.dumps(points()[::20]).encode()))
    load_file(str(FOLDER / "make_choice.py")).main([str(few)])
    assert re.sub(NUMBER, "", capsys.readouterr().out) == re.sub(NUMBER, "", HEADER.read_text())


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
    given = "\n".join(" ".join([*(str(p[n]) for n in names), str(int(p["DTYPE"] == "float16"))]) for p, _ in some)
    done = subprocess.run([tmp_path / "a.out"], input=given, capture_output=True, text=True, check=True)
    taken = zip(done.stdout.split(), some, strict=True)
    regrets = [times[name] / min(times.values()) for name, (_, times) in taken if name in times]
    assert len(regrets) > 0.8 * len(some)
    assert statistics.mean(regrets) < 1.0018 and sum(r > 1.05 for r in regrets) < 0.006 * len(regrets)
