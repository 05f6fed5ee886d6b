"""The command as a whole: a search on stand-ins for a GPU, from ``space.toml`` to the variant it ends with; Triton
kernels without a GPU."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.suites.load import load
from flashcore_tune import results, search, space
from tests.conftest import ROOT, TESTS

STANDINS = TESTS / "contract"
#: THREADS → µs of a call, and what else it does. Four are a warp more than a block may have.
WIDTHS = {64: 9.0, 128: 6.0, 256: 7.0, 512: 5.0, 1056: 1.0, 32: 4.0}
SPACE = f"""
[width]
variant = "slow"
axes = {{ THREADS = {[*WIDTHS]} }}
shapes = ["small", "large"]
"""


@pytest.fixture
def suite(tmp_path: Path, forked: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite whose kernels run on stand-ins: width_3 gives a wrong answer, width_5 crashes."""
    folder = shutil.copytree(STANDINS / "suites" / "standin", tmp_path / "suite")
    manifest, problem, source = (folder / name for name in ("suite.toml", "problem.py", "scale.cu"))
    text = manifest.read_text(encoding="utf-8").replace('"slow", "fast", "overlaps", "below_empty"', '"slow"')
    text = text.replace('technique = "scales by {name}"', 'technique = "x"\nconfig = { THREADS = 64 }')
    manifest.write_text(text, encoding="utf-8")
    code = problem.read_text(encoding="utf-8")
    times = {f"width_{i}": us for i, us in enumerate(WIDTHS.values())}
    code = code.replace("DURATIONS = {", f"DURATIONS = {{**{times}, ")
    code = code.replace('name == "wrong"', 'name in ("wrong", "width_3")').replace(
        'name == "crashes"', 'name in ("crashes", "width_5")'
    )
    problem.write_text(code, encoding="utf-8")
    kernel = source.read_text(encoding="utf-8").replace("256LL", "THREADS").replace("256", "THREADS")
    source.write_text(kernel, encoding="utf-8")
    (folder / space.FILE).write_text(SPACE)
    for name in ("FLASHCORE_EXECUTOR", "FLASHCORE_TIMER"):
        monkeypatch.setenv(name, str(STANDINS / "standins" / "executor.py"))
    monkeypatch.setenv("STANDIN_PARENT", str(os.getpid()))
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_search_ends_with_a_variant_that_the_manifest_takes(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "width", "--suite", str(suite), "--sampler", "grid", "-q"]
    assert main([*words, "--evaluations", "2", "--batch", "1", "--finalists", "0"]) == Exit.OK
    (folder,) = Path("studies").iterdir()
    first = search.outcomes(search.load(folder))
    assert {i: o.times["small"] for i, o in first.items()} == {0: 9.0, 1: 6.0}
    assert "width_tuned_1" not in capsys.readouterr().out

    assert main([*words, "--resume", "--write", "--plot", "plot.html"]) == Exit.OK
    text = capsys.readouterr().out
    assert [*Path("studies").iterdir()] == [folder] and Path("plot.html").is_file()
    frame = results.frame(folder).set_index("point")
    assert [*frame.index] == [*range(len(WIDTHS))], "no point is measured again"
    assert [*frame["rejected"]] == ["", "", "", "check", "static", "check"]
    assert [*frame["THREADS"]] == [*WIDTHS] and frame["large [us]"].notna().sum() == 3
    assert "SIGABRT" in frame["reason"][5], frame["reason"][5]
    assert not (folder / "work").exists() and len([*(folder / "finalists").iterdir()]) == 1
    assert "6 built, 2 rejected at check, 1 rejected at static" in text
    (row,) = [line for line in text.splitlines() if line.startswith("width_1/small ") and " 1.833 " in line]
    assert "faster" in row and "THREADS 128" in row, "the slow one takes 11 µs, this one 6"
    variant = load(suite).variants["width_tuned_1"]
    assert dict(variant.config) == {"THREADS": 128} and variant.parent == "slow"
    assert "+[variant.width_tuned_1]" in text


def test_without_a_gpu_candidates_are_only_built_and_gated(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLASHCORE_EXECUTOR")
    words = ["tune", "width", "--suite", str(suite), "-q"]
    assert main(words) == Exit.INCAPABLE and "no GPU" in capsys.readouterr().err
    assert main([*words, "--static"]) == Exit.OK
    frame = results.frame(search.newest(Path("studies"), "width"))
    assert sorted(frame["rejected"]) == ["", "", "", "", "", "static"] and "small [us]" not in frame
    assert "unmeasured" in capsys.readouterr().out
    assert main([*words, "--static", "--resume", "--shape", "small"]) == Exit.USAGE
    assert "expected the same space as now" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["evaluations 0", "evaluations -1", "seconds 0", "batch 0", "finalists -1"])
def test_an_option_out_of_its_range_is_refused_before_a_suite_is_read(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "toy", "--suite", "nowhere", *f"--{option}".split()]) == Exit.USAGE
    assert f"--{option.split()[0]}" in capsys.readouterr().err
    assert main(["tune", "toy", "--suite", "nowhere", "--evaluations", "1", "--finalists", "0"]) == Exit.USAGE
    assert "nowhere" in capsys.readouterr().err


def test_an_unknown_sampler_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "toy", "--sampler", "tqe"])
    assert "did you mean tpe?" in capsys.readouterr().err


def test_triton_kernels_are_compiled_and_gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    suite = shutil.copytree(ROOT / "examples" / "triton_kernels", tmp_path / "suite")
    manifest, spaces = suite / "suite.toml", suite / space.FILE
    manifest.write_text(manifest.read_text().replace('"../', f'"{ROOT}/examples/'))
    axes = "axes = { BM = [32, 64], BN = [64], BK = [32], WARPS = [4], STAGES = [2] }"
    lines = spaces.read_text().splitlines()
    spaces.write_text("\n".join(axes if line.startswith("axes = ") else line for line in lines) + "\n")
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "matmul", "--suite", "suite", "--static", "-q"]) == Exit.OK
    study = search.load(search.newest(Path("studies"), "matmul"))
    assert study.user_attrs["compiler"].startswith("triton 3.")
    found = search.outcomes(study)
    assert {o.missed for o in found.values()} == {("wgmma",), ()}, "32 rows are too few for Hopper's instruction"
    assert len({o.code for o in found.values()}) == 2 and all(o.facts["registers"] > 0 for o in found.values())
