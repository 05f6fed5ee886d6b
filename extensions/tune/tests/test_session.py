"""A search as a whole, without a GPU: a space of a Triton kernel, from its manifest to the variant it ends with."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, ManifestError
from flashcore.measure.settings import Settings
from flashcore.model.decide import Decision
from flashcore.model.suite import AheadOfTime
from flashcore.pipeline.opening import open_context
from flashcore.suites.load import load
from flashcore_tune import candidates, grid, session, study, tune
from flashcore_tune.finalists import Final, offer
from flashcore_tune.samplers import Exhaustive, Pace
from flashcore_tune.space import FILE, spaces_of
from flashcore_tune.study import Result
from tests.conftest import ROOT

AXES = "axes = { BM = [32, 64], BN = [64], BK = [32], WARPS = [4], STAGES = [2, 3] }"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's suite, its space made small."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("triton_space") / "suite"
    shutil.copytree(ROOT / "examples" / "triton_kernels", folder, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = folder / "suite.toml"
    manifest.write_text(manifest.read_text().replace('"../', f'"{ROOT}/examples/'))
    lines = (folder / FILE).read_text().splitlines()
    (folder / FILE).write_text("\n".join(AXES if line.startswith("axes = ") else line for line in lines) + "\n")
    return folder


def points(suite: Path) -> grid.Grid:
    return grid.of_suite(load(suite), "matmul")


def test_every_point_is_compiled_and_judged_without_a_gpu(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(suite.parent)
    assert main(["tune", "matmul", "--suite", "suite", "--static", "--report", "s.html", "-q"]) == Exit.OK
    header, results = study.read(study.find(suite.parent / "studies", None))
    assert header.compiler.startswith("triton 3.") and header.made_by == header.compiler and header.gpu is None
    text, space = capsys.readouterr().out, points(suite)
    assert sorted(results) == space.feasible == [0, 1, 2, 3] and not any(r.fell for r in results.values())
    assert len({r.code for r in results.values()}) == 4, "each is another kernel"
    for i, r in results.items():
        narrow = space.point(i)["BM"] == 32
        assert set(r.broken) == ({"wgmma"} if narrow else set()), "32 rows are too few for Hopper's instruction"
        assert r.facts["registers"] > 0 and r.facts["spill_store_bytes"] == 0 and r.facts["threads"] == 128
    folder = suite.parent / "build" / session.FOLDER / "triton_kernels"
    assert [p.name[:13] for p in folder.glob("matmul_*-sm_90a-*")] == ["matmul_64x64-"], "what was looked at is removed"
    more = [results[i].facts["smem"] for i in (2, 3)]
    assert more[0] < more[1], "a stage more takes more shared memory"
    assert "wgmma by 100 %" in text and "2 of 4 that may be launched spill nothing and keep every budget" in text
    assert "triton 3." in text and "wgmma by 100 %" in (suite.parent / "s.html").read_text(encoding="utf-8")


class StandIn(candidates.Local):
    """Builds as ever; stands in for the GPU with times that the tile's rows decide."""

    def measure(self, results: Sequence[Result], report: tune.Report) -> None:
        for result in results:
            (case,) = self._cases(result.index)
            assert case.callable == "matmul.py:matmul" and case.config == self._grid.point(result.index)
            assert case.calls and case.library is None, "the first call is held to what was judged"
            report(dataclasses.replace(result, times={"square": 100.0 - int(case.config["BM"])}, error=0.1))


def test_a_search_ends_with_a_variant_that_the_manifest_takes(suite: Path, tmp_path: Path) -> None:
    """The GPU is stood in for; all else is as it is."""
    copy = shutil.copytree(suite, tmp_path / "copy")
    spaces = copy / FILE
    spaces.write_text(spaces.read_text().replace("STAGES = [2, 3]", "STAGES = [3]"))
    grid_points = points(copy)
    job = open_context(Settings(str(copy), upto=None, build=str(tmp_path / "build")))
    job = dataclasses.replace(job, gpu_arch="sm_90a", options=dataclasses.replace(job.options, archs=("sm_90a",)))
    header = study.Header("triton_kernels", grid_points.space, "grid", 0, "c", compiler="triton")
    with study.create(tmp_path, header) as kept:
        local = StandIn(job, grid_points, tmp_path, True)
        tune.search(kept, Exhaustive(grid_points, {}), local, tune.Budget(), lambda _: None, Pace(2))
    assert len({r.code for r in kept.results.values()}) == 2
    best = tune.best(kept.results.values(), "square")
    assert best is not None and grid_points.point(best.index)["BM"] == 64
    whole = load(copy)
    winner = Final(best.index, "square", "matmul_64x64", 50.0, 49.0, Decision("faster", -0.02, 0.01))
    made = offer(whole, grid_points, winner, "study")
    made.write()
    result = load(copy).variants["matmul_tuned_1"]
    assert result.kind == AheadOfTime("triton", "matmul.py:matmul")
    assert dict(result.config) == grid_points.point(best.index) and result.parent == "matmul_64x64"


def test_the_search_begins_at_the_variants_of_the_same_callable(suite: Path) -> None:
    whole = load(ROOT / "examples" / "triton_kernels")
    assert set(grid.named_points(whole, grid.of_suite(whole, "matmul")).values()) == {"matmul_64x64", "matmul_128x256"}
    assert set(grid.named_points(load(suite), points(suite)).values()) == set(), "4 stages are no value of the axis"


def test_recorded_cubins_and_peers_have_no_config_to_search(suite: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(suite, tmp_path / "suite")
    spaces = copy / FILE
    spaces.write_text(spaces.read_text().replace('variant = "matmul_64x64"', 'variant = "torch_matmul"'))
    with pytest.raises(ManifestError, match='a variant with a source, or with cubins = "triton"'):
        points(copy)


def test_a_missing_optuna_is_said_before_anything_is_built(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.chdir(tmp_path)
    space = next(iter(spaces_of(load(suite))))
    assert main(["tune", space, "--suite", str(suite), "--static", "--sampler", "random"]) == Exit.INCAPABLE
    message = capsys.readouterr().err
    assert "optuna" in message and "build:" not in message
