"""The tables of times and checks: ranked, failures first, and nothing unmeasured as a number."""

from __future__ import annotations

from dataclasses import replace

from flashcore.cli import text_tables
from flashcore.cli.grid import aligned, grid
from flashcore.model.case import Case
from flashcore.model.causes import MESSAGE
from flashcore.model.record import CaseOutcome, CaseSubject, Facts, Record
from tests import factory


def cells(table: str) -> list[list[str]]:
    """The cells of each line below the rule."""
    lines = table.splitlines()
    below = next(i for i, line in enumerate(lines) if line.startswith("---"))
    return [line.split() for line in lines[below + 1 :]]


def timed() -> Record:
    """Times on two shapes, of which one is timed by no bench, and a case without a time."""
    shapes = [factory.shape("mission"), factory.shape("long", factory.LONG, stages=("check",))]
    record = factory.record(factory.suite(shapes=shapes))
    facts = [
        factory.fact("isolated_p50", None, "split", shape="mission"),
        factory.fact("tflops", 1234.56, "fast", shape="mission"),
    ]
    return replace(record, facts=Facts([*record.facts, *facts]))


def test_times_are_ranked_and_a_case_without_one_stands_last() -> None:
    table = text_tables.ladder(timed())
    fast = timed().facts.number("isolated_p50", CaseSubject(Case("fast", "mission")))
    assert table.startswith("mission (B=1, H=8, S=512, D=64), ranked by isolated\n") and "long" not in table
    first, second, *_, last = cells(table)
    assert first[:2] == ["cudnn", "(library)"] and last[:2] == ["split", "unmeasured"]
    assert second[:2] == ["fast", f"{fast:.2f}"] and second[-3:] == ["10.01", "0.22", "1,234.6"]
    assert last[-3:-1] == ["unmeasured", "unmeasured"]
    assert text_tables.ladder(factory.bare_record()) == "no times were recorded"


def test_failed_checks_stand_first_with_their_reason_and_error() -> None:
    record = factory.record()
    outcomes = [
        CaseOutcome(o.variant, o.shape, o.stage, "failed", MESSAGE("wrong")) if o.case == Case("split", "long") else o
        for o in record.outcomes
    ]
    facts = [factory.fact("max_error", None, "slow", shape="mission")]
    table = text_tables.checked(replace(record, outcomes=tuple(outcomes), facts=Facts([*record.facts, *facts])))
    first, second, *rest = cells(table)
    assert first == ["split/long", "failed", "2.00e-04", "1.00", "wrong"]
    assert second == ["slow/mission", "ok", "-", "1.00"] and len(rest) == 6


def test_numbers_stand_to_the_right_where_a_column_has_nothing_else() -> None:
    rows = [["a", "1,000", "-", "1"], ["bb", "+.5", "unmeasured", "x"], ["c", "", ".5", "2"]]
    assert grid(("n", "v", "w", "mixed"), rows).splitlines() == [
        "n       v           w  mixed",
        "--  -----  ----------  -----",
        "a   1,000           -  1",
        "bb    +.5  unmeasured  x",
        "c                  .5  2",
    ]
    assert grid(("a", "b"), []) == "a  b\n-  -"
    assert aligned([["a", "b"], ["cc", "d"]], {0}) == [" a  b", "cc  d"]
