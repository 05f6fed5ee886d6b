"""The line that is to blame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.explain.verdict import Verdict
from flashcore.gate import locate
from flashcore.gate.locate import Places, SourcePlace
from flashcore.model.causes import Decided, SourceLine
from flashcore.model.record import Record, subject_of
from flashcore.model.suite import Decision
from tests import factory
from tests.support.verdicts import judged, places, suite, troubled


def test_a_compilers_error_is_the_place_of_a_failed_build(record: Record) -> None:
    verdict = verdict_on(record, "builds", variant="split", arch="sm_90a")
    assert places(record).of(verdict) == SourcePlace("my kernels/split.cu", 7)


def test_a_kernel_is_found_in_a_header(record: Record) -> None:
    verdict = verdict_on(record, "registers_limit", kernel="slow_kernel")
    assert places(record).of(verdict) == SourcePlace("my kernels/common.cuh", 3)


def test_a_variant_without_source_points_at_the_manifest(record: Record) -> None:
    verdict = verdict_on(record, "registers_limit", kernel="split_kernel")
    assert places(record).of(verdict) == SourcePlace("my kernels/suite.toml", 3)


@pytest.mark.parametrize("table", ["[variant.split]", '[variant."sp{a}it"]', "  [variant.'s{a}t']"])
def test_it_points_into_the_file_that_declares_the_variant(record: Record, table: str) -> None:
    folder = Path(record.suite.root)
    (folder / "suite.toml").write_text('name = "x"\nmanifests = ["a.toml", "b.toml"]\n')
    (folder / "a.toml").write_text("[variant.splits]\n[variant.spl]\n")
    (folder / "b.toml").write_text(f"# [variant.split]\n\n\n{table}\n")
    made = replace(record, suite=replace(record.suite, manifests=("a.toml", "b.toml")))
    verdict = verdict_on(record, "registers_limit", kernel="split_kernel")
    assert places(made).of(verdict) == SourcePlace("my kernels/b.toml", 4)


@pytest.mark.parametrize("kernel", ["_Z11fast_kernelPKf", "_ZN4some11fast_kernelEPKf"])
def test_a_mangled_kernel_is_found_by_the_name_within(kernel: str, tmp_path: Path) -> None:
    fact = factory.fact("registers", 140, "fast", arch="sm_89", kernel=kernel)
    record = factory.record(suite(tmp_path), [fact])
    assert places(record).of(verdict_on(record, "registers_limit", kernel=kernel)) == SourcePlace(
        "my kernels/fast.cu", 4
    )


def test_sources_that_are_not_here_give_no_place() -> None:
    record = factory.record(
        factory.suite(budgets=[factory.budget("registers", maximum=128)], root="/nowhere/kernels"),
        [factory.fact("registers", 140, "fast", arch="sm_89", kernel="fast_kernel")],
    )
    assert places(record).of(verdict_on(record, "registers_limit", kernel="fast_kernel")) is None


def verdict_on(record: Record, budget: str, **subject: Any) -> Verdict:
    return next(
        v
        for v in judged(record).verdicts
        if v.budget == budget and all(getattr(v.subject, k) == w for k, w in subject.items())
    )


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return troubled(tmp_path)


def sited(tmp_path: Path, *facts: Any) -> Record:
    made = suite(tmp_path)
    at = factory.fact("spill_store_bytes", 8, "fast", arch="sm_80", kernel="fast_kernel")
    return factory.record(made, [at, *facts])


def place(record: Record, fact: str, **subject: Any) -> SourcePlace | None:
    (line,) = [
        v
        for v in judged(record).verdicts
        if v.fact == fact and v.subject.variant == "fast" and v.subject.arch == "sm_80"
    ]
    parts = {name: getattr(line.subject, name) for name in ("variant", "shape", "kernel", "launch", "arch")}
    return places(record).of(replace(line, subject=subject_of(**parts | subject)))


def test_local_memory_points_at_the_line_that_needs_it(tmp_path: Path) -> None:
    record = sited(tmp_path, factory.site(SourceLine("common.cuh", 3)))
    elsewhere = SourcePlace("my kernels/common.cuh", 3)
    assert place(record, "spill_store_bytes", arch="sm_89") == elsewhere
    assert place(record, "spill_store_bytes") == elsewhere  # known of another arch
    assert place(record, "spill_store_bytes", kernel="another") == elsewhere  # known of another kernel
    assert place(record, "registers") == SourcePlace("my kernels/fast.cu", 4)
    assert place(record, "spill_store_bytes", variant="slow") == SourcePlace("my kernels/common.cuh", 3)


@pytest.mark.parametrize("value", [None, "", "no place", 3])
def test_a_site_that_is_none_leaves_the_kernels_own_line(tmp_path: Path, value: Any) -> None:
    record = sited(tmp_path, factory.fact("local_memory_site", value, arch="sm_89", kernel="fast_kernel"))
    assert place(record, "spill_store_bytes") == SourcePlace("my kernels/fast.cu", 4)


def test_a_decision_points_at_the_line_that_lost_it(tmp_path: Path) -> None:
    budget = replace(factory.budget("decision_wide", maximum=0), decision=Decision(("ldg.128",)))
    made = replace(suite(tmp_path), budgets=(budget,))
    lost = factory.fact("decision_wide", 1, "fast", arch="sm_80", kernel="fast_kernel")
    for detail, line in ((Decided("common.cuh", 3, ("ldg.128",), "LDG.E ×4"), ("common.cuh", 3)),
                         (Decided("", 0, ("ldg.128",), ""), ("fast.cu", 4))):  # fmt: skip
        record = factory.record(made, [replace(lost, detail=detail)])
        verdict = verdict_on(record, "decision_wide_limit", kernel="fast_kernel", arch="sm_80")
        assert (verdict.status, verdict.limit) == ("fail", "must have ldg.128")
        assert verdict.reason.startswith(
            f"{'common.cuh:3: LDG.E ×4' if line[1] == 3 else 'nothing'} instead of ldg.128; "
        )
        assert places(record).of(verdict) == SourcePlace(f"my kernels/{line[0]}", line[1])


def test_without_a_kernel_the_first_that_the_plan_launches_is_meant(tmp_path: Path) -> None:
    record = sited(tmp_path)
    assert place(record, "registers", kernel=None, shape="mission") == SourcePlace("my kernels/fast.cu", 4)
    assert place(record, "registers", kernel=None, shape=None) == SourcePlace("my kernels/fast.cu", 4)


def test_a_variant_that_is_unknown_or_has_no_file_is_found_in_no_source(tmp_path: Path) -> None:
    record = sited(tmp_path)
    manifest = SourcePlace("my kernels/suite.toml", 1)
    assert place(record, "registers", variant="nobody") == place(record, "registers", variant="cudnn") == manifest


def test_a_kernel_in_python_is_found_by_its_def() -> None:
    assert locate._kernel_line("import triton\n\n    def other():\n  def softmax(x):\n", "softmax") == 4
    assert locate._kernel_line("softmax(1)\n", "softmax") is None


@pytest.mark.parametrize(
    ("there", "place"),
    [(["suite.toml", "flashcore.toml"], "suite.toml"), (["flashcore.toml"], "flashcore.toml"), ([], "flashcore.toml")],
)
def test_results_without_a_line_are_at_the_manifest_that_exists(there: list[str], place: str, tmp_path: Path) -> None:
    for name in there:
        (tmp_path / name).touch()
    record = factory.record(factory.suite(root=str(tmp_path), manifests=("flashcore.toml",)))
    assert Places(record, tmp_path).manifest.file == place
    bare = replace(record, suite=replace(record.suite, manifests=()))
    assert Places(bare, tmp_path).manifest.file == "suite.toml"
