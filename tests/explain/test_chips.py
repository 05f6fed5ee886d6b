"""Which runs may stand side by side, and what keeps them from being compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.errors import UsageError
from flashcore.explain import chips
from flashcore.model.record import Origin, Record
from flashcore.model.suite import ImportedKernel
from tests import factory

H200 = factory.record()
L4 = factory.on_l4(H200)
IMPORTED = factory.record(
    factory.suite([factory.variant("fast", kind=ImportedKernel("fast_kernel"))]), id="20260103T000000Z-0003"
)


def test_a_chip_is_called_by_its_name_and_by_its_memory_where_two_have_one() -> None:
    assert chips.names([H200, L4]) == ["NVIDIA H200", "NVIDIA L4"]
    small = replace(H200, id="x", environment=replace(H200.environment, gpu_memory_bytes=96 << 30))
    assert chips.names([small, L4, H200]) == [
        "NVIDIA H200, 98,304 MiB", "NVIDIA L4", "NVIDIA H200, 143,051 MiB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (H200, "expected one run of each chip, found the same run twice"),
        (
            replace(H200, id="20260105T000000Z-0004"),
            "0001 and 20260105T000000Z-0004 of NVIDIA H200\n  hint: .* --against",
        ),
        (
            factory.on_l4(factory.record(factory.suite(name="other"))),
            "runs of one suite, found .* attention and .* other",
        ),
        (  # recorded without a GPU, of what an H200 measured
            factory.record(
                id="x",
                environment=factory.environment(gpu=None),
                joined=(Origin("y", "NVIDIA H200", "sm_90a", "9 facts"),),
            ),
            "0001 and x of NVIDIA H200",
        ),
        (factory.on_l4(IMPORTED, id="20260103T000000Z-0003"), "found run .* and import 20260103T000000Z-0003"),
        (
            factory.record(id="x", environment=factory.environment(gpu=None)),
            "run x: expected GPU results to compare chips",
        ),
    ],
)
def test_what_cannot_stand_side_by_side_is_refused(other: Record, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        chips.names([H200, other])


def test_two_imports_of_one_suite_may_stand_side_by_side() -> None:
    assert chips.names([IMPORTED, factory.on_l4(IMPORTED)]) == ["NVIDIA H200", "NVIDIA L4"]


def test_what_a_chip_does_not_run_has_its_reason() -> None:
    of = H200.suite.variants
    mission = H200.suite.shapes["mission"]
    assert [chips.why_not(L4)(of[v], mission) for v in ("fast", "cudnn")] == ["", ""]
    assert chips.why_not(H200)(of["split"], mission) == ""
    assert chips.why_not(L4)(of["split"], mission) == "no TMA before sm_90"
    refused = replace(H200, outcomes=(factory.outcome("fast", "mission", "check", "unsupported", "too small"),))
    assert chips.why_not(refused)(of["fast"], mission) == "too small"
    timed = replace(refused, outcomes=(*refused.outcomes, factory.outcome("fast", "mission", "bench")))
    assert chips.why_not(timed)(of["fast"], mission) == "", "what ran in one stage runs here"
    assert chips.why_not(H200)(factory.variant("new"), mission) == "not in this run's suite"


def test_what_no_chip_runs_and_what_differs_is_said() -> None:
    assert chips.notes([H200, L4]) == []
    suite = factory.suite([factory.variant("fast"), factory.variant("old", archs=("sm_80",))])
    one = factory.record(suite)
    other = factory.on_l4(one)
    other = replace(other, environment=replace(other.environment, nvcc="13.1.0", git_dirty=True),
                    suite=replace(suite, budgets=(factory.budget("registers", maximum=9),)))  # fmt: skip
    assert chips.notes([one, other]) == [
        "source differs: NVIDIA H200: 000000000000; NVIDIA L4: 000000000000 and changes",
        "nvcc differs: NVIDIA H200: 13.0.88; NVIDIA L4: 13.1.0",
        "budgets differ: each run is checked against the budgets it was recorded with",
        "no chip here runs old on mission, long "
        "(NVIDIA H200: only for sm_80, not sm_90a; NVIDIA L4: only for sm_80, not sm_89)",
    ]
