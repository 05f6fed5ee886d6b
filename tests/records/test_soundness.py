"""What a record may say: every way found to have a wrong value, unit, name or subject read as a fact."""

from __future__ import annotations

import dataclasses
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import RecordError
from flashcore.model.record import Fact, Source, Subject
from flashcore.records import soundness, store
from tests import factory

RUN = "20260102T030405Z-0001"
BUDGET = dataclasses.asdict(factory.budget("registers", maximum=9))
WAIVER = dataclasses.asdict(factory.waiver("registers_limit", 200))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run of a few facts."""
    folder = tmp_path / RUN
    folder.mkdir()
    store.write(factory.bare_record(facts=factory.static_facts("fast"), samples={"fast/mission/cold": (1.5,)},
                                     outcomes=(factory.outcome("fast", "mission", "check"),)), folder)  # fmt: skip
    return folder


def change(folder: Path, file: str, edit: Callable[[Any], None]) -> None:
    """Edits a file of a run as an attacker would."""
    path = folder / file
    packed = file.endswith(".gz")
    data = json.loads(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    edit(data)
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    store.seal(folder)


def row(index: int, value: Any) -> Callable[[Any], None]:
    """Changes the first fact: registers of fast_kernel on sm_80."""
    return lambda data: data["facts"][0].__setitem__(index, value)


def subject(index: int, value: Any) -> Callable[[Any], None]:
    return lambda data: data["subjects"][0].__setitem__(index, value)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (row(2, float("nan")), "NaN is no measurement"),
        (row(2, float("-inf")), "Infinity is no measurement"),
        (row(2, [96]), "fact .?registers.? of .*expected a number of 1, found .96"),
        (row(2, {}), "fact registers"),
        (row(2, "96"), "fact .?registers.? of .*expected a number"),
        (row(2, -1), "fact .?registers.? of .*expected at least 0, found -1"),
        (row(2, 10**400), "fact .?registers.? of .*expected a finite number of 1, found a number of 1329 bits"),
        (row(2, 1e308), "fact .?registers.? of .*expected a finite number"),
        (row(3, "minute"), "fact .?registers.? of .*expected the unit 1, found 'minute'"),
        (row(3, None), "fact .?registers.? of .*expected the unit 1"),
        (row(1, "registres"), "'registres' of .*expected a name of the catalogue"),
        (row(1, 7), "fact 7"),
        (row(1, []), "expected rows of facts"),
        (row(5, 7_000), "expected rows of facts"),
        (row(5, []), "fact registers of .*expected a cause, or else a value"),
        (row(2, None), "fact registers of .*expected a cause, or else a value"),
        (subject(0, "nobody"), "fact registers of .*nobody.*expected a variant, shape and arch of the suite"),
        (subject(0, []), "expected rows of facts"),
        (subject(1, "sm_1"), "sm_1.*expected a variant, shape and arch of the suite"),
        (subject(2, "nowhere"), "nowhere.*expected a variant, shape and arch of the suite"),
        (subject(3, 7), "a kernel's name and a launch's number"),
        (subject(4, "first"), "a kernel's name and a launch's number"),
    ],
)
def test_what_is_no_fact_is_refused_by_name(run: Path, edit: Callable[[Any], None], said: str) -> None:  # item 7
    change(run, store.FACTS, edit)
    with pytest.raises(RecordError, match=said):
        store.read(run)


@pytest.mark.parametrize("series", [[1.5, "2"], [None], [[1.5]], [1e999], [10**400], [1.5, 0]])
def test_samples_are_numbers(run: Path, series: list[Any]) -> None:
    change(run, store.SAMPLES, lambda data: data.update({"fast/mission/cold": series}))
    with pytest.raises(RecordError, match="samples"):
        store.read(run)


def renamed(table: str, name: str) -> Callable[[Any], None]:
    def edit(data: Any) -> None:
        entry = data["suite"][table].pop(next(iter(data["suite"][table])))
        data["suite"][table][name] = {**entry, "name": name}

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d.update(id="../../elsewhere"), "id: expected one such as"),  # item 21: its report was written there
        (lambda d: d.update(id="/tmp/x"), "id: expected"),
        (renamed("variants", "../x"), "expected variants under their names"),
        (renamed("shapes", "a/b"), "expected shapes under their names"),
        (renamed("variants", "v" * 300), "expected variants under their names"),
        (lambda d: d["suite"].update(variants={}), "expected variants"),  # item 5
        (lambda d: d["suite"].update(shapes={}), "expected shapes"),
        (lambda d: d["plans"][0].update(variant="nobody"), "expected cases of the suite"),
        (
            lambda d: d["keys"].update({"nobody/mission": {"code": "", "closure": "", "nvcc": ""}}),
            "expected cases of the suite",
        ),
        (lambda d: d["outcomes"][0].update(shape="nowhere"), "expected cases of the suite's .* found '.*/nowhere'"),
        (lambda d: d["suite"]["variants"]["fast"].update(problem="other"), "expected variants and shapes of the probl"),
        (lambda d: d["suite"]["shapes"]["mission"].update(problem="other"), "expected variants and shapes of the prob"),
        (lambda d: d.update(suite=[]), "expected a run record"),
        (
            lambda d: d["suite"].update(budgets=[{**BUDGET, "fact": "registres"}]),
            "facts in the catalogue, found 'regis",
        ),
        (  # by its form it could be ncu's own, which no compiler gives
            lambda d: d["suite"].update(budgets=[{**BUDGET, "fact": "fast_kernel"}]),
            "budgets of the fact 'fast_kernel' to have its tier, counters, found 'static'",
        ),
        (lambda d: d["suite"].update(waivers=[{**WAIVER, "expires": "2026-02-30"}]), "expected a day such as"),
        (lambda d: d["outcomes"].append({**d["outcomes"][0], "status": "failed"}), "outcomes: expected one of each"),
        (lambda d: d.update(stale={"fast/mission": {"cause": "never_measured"}}), "and none of what is stale"),
        (lambda d: d.update(stale={"slow/long": {"cause": "hang", "seconds": 1}}), "expected a stale, found hang"),
        (lambda d: d["environment"].update(gpu_sm_clock_mhz=1e999), "is no measurement"),
    ],
)
def test_a_header_that_no_run_has_is_refused(run: Path, edit: Callable[[Any], None], said: str) -> None:
    change(run, store.HEADER, edit)
    with pytest.raises(RecordError, match=said):
        store.read(run)


@pytest.mark.parametrize("file", [store.HEADER, store.FACTS])
def test_deep_nesting_is_refused(run: Path, file: str) -> None:  # item 18
    text = b"[" * 100_000
    (run / file).write_bytes(gzip.compress(text) if file.endswith(".gz") else text)
    store.seal(run)
    with pytest.raises(RecordError, match="cannot be read"):
        store.read(run)


def test_samples_are_of_the_suites_cases(run: Path) -> None:
    change(run, store.SAMPLES, lambda data: data.update({"nobody/mission/isolated": [1.0]}))
    with pytest.raises(RecordError, match="expected cases of the suite's variants and shapes, found 'nobody/mission'"):
        store.read(run)


def test_a_record_need_not_name_its_host(run: Path) -> None:  # item 19
    change(run, store.HEADER, lambda data: data["environment"].update(host=None))
    assert store.read(run).environment.host is None


def test_fifty_thousand_facts_are_looked_at_in_seconds_of_processor() -> None:
    record = factory.large_record(2_500)
    assert len(record.facts) > 25_000
    started = time.process_time()
    assert not list(soundness.mistakes_in_facts(record, record.facts))
    assert time.process_time() - started < 2


def test_ncus_own_names_are_kept_in_ncus_own_units_and_nobody_elses() -> None:
    own = Fact(Subject("fast", shape="mission", kernel="k", launch=0), "lts__t_sectors.sum", 5, "sector", Source.NCU)
    record = factory.record()
    assert not list(soundness.mistakes_in_facts(record, [own]))
    other = dataclasses.replace(own, source=Source.PTXAS)
    assert "a name of the catalogue, or ncu's own" in next(iter(soundness.mistakes_in_facts(record, [other])))
    words = dataclasses.replace(own, name="not a name")
    assert list(soundness.mistakes_in_facts(record, [words]))
