from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flashcore.cli import facts
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, CodeSubject, Fact, Facts, Source, Value, subject_of
from tests import factory

#: How a cell becomes a value again, by the column `type`.
READ: dict[str, Callable[[str], Value | None]] = {
    "int": int, "float": float, "str": str, "bool": {"True": True, "False": False}.__getitem__, "none": lambda _: None,
}  # fmt: skip


def from_csv(text: str) -> list[Fact]:
    read = csv.DictReader(io.StringIO(text, newline=""))
    rows = [{name: cell.removeprefix("'") for name, cell in row.items()} for row in read]
    return [
        fact({**r, "value": READ[r["type"]](r["value"]), "launch": int(r["launch"]) if r["launch"] else None})
        for r in rows
    ]


def from_json(text: str) -> list[Fact]:
    return [fact(r) for r in json.loads(text)["facts"]]


def fact(row: dict[str, Any]) -> Fact:
    where = subject_of(row["variant"], row["shape"] or None, row["kernel"] or None, row["launch"], row["arch"] or None)
    return Fact(where, row["fact"], row["value"], row["unit"], Source(row["source"]), row["note"])


def typed(results: list[Fact]) -> list[tuple[type, Fact]]:
    """With the value's type, since 1, 1.0 and True are equal; details as their text."""
    return [(type(f.value), dataclasses.replace(f, detail=f.note)) for f in results]


TEXT = st.text(st.characters(codec="utf-8"))
NAME = st.none() | TEXT.filter(bool)


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(
            Fact,
            st.builds(CodeSubject, TEXT, NAME, NAME)
            | st.builds(CaseSubject, st.builds(Case, TEXT, TEXT.filter(bool)), NAME, st.none() | st.integers(0), NAME),
            st.sampled_from(["registers", "isolated_p50"]),
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
            st.sampled_from(["1", "us", "text"]),
            st.sampled_from(Source),
            TEXT,
        ),
        max_size=5,
    )
)
def test_any_fact_survives_both_formats(results: list[Fact]) -> None:
    record = replace(factory.bare_record(), facts=Facts(results))
    assert typed(from_csv(facts.as_csv(record))) == typed(results)
    assert typed(from_json(facts.as_json(record))) == typed(results)


def test_no_cell_of_the_csv_is_a_formula() -> None:
    words = ("=cmd|' /C calc'!A0", "+1", "-1+1", "@sum(1)", "\t=1", "\r=1", "'quoted")
    hostile = [Fact(CodeSubject("v", kernel=w), "technique", w, "text", Source.FORMULA, w) for w in words]
    text = facts.as_csv(factory.record(facts=[*hostile, factory.fact("registers", -3, "v")]))
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert {c for c in cells if c[:1] in tuple("=+-@\t\r")} == {"-3"}
    values = [f.value for f in from_csv(text)]
    assert [v for v in values if v in (*words, -3)] == [*words, -3]
