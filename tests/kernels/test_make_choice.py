"""The choice of `attention`: written from its points, and right where a rule by hand was wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flashcore.runner.problem_file import load_file
from tests.conftest import ROOT

FOLDER = ROOT / "kernels/attention_general"
HEADER = FOLDER / "include/attention/choice.h"
NUMBER = r"\b\d+(?:\.\d+)?(?:e-?\d+)?\b"


@pytest.mark.slow
def test_the_header_is_written_from_its_points(capsys: pytest.CaptureFixture[str]) -> None:
    load_file(str(FOLDER / "make_choice.py")).main([str(FOLDER / "choice_points.json.xz")])
    written, present = capsys.readouterr().out, HEADER.read_text()
    assert re.sub(NUMBER, "", written) == re.sub(NUMBER, "", present)
    numbers = [[float(x) for x in re.findall(NUMBER, text)] for text in (written, present)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=0.002)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_named_rows_take_the_kernels_that_were_measured_fastest(tmp_path: Path) -> None:
    rows = {
        (1, 8, 2048, 128, 0): "between_wide_dynamic",
        (4, 16, 4096, 128, 1): "between_even_dynamic",
        (1, 8, 512, 64, 0): "cluster_keys",
        (2, 96, 64, 128, 0): "short_in_step",
    }
    calls = "\n".join(f"  show(choose(Shape{{{b}, {h}, {h}, {s}, {d}}}, {c}, true));" for b, h, s, d, c in rows)
    Path(tmp_path, "main.cpp").write_text(
        "#include <attention/choice.h>\n#include <cstdio>\nstruct Shape { std::int64_t B, H, HKV, S, D; };\n"
        'void show(std::string_view v) { std::printf("%.*s\\n", static_cast<int>(v.size()), v.data()); }\n'
        f"int main() {{\n{calls}\n}}\n"
    )
    include = f"-I{FOLDER / 'include'}"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", include, "main.cpp"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "a.out"], capture_output=True, text=True, check=True).stdout.split()
    assert printed == [*rows.values()]
