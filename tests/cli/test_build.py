"""The table of a build: a row for each kernel, and for what does not build."""

from __future__ import annotations

from flashcore.cli import build
from tests import factory


def test_a_kernel_has_its_facts_and_those_of_its_first_plan() -> None:
    facts = factory.static_facts("fast", ("sm_80", "sm_90a"), ("mission", "long"))
    facts += factory.static_facts("slow", ("sm_80",))
    facts.append(factory.fact("theoretical_occupancy", 50.0, "fast", arch="sm_80", shape="long", kernel="fast_kernel"))
    artifacts = [factory.artifact("fast", "sm_80"), factory.artifact("slow", "sm_80"),
                 factory.artifact("split", "sm_80", "unsupported", "why")]  # fmt: skip
    header, _, *rows = build.table(artifacts, facts).splitlines()
    assert header.split()[:4] == ["variant", "arch", "kernel", "regs"]
    assert [row.split() for row in rows] == [
        ["fast", "sm_80", "fast_kernel", "96", "0", "0", "0", "33,792", "25.0", "registers"],
        ["slow", "sm_80", "slow_kernel", "96", "0", "0", "0", "1,024", "unmeasured", "unmeasured"],
        ["split", "sm_80", "unsupported", *"-" * 7],
    ]


def test_launches_that_are_unknown_have_their_reason_once() -> None:
    plans = [
        factory.plan("fast", "mission"),
        *(factory.plan("slow", shape, error="write the launch") for shape in ("mission", "long", "mission")),
        factory.plan("split", "long", error="expected an even size"),
    ]
    assert [*build.unplanned(plans)] == [
        "no launches: slow/mission and 1 more shape: write the launch",
        "no launches: split/long: expected an even size",
    ]
