"""``flashcore diff``: the two sides that it compares."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flashcore.explain import diff
from flashcore.measure.settings import Settings
from flashcore.model.record import Facts, Record
from flashcore.plugins.compare import command, differences
from flashcore.suites.load import NothingMatches, select
from tests import factory

BEFORE = factory.record(factory.suite([factory.variant("slow")]))
AFTER = factory.record(factory.suite([factory.variant("slow"), factory.variant("fast")]))


def sides(names: tuple[str, str], variant: str) -> list[tuple[tuple[str, ...], Record]]:
    """The requested variants and the record of each side."""
    requested: dict[str, tuple[str, ...]] = {}

    def record(name: str, settings: Settings) -> Record:
        result = {"before": BEFORE, "after": AFTER}[name]
        select(result.suite, settings.variants)
        requested[name] = settings.variants
        return result

    result = command._sides(names, replace(Settings("kernels"), variants=(variant,)), record)
    return [(requested[name], one) for name, one in zip(names, result, strict=True)]


def test_a_variant_that_one_side_lacks_is_compared_with_nothing() -> None:
    assert sides(("before", "after"), "fast") == [((), BEFORE), (("fast",), AFTER)]
    assert sides(("after", "before"), "fast") == [(("fast",), AFTER), ((), BEFORE)]
    assert sides(("before", "after"), "slow") == [(("slow",), BEFORE), (("slow",), AFTER)]


def test_a_variant_that_both_lack_is_wrong_usage() -> None:
    with pytest.raises(NothingMatches, match=r"\(did you mean fast\?\)"):
        sides(("before", "after"), "fats")


def test_the_json_has_the_values_of_the_table() -> None:
    def record(run: str, registers: int, gpu: str) -> Record:
        one = factory.record(environment=factory.environment(gpu=gpu))
        facts = [*one.facts, factory.fact("registers", registers, "fast", arch="sm_90a", kernel="k")]
        samples = {"fast/mission/isolated": (2.0, 2.1, 2.2)}
        return replace(one, id=run, facts=Facts(facts), samples=samples)

    a, b = record("one", 90, "NVIDIA H200"), record("two", 80, "NVIDIA H200")
    parsed = json.loads(command.as_json(a, b))
    assert (parsed["before"]["id"], parsed["after"]["gpu"]) == ("one", "NVIDIA H200")
    assert parsed["notes"] == differences.remarks(a, b)
    (change,) = diff.changes(a, b)
    (static,) = parsed["static"]
    assert (static["variant"], static["kernel"], static["fact"]) == ("fast", "k", "registers")
    assert (static["before"], static["after"], static["direction"]) == (90, 80, change.direction)
    (time,) = differences.timing(a, b)
    assert parsed["times"][0]["mode"] == "isolated" and parsed["times"][0]["low"] == time.low
    assert parsed["times_reason"] == ""
    other = json.loads(command.as_json(a, record("two", 80, "NVIDIA L4")))
    assert other["times"] is None and other["times_reason"] == "measured on NVIDIA H200, not NVIDIA L4"


def test_runs_of_different_suites_are_called_so() -> None:
    other = replace(AFTER, suite=replace(AFTER.suite, name="roofs"))
    assert command.as_text(BEFORE, other).splitlines()[0].endswith(": of different suites, attention and roofs")
    assert "different suites" not in command.as_text(BEFORE, AFTER)
