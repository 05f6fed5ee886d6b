"""The machine as every page describes it."""

from __future__ import annotations

from dataclasses import replace

from flashcore.gate.judge import judge
from flashcore.model.case import Case
from flashcore.model.record import Origin, SharingGpu
from flashcore.report import view
from tests import factory


def test_each_gpu_of_a_shared_run_has_a_row() -> None:
    one = factory.record()
    cases = {"check": (Case("fast", "mission"), Case("fast", "long")), "bench": (Case("fast", "mission"),)}
    gpus = (
        SharingGpu("GPU-a", None, 1755.0, 61.0, ("power_cap",), cases),
        SharingGpu("GPU-b", "node2", None, None, (), {}, "lost: no CUDA GPU"),
    )
    rows = dict(view.provenance(replace(one, gpus=gpus)))
    assert rows["GPU-a"] == "check 2, bench 1, 1,755 MHz"
    assert rows["GPU-b"] == "node2: no cases; lost: no CUDA GPU"
    assert not {"GPU-a", "GPU-b"} & dict(view.provenance(one)).keys()


def test_the_top_line_tells_where_gpu_results_come_from() -> None:
    record = factory.record()
    line = f"Run {record.id}, 2026-01-02, source 000000000000; measured on NVIDIA H200"
    assert view.origin_line(record) == line
    joined = replace(
        record,
        environment=factory.environment(gpu=None),
        joined=(Origin("20260101T000000Z-0000", "NVIDIA H200", "sm_90a", "times"),),
    )
    assert view.origin_line(joined).endswith(
        "; recorded without a GPU; times joined from run 20260101T000000Z-0000, NVIDIA H200 (sm_90a)"
    )


def test_the_gates_badge_names_unmeasured_limits() -> None:
    facts = [factory.fact("registers", 64, "fast", arch="sm_90a", kernel="fast_kernel")]
    budgets = [factory.budget("registers", maximum=128), factory.budget("isolated_p50", maximum=10)]
    suite = factory.suite(
        variants=[factory.variant("fast", archs=("sm_90a",))], shapes=[factory.shape()], budgets=budgets
    )
    judged = judge(factory.bare_record(suite, facts))
    judged = replace(judged, verdicts=tuple(v for v in judged.verdicts if v not in judged.gaps))
    unmeasured = judged.counts()["unmeasured"]
    assert unmeasured and view.gate_badge(judged, "").text == f"gate passed, {unmeasured} optional unmeasured"
