"""What a record may say: an edited one is refused, whatever was edited, and no wrong value, unit, name or subject is
read as a fact."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit, RecordError
from flashcore.model import intervals
from flashcore.model.case import Case
from flashcore.model.causes import OverReference
from flashcore.model.record import CaseSubject, Fact, Facts, Source
from flashcore.records import soundness, store
from flashcore.report.variant_page import VariantView
from tests import conftest, factory
from tests.conftest import Change, latest
from tests.support.judged import book_of

RUN = "20260102T030405Z-0001"
BUDGET = dataclasses.asdict(factory.budget("registers", maximum=9))
WAIVER = dataclasses.asdict(factory.waiver("registers_limit", 200))
Edit = Callable[[Any], object] | Change
FAST = {"variant": "fast", "shape": "mission"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run of one shape, with rates of `fast`; its first fact is the registers of slow_kernel on sm_80."""
    made = factory.record(factory.suite(shapes=[factory.shape()]))
    samples = {k: tuple(round(x, 4) for x in v) for k, v in made.samples.items()}
    series = {v: samples[Case(v, "mission"), "isolated"] for v in ("slow", "fast", "cudnn")}
    flop = next(f.number for f in made.facts.named("formula_flop") if f.subject.case == Case("fast", "mission"))
    rates = {"tflops": intervals.tflops(flop or 0.0, series["fast"])}
    for name, other in (("speedup_vs_baseline", "slow"), ("speedup_vs_reference", "cudnn")):
        value = intervals.speedup(series[other], series["fast"])
        rates |= {name: value, f"{name}_low": 0.9 * value, f"{name}_high": 1.1 * value}
    basis = OverReference("slow", "isolated", 30)
    facts = [factory.fact(n, v, "fast", shape="mission", detail=basis) for n, v in rates.items()]
    folder = store.begin(tmp_path, RUN)
    store.write(dataclasses.replace(made, facts=Facts([*made.facts, *facts])), folder)
    return store.complete(folder)


def edit(folder: Path, file: str, change: Edit) -> None:
    """Edits a file of a run by hand."""
    path = folder / file
    packed = file.endswith(".gz")
    data = json.loads(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    change(data) if callable(change) else conftest.change(data, change)
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if packed else text)


def refused(folder: Path, file: str, change: Edit, message: str) -> None:
    """Edits it as an attacker would, who writes new hashes too."""
    edit(folder, file, change)
    store.seal(folder)
    with pytest.raises(RecordError, match=message):
        store.read(folder)


# --- files that are not as they were written ----------------------------------------------------


def scaled(fact: str, factor: float) -> Edit:
    """Scales each value of a fact."""

    def change(data: Any) -> None:
        rows = [row for row in data["facts"] if row[1] == fact and row[2] is not None]
        assert rows
        for row in rows:
            row[2] = type(row[2])(row[2] * factor)

    return change


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (store.FACTS, scaled("registers", 0.9)),
        (store.SAMPLES, lambda data: data[0].append(data[0].pop()[1:])),
        (store.HEADER, {"environment.gpu": "NVIDIA B200"}),
        (store.HEADER, {"reads": {}}),
    ],
)
def test_an_altered_file_is_refused(run: Path, file: str, change: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    main(["gate", str(run)])
    assert f"run {RUN}: intact" in capsys.readouterr().out
    edit(run, file, change)
    with pytest.raises(RecordError, match=f"with the hashes in SHA256SUMS, found altered: {file}"):
        store.read(run)
    assert main(["gate", str(run)]) == Exit.USAGE


def test_hashes_can_be_checked_without_flashcore_and_not_left_out(run: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", store.SUMS], cwd=run, check=True)
    (run / store.SUMS).unlink()
    with pytest.raises(RecordError, match="expected the files' hashes in SHA256SUMS, found none"):
        store.read(run)


@pytest.mark.parametrize("name", [store.LISTINGS, store.FACTS])
def test_a_file_that_was_added_or_removed_is_refused(run: Path, name: str) -> None:
    if (run / name).exists():
        (run / name).unlink()
    else:
        shutil.copy(run / store.FACTS, run / name)
    with pytest.raises(RecordError, match=f"found altered: {name}"):
        store.read(run)


def test_a_folder_with_the_id_of_a_newer_run_is_refused(run: Path) -> None:
    newer = run.rename(run.with_name("20260203T030405Z-0001"))
    with pytest.raises(RecordError, match=f"id: expected {newer.name}, the folder's name, found {RUN}"):
        store.read(newer)


def test_a_date_in_the_future_is_refused_and_is_not_the_newest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = run.with_name("20990102T030405Z-0001")
    shutil.copytree(run, later)
    dates = {"id": later.name, "created": "2099-01-02T03:04:05Z"}
    refused(later, store.HEADER, dates, f"id: expected no time in the future, found {later.name}")
    newest = latest(run.parent, "attention")
    assert newest is not None and newest.id == RUN
    assert "no time in the future" in capsys.readouterr().err


# --- facts and samples --------------------------------------------------------------------------


def again(fact: str, factor: float) -> Edit:
    """Adds another value of a fact's first subject, before or after the recorded one."""

    def change(data: Any) -> None:
        at, row = next((i, row) for i, row in enumerate(data["facts"]) if row[1] == fact)
        changed = [*row[:2], type(row[2])(row[2] * factor), *row[3:]]
        data["facts"].insert(at if factor < 1 else len(data["facts"]), changed)

    return change


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("fact", ["registers", "isolated_p90", "max_error", "spill_instructions"])
def test_two_values_of_one_fact_are_refused(run: Path, fact: str, factor: float) -> None:
    refused(run, store.FACTS, again(fact, factor), f"fact '{fact}' of .*: expected one value, found two")


@pytest.mark.parametrize("status", ["", "failed", "skipped"])
def test_samples_without_a_bench_that_took_them_are_refused(run: Path, status: str) -> None:
    def change(data: Any) -> None:
        (bench,) = (o for o in data["outcomes"] if (o["variant"], o["stage"]) == ("cudnn", "bench"))
        bench |= {"status": status, "cause": {"cause": "hang", "seconds": 1}}
        data["outcomes"] = [o for o in data["outcomes"] if o["status"]]

    message = (
        "samples of 'cudnn/mission/isolated': expected the outcome of a bench that timed cudnn/mission, found none"
    )
    refused(run, store.HEADER, change, message)


def row(index: int, value: Any) -> Edit:
    """Changes the first fact."""
    return {f"facts.0.{index}": value}


def subject(index: int, value: Any) -> Edit:
    """Changes the first fact's subject, which is code: its kind, variant, arch or kernel."""
    return {f"subjects.0.{index}": value}


def of_case(*fields: Any) -> Edit:
    """The first fact is about a case."""
    return {"subjects.0": ["case", *fields]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (row(2, float("nan")), "expected a finite number, found NaN"),
        (row(2, float("-inf")), "expected a finite number, found -Infinity"),
        (row(2, [96]), "fact .?registers.? of .*expected a number of 1, found .96"),
        (row(2, {}), "fact registers"),
        (row(2, "96"), "fact .?registers.? of .*expected a number"),
        (row(2, -1), "fact .?registers.? of .*expected at least 0, found -1"),
        (row(2, 10**400), "fact .?registers.? of .*expected a finite number of 1, found a 1329-bit integer"),
        (row(2, 1e308), "fact .?registers.? of .*expected a finite number"),
        (row(3, "minute"), "fact .?registers.? of .*expected the unit 1, found 'minute'"),
        (row(3, None), "fact .?registers.? of .*expected the unit 1"),
        (row(1, "Registers"), "'Registers' of .*expected a name from the catalogue"),
        (row(1, 7), "fact 7"),
        (row(1, []), "expected rows of facts"),
        (row(5, 7_000), "expected rows of facts"),
        (row(5, []), "fact registers of .*expected either a value or a cause"),
        (row(2, None), "fact registers of .*expected either a value or a cause"),
        (subject(0, "nothing"), "expected rows of facts"),
        (subject(1, "nobody"), "fact registers of .*nobody.*expected a variant, shape and arch of the suite"),
        (subject(1, []), "expected rows of facts"),
        (subject(2, "sm_1"), "sm_1.*expected a variant, shape and arch of the suite"),
        (subject(3, 7), "a kernel's name and a launch's number"),
        (of_case("slow", "nowhere"), "nowhere.*expected a variant, shape and arch of the suite"),
        (of_case("slow", "mission", "slow_kernel", "first"), "a kernel's name and a launch's number"),
    ],
)
def test_what_is_no_fact_is_refused_by_name(run: Path, change: Edit, message: str) -> None:  # item 7
    refused(run, store.FACTS, change, message)


@pytest.mark.parametrize("series", [[1.5, "2"], [None], [[1.5]], [1e999], [10**400], [1.5, 0]])
def test_samples_are_numbers(run: Path, series: list[Any]) -> None:
    def change(data: Any) -> None:
        next(row for row in data if row[:3] == ["fast", "mission", "cold"])[3] = series

    refused(run, store.SAMPLES, change, "samples")


def test_samples_are_of_the_suites_cases(run: Path) -> None:
    message = "expected cases of the suite's variants and shapes, found 'nobody/mission'"
    refused(run, store.SAMPLES, lambda data: data.append(["nobody", "mission", "isolated", [1.0]]), message)


def test_facts_of_an_extension_that_is_not_installed_are_kept_and_shown(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(data: Any) -> None:
        at = data["subjects"].index(["case", "fast", "mission"])
        data["facts"] += [[at, name, 1.25, "furlong", source, ""] for name, source in
                          (("wobble", "events"), ("wobble_total", "nvml"), ("wobble_share", "ncu"))]  # fmt: skip

    edit(run, store.FACTS, add)
    store.seal(run)
    record = store.read(run)
    fact = record.facts.get("wobble", CaseSubject(Case("fast", "mission")))
    assert fact is not None and (fact.value, fact.unit) == (1.25, "furlong")
    view = VariantView(book_of(record), record.suite.variants["fast"])
    shown = {row[0].text: (row[1].text, row[1].unit) for row in view.counters.groups["other"]}
    assert shown == dict.fromkeys(("wobble", "wobble_total", "wobble_share"), ("1.250", "furlong"))
    folder = run.parent
    for words in (
        ["gate", RUN], ["report", RUN, "-o", f"{folder}/pages"], ["report", RUN, "--format", "md"], ["explain", RUN],
        ["compare", RUN, RUN], ["compare", RUN, RUN, "-o", f"{folder}/sides"],
    ):  # fmt: skip
        assert main([*words, "--profiles", str(folder)]) in (Exit.OK, Exit.FAILED), capsys.readouterr().err


# --- headers ------------------------------------------------------------------------------------


def renamed(table: str, name: str) -> Edit:
    def change(data: Any) -> None:
        entry = data["suite"][table].pop(next(iter(data["suite"][table])))
        data["suite"][table][name] = {**entry, "name": name}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "../../elsewhere"}, "id: expected an id such as"),  # item 21: its report was written there
        ({"id": "/tmp/x"}, "id: expected"),
        ({"id": "20261302T030405Z-0001"}, "id: expected an id such as"),
        ({"id": "20260230T030405Z-0001"}, "id: expected an id such as"),
        *(
            ({"created": at}, "created: expected 2026-01-02T03:04:05Z, as in its id, found")
            for at in ("2026-01-02T03:04:06Z", "2025-01-02T03:04:05Z", "", 7, None)
        ),
        (renamed("variants", "../x"), "expected variants under their names"),
        (renamed("shapes", "a/b"), "expected shapes under their names"),
        (renamed("variants", "v" * 300), "expected variants under their names"),
        ({"suite.variants": {}}, "expected variants"),  # item 5
        ({"suite.shapes": {}}, "expected shapes"),
        ({"plans.0.variant": "nobody"}, "expected cases of the suite"),
        ({"keys.0.0.variant": "nobody"}, "expected cases of the suite"),
        ({"keys.0.0.build": "before"}, "expected a run record"),
        ({"keys": {"fast/mission": {}}}, "expected a run record"),
        ({"outcomes.0.shape": "nowhere"}, "expected cases of the suite's .* found '.*/nowhere'"),
        ({"suite.variants.fast.problem": "other"}, "expected variants and shapes of the probl"),
        ({"suite.shapes.mission.problem": "other"}, "expected variants and shapes of the prob"),
        ({"suite": []}, "expected a run record"),
        ({"suite.budgets": [{**BUDGET, "fact": "registres"}]}, "facts in the catalogue, found 'regis"),
        (  # by its form it could be ncu's own, which no compiler gives
            {"suite.budgets": [{**BUDGET, "fact": "fast_kernel"}]},
            "budgets of the fact 'fast_kernel' to have its tier, counters, found 'static'",
        ),
        ({"suite.waivers": [{**WAIVER, "expires": "2026-02-30"}]}, "expected a day such as"),
        (lambda d: d["outcomes"].append({**d["outcomes"][0], "status": "failed"}), "outcomes: expected one of each"),
        ({"stale": [[FAST, {"cause": "never_measured"}]]}, "and none of what is stale"),
        ({"stale": [[FAST, {"cause": "first_round"}]]}, "expected a cause, found first_round"),
        ({"environment.gpu_sm_clock_mhz": 1e999}, "expected a finite number"),
    ],
)
def test_a_header_that_no_run_has_is_refused(run: Path, change: Edit, message: str) -> None:
    refused(run, store.HEADER, change, message)


@pytest.mark.parametrize("file", [store.HEADER, store.FACTS])
def test_deep_nesting_is_refused(run: Path, file: str) -> None:  # item 18
    text = b"[" * 100_000
    (run / file).write_bytes(gzip.compress(text) if file.endswith(".gz") else text)
    store.seal(run)
    with pytest.raises(RecordError, match="cannot be read"):
        store.read(run)


def test_a_record_need_not_name_its_host(run: Path) -> None:  # item 19
    edit(run, store.HEADER, {"environment.host": None})
    store.seal(run)
    assert store.read(run).environment.host is None


# --- any facts ----------------------------------------------------------------------------------


def test_fifty_thousand_facts_are_looked_at_in_seconds_of_processor() -> None:
    record = factory.large_record(2_500)
    assert len(record.facts) > 25_000
    started = time.process_time()
    assert not list(soundness.mistakes_in_facts(record, record.facts))
    assert time.process_time() - started < 2


def test_ncus_own_names_are_kept_in_ncus_own_units_and_nobody_elses() -> None:
    ncu_fact = Fact(
        CaseSubject(Case("fast", "mission"), kernel="k", launch=0), "lts__t_sectors.sum", 5, "sector", Source.NCU
    )
    record = factory.record()
    assert not list(soundness.mistakes_in_facts(record, [ncu_fact]))
    other = dataclasses.replace(ncu_fact, source=Source.PTXAS)
    assert "a name from the catalogue, or an ncu metric" in next(iter(soundness.mistakes_in_facts(record, [other])))
    words = dataclasses.replace(ncu_fact, name="not a name")
    assert list(soundness.mistakes_in_facts(record, [words]))
