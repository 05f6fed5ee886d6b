"""Energies from readings."""

from __future__ import annotations

from typing import Any

import pytest

from flashcore.features import energy
from flashcore.features.energy.facts import POWER_DISAGREES, facts
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import Template, cause_text
from flashcore.model.causes import NO_FORMULA, NO_NVML, OTHER_PROCESSES, UNANSWERED
from flashcore.model.record import CaseSubject, Fact, Source
from tests.support.power import steady

SUBJECT = CaseSubject(Case("fast", "mission"))


def by_name(work: Any, idle: Any, flop: float | None = 1e9, us: float = 50.0) -> dict[str, Fact]:
    return {f.name: f for f in facts(SUBJECT, flop, {"work": work, "idle": idle, "us": us})}


def test_the_energy_of_a_call_is_its_power_times_its_time() -> None:
    values = {name: f.value for name, f in by_name(steady(400), steady(100)).items()}
    assert values["power"] == pytest.approx(400) and values["power_idle"] == pytest.approx(100)
    assert values["energy"] == pytest.approx(20) and values["energy_above_idle"] == pytest.approx(15)  # mJ in 50 µs
    assert values["flop_per_joule"] == pytest.approx(1 / 0.02)  # GFLOP over J
    assert values.keys() == energy.PLUGIN.facts.keys()
    assert by_name(steady(400), steady(100))["power_idle"].note == "without work"


def test_intervals_follow_the_spread() -> None:
    f = by_name(steady(400, wobble=2000), steady(100))
    low, energy_, high = (f[n].number or 0 for n in ("energy_low", "energy", "energy_high"))
    assert low < energy_ < high
    low, value, high = (f[n].number or 0 for n in ("flop_per_joule_low", "flop_per_joule", "flop_per_joule_high"))
    assert low < value < high
    wider = by_name(steady(400, wobble=2000), steady(100, wobble=2000))
    assert (wider["energy_above_idle_high"].number or 0) > (f["energy_above_idle_high"].number or 0)


@pytest.mark.parametrize(
    ("work", "cause"),
    [
        (steady(400, sensor=300), POWER_DISAGREES),
        (steady(400, updates=5), NO_NVML),
        (steady(0), POWER_DISAGREES),
        (steady(400, others=1), OTHER_PROCESSES),
    ],
)
def test_an_untrusted_power_leaves_the_energy_unmeasured(work: Any, cause: Template) -> None:
    of = by_name(work, steady(100))
    assert isinstance(of.pop("power_idle"), Fact)
    assert all(f.value is None and f.cause and f.cause.code == cause.code for f in of.values())
    assert cause_text(of["energy"].detail)


def test_without_idle_power_only_what_needs_it_is_unmeasured() -> None:
    of = by_name(steady(400), steady(100, sensor=200), flop=None)
    unmeasured = {name for name, f in of.items() if f.value is None}
    with_ends = [n + end for n in ("energy_above_idle", "flop_per_joule") for end in ("", "_low", "_high")]
    assert unmeasured == {"power_idle", *with_ends}
    assert of["flop_per_joule"].detail == NO_FORMULA("flop")


def test_a_case_that_failed_has_all_facts_and_their_cause() -> None:
    failed = list(facts(SUBJECT, 1.0, UNANSWERED()))
    assert {f.name for f in failed} == energy.PLUGIN.facts.keys()
    assert {f.detail for f in failed} == {UNANSWERED()} and {f.source for f in failed} == {Source.NVML}


def test_the_catalogue_has_the_facts() -> None:
    for fact in by_name(steady(400), steady(100)).values():
        assert FACTS[fact.name].unit == fact.unit and FACTS[fact.name].tier == "timing"
