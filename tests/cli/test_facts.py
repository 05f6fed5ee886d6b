from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcore.cli import facts
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.frames import EXPORT
from flashcore.model.record import Fact, Facts, Record, Source, Subject, Value
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT, published_run

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
    where = Subject(row["variant"], row["arch"] or None, row["shape"] or None, row["kernel"] or None, row["launch"])
    return Fact(where, row["fact"], row["value"], row["unit"], Source(row["source"]), row["note"])


def typed(results: list[Fact]) -> list[tuple[type, Fact]]:
    """With the value's type, since 1, 1.0 and True are equal; details as their text."""
    return [(type(f.value), dataclasses.replace(f, detail=f.note)) for f in results]


def test_the_facts_of_a_published_run_survive_both_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = published_run("20261122T200715Z-fcec")
    recorded = typed(list(store.read(run).facts))
    assert {int, float, str, type(None)} <= {kind for kind, _ in recorded}
    words = ["facts", run.name, "--profiles", str(ROOT / "profiles")]
    assert main(words) == Exit.OK
    assert typed(from_csv(capsys.readouterr().out)) == recorded
    file = tmp_path / "facts.json"
    assert main([*words, "--format", "json", "-o", str(file)]) == Exit.OK
    assert capsys.readouterr().out == ""
    assert typed(from_json(file.read_text(encoding="utf-8"))) == recorded


TEXT = st.text(st.characters(codec="utf-8"))
NAME = st.none() | TEXT.filter(bool)


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(
            Fact,
            st.builds(Subject, TEXT, NAME, NAME, NAME, st.none() | st.integers(min_value=0)),
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


def test_json_names_version_run_and_suite() -> None:
    read = json.loads(facts.as_json(factory.bare_record()))
    assert (read["version"], read["run"], read["suite"], read["facts"]) == (1, "20260102T030405Z-0001", "attention", [])


def test_csv_of_no_facts_is_its_header() -> None:
    assert facts.as_csv(factory.bare_record()) == ",".join(EXPORT) + "\n"


def test_pandas_reads_the_csv() -> None:
    import pandas as pd

    record = factory.record()
    frame = pd.read_csv(io.StringIO(facts.as_csv(record)), dtype={"value": "str"}, low_memory=False)
    assert list(frame.columns) == list(EXPORT)
    numbers = pd.to_numeric(frame[frame["type"].isin(["int", "float"])]["value"])
    assert math.isclose(numbers.sum(), sum(f.number for f in record.facts if f.number is not None))


def test_a_run_that_is_not_there_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", "20990101", "--profiles", str(tmp_path)]) == Exit.USAGE
    assert "expected one run's id, folder or packed file, found none" in capsys.readouterr().err


@pytest.fixture
def recorded(tmp_path: Path) -> Record:
    record = factory.record()
    folder = tmp_path / "profiles" / record.id
    folder.mkdir(parents=True)
    store.write(record, folder)
    return record


def test_a_run_is_named_by_the_beginning_of_its_id(
    recorded: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["facts", recorded.id[:12], "--profiles", str(tmp_path / "profiles"), "--format", "json"]) == Exit.OK
    assert typed(from_json(capsys.readouterr().out)) == typed(list(recorded.facts))


def test_a_file_that_cannot_be_written_says_so(
    recorded: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tmp_path / "nowhere" / "facts.csv"
    assert main(["facts", "--profiles", str(tmp_path / "profiles"), "-o", str(wanted)]) == Exit.USAGE
    assert f"{wanted}: cannot write" in capsys.readouterr().err


def test_no_cell_of_the_csv_is_a_formula() -> None:
    words = ("=cmd|' /C calc'!A0", "+1", "-1+1", "@sum(1)", "\t=1", "\r=1", "'quoted")
    hostile = [Fact(Subject("v", kernel=w), "technique", w, "text", Source.FORMULA, w) for w in words]
    text = facts.as_csv(factory.record(facts=[*hostile, factory.fact("registers", -3, "v")]))
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert {c for c in cells if c[:1] in tuple("=+-@\t\r")} == {"-3"}
    values = [f.value for f in from_csv(text)]
    assert [v for v in values if v in (*words, -3)] == [*words, -3]
