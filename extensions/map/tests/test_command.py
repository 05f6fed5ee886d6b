"""``flashcore map`` on the command line, the gate of a map's run, and its page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from extensions.map.tests import maps
from flashcore.cli import main
from flashcore.model.record import Record
from flashcore.records import store
from flashcore_map.page import page
from tests import factory
from tests.support.judged import book_of


def stored(folder: Path, record: Record) -> str:
    """Writes a run, and returns its id."""
    run = store.begin(folder, record.id)
    store.write(record, run)
    store.complete(run)
    return record.id


def test_a_recorded_map_is_shown_and_its_limit_decides_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, maps.record())
    assert main.main(["map", "--profiles", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("map rows on NVIDIA H200: run 2026") and "should have run" in printed
    assert re.search(
        r"fail: rows: regret 1\.\d+, expected: p99 ≤ 1\.05 \(map\.rows\): 60 points, 0 more without a time; at",
        printed,
    )
    assert main.main(["map", "--dispatch", "--profiles", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("// Which variant where on NVIDIA H200: 60 points of the map 2026")


@pytest.mark.parametrize(("names", "limit", "code"), [(["chooses"], 9.0, 0), ([], 9.0, 3)])
def test_an_unmeasured_regret_is_no_pass(tmp_path: Path, names: list[str], limit: float, code: int) -> None:
    stored(tmp_path, maps.record(dispatchers=names, regret={"p99": limit}))
    assert main.main(["map", "--profiles", str(tmp_path)]) == code


@pytest.mark.parametrize(("limit", "code"), [(1.05, 1), (9.0, 0)])
def test_the_gate_of_a_map_judges_its_regret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: float, code: int
) -> None:
    run = stored(tmp_path, maps.record(regret={"p99": limit}))
    assert main.main(["gate", run, "--profiles", str(tmp_path), "--format", "json"]) == code
    verdicts = {v["budget"]: v for v in json.loads(capsys.readouterr().out)["verdicts"]}
    assert verdicts["rows_regret_p99"]["status"] == ("fail" if code else "pass")
    assert main.main(["report", run, "--profiles", str(tmp_path), "--format", "md"]) == 0
    assert ("gate FAILED" in capsys.readouterr().out) is bool(code)


def test_a_point_that_a_variant_refuses_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = maps.record(regret={"p99": 9.0})
    plans = tuple(factory.plan("small", shape, error="rows are too long") for shape in record.suite.shapes)
    run = stored(tmp_path, replace(record, plans=plans))
    assert main.main(["gate", run, "--profiles", str(tmp_path)]) == 0, capsys.readouterr().out


def test_the_gate_of_one_shape_judges_the_regret_at_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = maps.record(regret={"p99": 9.0})
    run, shape = stored(tmp_path, record), next(iter(record.suite.shapes))
    assert main.main(["gate", run, "--profiles", str(tmp_path), "--shape", shape, "--format", "json"]) == 0
    (verdict,) = (v for v in json.loads(capsys.readouterr().out)["verdicts"] if v["fact"] == "regret")
    assert verdict["status"] == "pass" and "1 points, 0 more without a time" in verdict["reason"]


@pytest.mark.parametrize("limits", [{"p99": 9.0}, {}])
def test_a_map_without_times_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limits: dict[str, float]
) -> None:
    run = stored(tmp_path, maps.record(of=lambda p: {}, regret=limits))
    assert main.main(["map", "--profiles", str(tmp_path)]) == 3
    assert main.main(["map", "--profiles", str(tmp_path), "--dispatch"]) == 2
    assert "at least two points" in capsys.readouterr().err
    assert main.main(["gate", run, "--profiles", str(tmp_path)]) == (3 if limits else 0)
    assert main.main(["report", run, "--profiles", str(tmp_path), "--format", "md"]) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--points", "0"], "expected a map and a number above 0, found 'rows' and 0"),
        (["--points", "5", "--map", "lost"], "expected a map and a number above 0, found 'lost'"),
        (
            ["--points", "5", "--suite", "examples/tune"],
            r"map\.toml: expected the maps of the suite, found no ",
        ),
        (["--points", "1000000", "--map", "row"], r"'row' and 1000000\n  hint: .*: rows"),
        ([], "expected a recorded run"),
        (["--seed", "3"], "--map, --seed, --resume: expected --points"),
        (["--map", "rows"], "--map, --seed, --resume: expected --points"),
        (["--resume"], "--map, --seed, --resume: expected --points"),
    ],
)
def test_bad_input_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    words = words if "--suite" in words else [*words, "--suite", "examples/row_softmax"]
    assert main.main(["map", "--profiles", str(tmp_path), *words]) == 2
    assert re.search(text, capsys.readouterr().err)


def test_the_page_has_every_point_and_other_records_have_none() -> None:
    record = maps.record(40)
    made = page(book_of(record))
    assert made is not None
    points = made.view["drawn"]["points"]
    assert {p["name"] for p in points} == record.suite.shapes.keys()
    assert all(p["params"]["problem"] == "attention" and p["times"] and p["references"] for p in points)
    assert json.dumps(made.view["drawn"], allow_nan=False)
    assert page(book_of(factory.record())) is None
