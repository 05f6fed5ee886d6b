"""Whatever is read, it is read or refused: CSV of ncu, manifests, run records and journals, mutated without end.

Each starts from what is real and whole, is changed in one to four places (bytes, cells, keys, values of any kind) and
goes through its reader, and what reads goes on through what rests on it: facts, verdicts, bounds. Nothing but the
errors of ``errors.py`` may come out. `make test` runs a few examples of each, `make fuzz` 100,000 in all
(``FLASHCORE_FUZZ``), shared out by what an example costs.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import random
import shutil
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from flashcore.errors import FlashcoreError, ManifestError
from flashcore.explain import ladder, roofline
from flashcore.explain.compare_records import compare
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.gate import baseline, judge
from flashcore.gate.formats import FORMATS
from flashcore.gate.locate import Places
from flashcore.model.case import Case
from flashcore.model.causes import NOT_RUN, Hang
from flashcore.model.record import CaseSubject
from flashcore.readers.ncu import raw_page
from flashcore.records import store
from flashcore.runner import journal
from flashcore.runner.hung_variants import hung
from flashcore.stages.profile import ncu_facts
from flashcore.suites import load
from tests import factory
from tests.conftest import TESTS, TOY
from tests.recorded import RECORDED
from tests.support.fuzzing import SEEDS, VALUES, changed, fuzz, noised


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


# --- CSV of ncu -----------------------------------------------------------------------------------


@cache
def csv_rows(name: str) -> list[list[str]]:
    """A recorded table, of a few of its columns."""
    text = (RECORDED / name).read_bytes().decode()
    rows = [r for r in csv.reader(io.StringIO(text[text.index('"ID"') :])) if r]
    keep = [i for i, column in enumerate(rows[0]) if "__" not in column or i % 25 == 0]
    return [[r[i] for i in keep] for r in rows[:6]]


@fuzz(0.35)
@given(seed=SEEDS, values=VALUES)
def test_ncu_csv(seed: int, values: list[Any]) -> None:
    chance = random.Random(seed)
    rows: Any = csv_rows(chance.choice(["ncu_raw_domain.csv", "ncu_raw_multi_kernel.csv", "ncu_raw_samples.csv"]))
    by_cell = chance.random() < 0.7
    rows = changed(rows, values, chance) if by_cell else rows
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = row if isinstance(row, list) else [row]
        writer.writerow([str(c).replace("\0", "") for c in cells])
    text = out.getvalue()
    if not by_cell:
        text = noised(text.encode(errors="replace"), values, chance).decode(errors="replace")
    try:
        table = raw_page.parse(text)
        for name, launches in table.by_range().items():
            ncu_facts.facts_of(CaseSubject(Case("v", name)), launches, chip="gh100")
    except FlashcoreError:
        pass


# --- manifests ------------------------------------------------------------------------------------


def toml(data: Any) -> str:
    """A value as TOML; what TOML has not (null, numbers of any length) as another of its kind."""
    if isinstance(data, bool):
        return str(data).lower()
    if isinstance(data, int | float):
        return str(data) if abs(data) < 2**70 or data != data else "inf"
    if isinstance(data, list):
        return f"[{', '.join(map(toml, data))}]"
    if isinstance(data, dict):
        return "{ " + ", ".join(f"{toml(str(k))} = {toml(v)}" for k, v in data.items()) + " }"
    text = "null" if data is None else data.encode(errors="replace").decode()
    return json.dumps(text).replace("\x7f", "\\u007f")


@cache
def manifest(name: str) -> tuple[bytes, dict[str, Any]]:
    text = (TESTS / "suites" / name / "suite.toml").read_bytes()
    return text, tomllib.loads(text.decode())


@fuzz(0.25)
@given(seed=SEEDS, values=VALUES)
def test_manifest(folder: Path, seed: int, values: list[Any]) -> None:
    chance, mistakes = random.Random(seed), list[str]()
    suite = folder / "toy"
    if not suite.exists():
        shutil.copytree(TOY, suite, ignore=shutil.ignore_patterns("__pycache__"))
    text, whole = manifest(chance.choice(["toy", "planted"]))
    if chance.random() < 0.7:
        text = "\n".join(f"{toml(k)} = {toml(v)}" for k, v in changed(whole, values, chance).items()).encode()
    else:
        text = noised(text, values, chance)
    (suite / "suite.toml").write_bytes(text)
    try:
        loaded = load.load(suite)
    except ManifestError as error:
        mistakes = error.mistakes
    except FlashcoreError:
        return
    if mistakes:
        with contextlib.suppress(tomllib.TOMLDecodeError, UnicodeDecodeError):
            tomllib.loads(text.decode())
            assert [m for m in mistakes if ": expected " not in m] == []
        return
    try:
        load.select(loaded, ("*",))
    except FlashcoreError:
        return
    judged(factory.bare_record(loaded), chance)


# --- run records ----------------------------------------------------------------------------------


@cache
def record_files() -> dict[str, Any]:
    """A small whole run: what each of its files says."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        suite = factory.suite()
        budgets = [factory.budget("registers", maximum=128), factory.goal("tensor_active", minimum=60)]
        waivers = [factory.waiver(budgets[0].name, 140)]
        record = factory.record(factory.suite(budgets=tuple(budgets), waivers=tuple(waivers)) if suite else None)
        store.write(record, run)
        return {
            p.name: json.loads(gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes())
            for p in sorted(run.iterdir())
            if p.name != store.SUMS
        }


def judged(record: Any, chance: random.Random) -> None:
    """Uses a readable record: every use succeeds or raises a FlashcoreError."""
    results: list[Callable[[], Any]] = [
        lambda: judge.judge(record, require="timing"),
        lambda: list(roofline.case_bounds(record)),
        lambda: baseline.save(record, None),
        lambda: [ladder.ladder(Row(Readings(record), [shape])) for shape in record.suite.shapes.values()],
        lambda: compare(record, record),
        lambda: FORMATS[chance.choice(sorted(FORMATS))](judge.judge(record), record, Places(record, Path())),
    ]
    for call in chance.sample(results, 2):
        with contextlib.suppress(FlashcoreError):
            call()


@fuzz(0.05)
@given(seed=SEEDS, values=VALUES)
def test_record(folder: Path, seed: int, values: list[Any]) -> None:
    chance = random.Random(seed)
    files = record_files()
    run = folder / "20260102T030405Z-0001"
    run.mkdir(exist_ok=True)
    victim = chance.choice(sorted(files))
    for name, data in files.items():
        if name == victim and chance.random() < 0.8:
            data = changed(data, values, chance)
        text = json.dumps(data).encode()
        packed = gzip.compress(text, compresslevel=1, mtime=0) if name.endswith(".gz") else text
        if name == victim and chance.random() < 0.2:
            packed = noised(packed, values, chance)
        (run / name).write_bytes(packed)
    store.seal(run)
    try:
        record = store.read(run)
    except FlashcoreError:
        return
    judged(record, chance)


# --- journals -------------------------------------------------------------------------------------

LINES: list[dict[str, Any]] = [
    json.loads(journal.encode(message))
    for message in (
        journal.Started(7),
        journal.Begun("a/s", 1.0),
        journal.Reached("a/s", journal.TaskStep("seed 0")),
        journal.TaskResult("a/s", "ok", None, {"x": 1.5}, 0.5),
        journal.Begun("b/s", 2.0),
        journal.TaskResult("b/s", "failed", Hang(5.0), None, 5.0, journal.TaskStep("s", "b")),
        journal.TaskResult("b/t", "skipped", NOT_RUN()),
    )
]


@fuzz(0.35)
@given(seed=SEEDS, values=VALUES)
def test_journal(folder: Path, seed: int, values: list[Any]) -> None:
    chance = random.Random(seed)
    lines = changed(LINES, values, chance) if chance.random() < 0.7 else LINES
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    text = text if lines is not LINES else noised(text, values, chance)
    place = folder / "journals"
    place.mkdir(exist_ok=True)
    (place / "journal-001.jsonl").write_bytes(text)
    answers = journal.answers(place)
    hung(answers.values())
    for name, answer in answers.items():
        assert isinstance(name, str) and answer.status in ("ok", "failed", "skipped") and answer.seconds > -1e16
        assert answer.data is None or isinstance(answer.data, dict)
