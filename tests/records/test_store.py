"""Run records: what is written is read back; what is damaged, foreign or cut short is refused with a reason."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import math
import resource
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashcore.errors import FlashcoreError, RecordError
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS as CATALOGUE
from flashcore.model.cause import Unknown
from flashcore.model.causes import MESSAGE
from flashcore.model.record import (
    SCHEMA_VERSION,
    CaseSubject,
    CodeSubject,
    Fact,
    Facts,
    Record,
    Source,
)
from flashcore.records import lookup, soundness, store
from tests import factory
from tests.conftest import ROOT
from tests.support.stored import change_header, full, whole

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run."""
    folder = store.begin(tmp_path, "20260102T030405Z-0001")
    store.write(full(), folder)
    return store.complete(folder)


# --- there and back -----------------------------------------------------------------------------


def test_a_record_is_read_back_as_it_was(run: Path) -> None:
    expected, result = full(), store.read(run)
    assert list(result.facts) == list(expected.facts)
    for field in dataclasses.fields(Record):
        if field.name not in ("facts", "raw_samples", "listings"):
            assert getattr(result, field.name) == getattr(expected, field.name), field.name
    assert tuple(result.listings) == expected.listings
    assert result.raw_samples.keys() == expected.raw_samples.keys()
    for name, series in expected.raw_samples.items():
        assert result.raw_samples[name] == pytest.approx(series, abs=1e-4)


def test_the_same_record_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    other = store.begin(tmp_path, "20260102T030405Z-0002")
    store.write(store.read(run), other)
    for name in (store.HEADER, store.FACTS, store.SAMPLES, store.LISTINGS):
        assert (other / name).read_bytes() == (run / name).read_bytes(), name


VARIANTS, KERNELS = st.sampled_from(["slow", "fast", "split"]), st.none() | st.text(max_size=8)
SUBJECTS = st.builds(CodeSubject, VARIANTS, st.sampled_from(factory.ARCHS), KERNELS) | st.builds(
    CaseSubject,
    st.builds(Case, VARIANTS, st.sampled_from(["mission", "long"])),
    KERNELS,
    st.none() | st.integers(0, 40),
    st.none() | st.sampled_from(factory.ARCHS),
)
VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
SOURCES = [s for s in Source if s is not Source.EVENTS]  # facts of events must follow from a record's samples
FACTS = st.lists(
    st.builds(
        lambda subject, name, value, source, remark: Fact(
            subject, name, value, CATALOGUE[name].unit, source, MESSAGE(remark) if value is None else remark
        ),
        SUBJECTS, st.sampled_from(list(CATALOGUE)), VALUES, st.sampled_from(SOURCES), st.text(max_size=8),
    ), max_size=6, unique_by=lambda fact: (fact.subject, fact.name),
)  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(facts=FACTS)
def test_any_fact_is_read_back_or_unmeasured(tmp_path: Path, facts: list[Fact]) -> None:
    store.write(factory.bare_record(facts=facts), tmp_path)
    for before, after in zip(facts, store.read(tmp_path).facts, strict=True):
        if soundness.complaint(before.value, before.unit):
            assert after.value is None and "expected" in after.note
        else:
            assert after == before and type(after.value) is type(before.value)


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SCHEMA_VERSION + 1, f"found the newer version {SCHEMA_VERSION + 1}\n  hint: update flashcore"),
        (0, "found the older version 0\n  hint: record the run again"),
        ("one", "found 'one'"),
        (None, "found None"),
        ([1], r"found \[1\]"),
    ],
)
def test_another_schema_is_refused(run: Path, schema: object, message: str) -> None:
    change_header(run, schema_version=schema)
    with pytest.raises(RecordError, match=f"expected schema version {SCHEMA_VERSION}, {message}"):
        store.read(run)


def test_another_schema_is_refused_whatever_else_it_holds(run: Path) -> None:
    (run / store.HEADER).write_text(f'{{"schema_version": {SCHEMA_VERSION + 1}, "other": 1}}', encoding="utf-8")
    with pytest.raises(RecordError, match="newer"):
        store.read(run)


@pytest.mark.parametrize("name", [store.HEADER, store.FACTS, store.SAMPLES, store.LISTINGS])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_a_file_cut_short_is_refused(run: Path, name: str, part: float) -> None:
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[: int(len(data) * part)])
    with pytest.raises(RecordError, match=name):
        whole(run)


@pytest.mark.parametrize("name", [store.HEADER, store.FACTS, store.SAMPLES])
def test_a_missing_file_is_refused(run: Path, name: str) -> None:
    (run / name).unlink()
    store.seal(run)
    with pytest.raises(RecordError, match=rf"{name}: expected .*, found no such file"):
        store.read(run)


@pytest.mark.parametrize("name", [store.FACTS, store.SAMPLES, store.LISTINGS])
@pytest.mark.parametrize("at", [0, 9, 12, 60, -6])
def test_a_flipped_byte_is_refused(run: Path, name: str, at: int) -> None:
    data = bytearray((run / name).read_bytes())
    data[at] ^= 0xFF
    (run / name).write_bytes(bytes(data))
    with pytest.raises(RecordError, match=name):
        whole(run)
    store.seal(run)
    if at == 9:  # gzip's note of the operating system: nobody reads it
        whole(run)
        return
    with pytest.raises(RecordError, match=name):
        whole(run)


ONE = {"subjects": [["code", "v"]]}
LINES = {"lines": [["a", 1, ""]], "names": []}


@pytest.mark.parametrize(
    ("name", "message", "contents"),
    [
        (store.FACTS, "expected rows of facts", [
            [], {}, 7, {"subjects": [], "facts": [[0, "a", 1, "1", "ptxas", ""]]}, {"subjects": [[1, 2]], "facts": [1]},
            {**ONE, "facts": [[0, "a", 1, "1", "hearsay", ""]]}, {**ONE, "facts": [[0, "a"]]},
            *({"subjects": [s], "details": [], "facts": []} for s in (["code", []], ["v"], ["code", "v", "a", "k", 1])),
        ]),
        (store.SAMPLES, "expected rows of samples", [
            7, {"v": 7}, *([["v", *rest]] for rest in (["s", "cold"], ["s", "cold", 7], [[], "cold", []])),
            2 * [["v", "s", "cold", []]],
        ]),
        (store.LISTINGS, "expected instructions by kernel", [
            [], 7, {**LINES, "lines": [], "kernels": [["v", "s", "k", [[0, "EXIT", 0, []]]]]},
            {**LINES, "kernels": [["v", "s", "k", [[0, "EXIT", 0, [0, 1]]]]]},
            {**LINES, "names": ["samples"], "kernels": [["v", "s", "k", [[0, "EXIT", 0, [0]]]]]},
        ]),
    ],
)  # fmt: skip
def test_contents_of_another_form_are_refused(run: Path, name: str, message: str, contents: list[object]) -> None:
    for content in contents:
        (run / name).write_bytes(gzip.compress(json.dumps(content).encode()))
        store.seal(run)
        with pytest.raises(RecordError, match=message):
            whole(run)


def test_listings_are_not_read_before_somebody_looks(run: Path) -> None:
    (run / store.LISTINGS).write_bytes(b"no listings")
    store.seal(run)
    record = store.read(run)
    assert record.facts
    with pytest.raises(RecordError, match="listings"):
        list(record.listings)


def test_facts_of_an_opened_run_are_not_read_before_somebody_looks(run: Path) -> None:
    (run / store.FACTS).write_bytes(b"no facts")
    store.seal(run)
    record = store.opened(run)
    assert record.outcomes
    for _ in range(2):
        with pytest.raises(RecordError, match=f"{store.FACTS}: cannot be read"):
            list(record.facts)


def test_a_run_without_listings_is_read(run: Path) -> None:
    (run / store.LISTINGS).unlink()
    store.seal(run)
    assert tuple(store.read(run).listings) == ()


@pytest.mark.parametrize("content", ["[]", "7", "null", '"x"'])
def test_a_header_of_another_form_is_refused(run: Path, content: str) -> None:
    (run / store.HEADER).write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match="schema version"):
        store.read(run)


def test_a_header_with_wrong_fields_names_them(run: Path) -> None:
    change_header(run, suite=7, surprise=1)
    with pytest.raises(RecordError) as caught:
        store.read(run)
    assert "suite" in str(caught.value) and "surprise" in str(caught.value)


# --- ids and folders ----------------------------------------------------------------------------


def test_ids_sort_by_time() -> None:
    start = datetime.datetime(2026, 9, 30, 23, 59, 58, tzinfo=datetime.UTC)
    ids = [store.new_id(start + datetime.timedelta(seconds=s)) for s in (0, 1, 2, 86_400, 10_000_000)]
    assert ids == sorted(ids)
    assert all(store.RUN_ID.fullmatch(i) for i in ids)
    assert ids[0].startswith("20260930T235958Z-")


def test_ids_of_one_second_sort_by_time_too() -> None:
    start = datetime.datetime(2026, 9, 30, 23, 59, 58, tzinfo=datetime.UTC)
    ids = [store.new_id(start + datetime.timedelta(microseconds=us)) for us in range(0, 1_000_000, 49_999)]
    assert ids == sorted(set(ids)) and ids[0].endswith("-0000") and ids[-1].endswith("-fffe")
    ids = [store.new_id() for _ in range(50)]
    assert ids == sorted(set(ids))


def test_a_run_is_not_there_before_it_is_complete(tmp_path: Path) -> None:
    folder = store.begin(tmp_path, "20260102T030405Z-0001")
    store.write(factory.bare_record(), folder)
    assert lookup.runs(tmp_path) == []
    assert store.complete(folder).name == "20260102T030405Z-0001"
    assert len(lookup.runs(tmp_path)) == 1


# --- several at once, and no room ---------------------------------------------------------------

WRITE = """
import sys
from pathlib import Path
from flashcore.records import lookup, soundness, store
from tests import factory
folder = store.begin(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else store.new_id())
store.write(factory.record(id=folder.name.removesuffix(store.PARTIAL)), folder)
print(store.complete(folder).name)
"""


def writer(*words: str, **more: Any) -> subprocess.Popen[str]:
    """A process that records a run."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, *words], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


def test_two_writers_at_once(tmp_path: Path) -> None:
    both = [writer(str(tmp_path)) for _ in range(2)]
    names = [p.communicate(timeout=60)[0].strip() for p in both]
    assert sorted(names) == sorted(p.name for p in lookup.runs(tmp_path))
    assert len(set(names)) == 2
    assert all(store.read(p).id == p.name for p in lookup.runs(tmp_path))


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from flashcore.records.store import write_atomically\n"
        "for _ in range(200): write_atomically(Path(sys.argv[1]), sys.argv[2].encode() * 10000)"
    )
    path = tmp_path / "file"
    both = [subprocess.Popen([sys.executable, "-c", code, str(path), letter], cwd=ROOT) for letter in "ab"]
    seen = set()
    while any(p.poll() is None for p in both):
        if not path.exists():
            time.sleep(0.001)  # they are still starting
        else:
            data = path.read_bytes()
            assert len(data) == 10_000
            seen.add(data[:1])
            assert len(set(data)) == 1
    assert [p.returncode for p in both] == [0, 0]
    assert seen
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("limit", [100, 2000])
def test_a_full_disk_keeps_what_was_measured_and_says_so(tmp_path: Path, limit: int) -> None:
    name = "20260102T030405Z-0001"
    process = writer(str(tmp_path), name, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"{name}.partial" in error and "cannot write: File too large" in error
    assert "measurements are kept: continue with --resume" in error
    (folder,) = lookup.unfinished(tmp_path)
    assert not [p.name for p in folder.iterdir() if p.name.endswith(".tmp")]
    assert lookup.runs(tmp_path) == []


def test_a_file_in_the_way_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("", encoding="utf-8")
    with pytest.raises(FlashcoreError, match=r"cannot write: .*\n  hint"):
        store.begin(tmp_path / "profiles", "20260102T030405Z-0001")


def test_facts_are_found_by_name_and_subject() -> None:
    subject = CodeSubject("v", "sm_90a", kernel="k")
    facts = Facts([Fact(subject, "registers", 1, "1", Source.CUBIN), Fact(subject, "registers", 2, "1", Source.CUBIN)])
    assert facts.number("registers", subject) == 2  # the later one
    assert facts.number("registers", CodeSubject("w")) is None
    assert len(facts) == 2


def test_a_run_holds_no_number_that_json_lacks(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        store.write(factory.bare_record(command=math.inf), tmp_path)


def timed(us: float) -> Record:
    samples = {(Case("fast", "mission"), "isolated"): (1.0, us)}
    return factory.bare_record(outcomes=(factory.outcome("fast", "mission", "bench"),), raw_samples=samples)


@pytest.mark.parametrize("us", [5e-324, 3.1e-5, 0.99999, 12.3456, 98765.4321, 1e30])
def test_a_time_of_any_size_is_read_back(us: float, tmp_path: Path) -> None:
    store.write(timed(us), tmp_path)
    assert store.read(tmp_path).raw_samples == timed(us).raw_samples


@pytest.mark.parametrize("us", [0.0, -1.0, 1e31, math.inf, math.nan])
def test_what_could_not_be_read_back_is_not_written(us: float, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="expected times in µs, above 0"):
        store.write(timed(us), tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("run", lookup.all_runs(ROOT / "profiles"), ids=lambda run: run.name)
def test_published_runs_are_read(run: Traversable) -> None:
    record = store.read(run)
    assert record.facts and not [f for f in record.facts if isinstance(f.detail, Unknown)]


def test_logs_are_one_archive_and_what_lies_deeper_is_compressed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ptxas info")
    artifacts = [replace(factory.artifact(name, "sm_80"), log=str(log)) for name in "ba"]
    kept = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        (folder / "check").mkdir(parents=True)
        for name in ("run.json", "check/journal.jsonl", "check/report.ncu-rep", "check/x.gz"):
            (folder / name).write_text(name)
        store.keep(folder, [*artifacts, factory.artifact("c", "sm_80")])
        names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        assert names == {store.LOGS, "run.json", "check/journal.jsonl.gz", "check/report.ncu-rep", "check/x.gz"}
        packed = (folder / "check" / "journal.jsonl.gz").read_bytes()
        assert gzip.decompress(packed) == b"check/journal.jsonl"
        kept.append(((folder / store.LOGS).read_bytes(), packed))
    assert kept[0] == kept[1]
    with zipfile.ZipFile(tmp_path / "one" / store.LOGS) as archive:
        assert archive.namelist() == ["a-sm_80.log", "b-sm_80.log"] and archive.read("a-sm_80.log") == b"ptxas info"
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_DEFLATED}


def test_without_logs_there_is_no_archive(tmp_path: Path) -> None:
    store.keep(tmp_path, [factory.artifact("c", "sm_80")])
    assert [*tmp_path.iterdir()] == []
