"""The index of recorded runs: an SQLite file beside them, which is read from the runs again whenever it is missing.

Runs do not change, so only names that are new or gone since the last query are read or dropped. Facts are about a whole
case (static ones: about a variant, the largest of its kernels), and only those that the run itself measured: joined
ones are in their own run. The fact ``time`` is the median of the timing mode that the shape is ranked by.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flashcore.errors import RecordError, UsageError
from flashcore.model.case import Case
from flashcore.model.record import Record
from flashcore.model.suite import Stage
from flashcore.records import lookup, store
from flashcore.records.freshness import MEASURED
from flashcore.records.store import HEADER, RUN_ID

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

NAME = "index.sqlite"
_VERSION = 7  # of the tables: another one is read again
_TABLES = """
CREATE TABLE runs (key INTEGER PRIMARY KEY, folder TEXT, name TEXT, id TEXT, created TEXT, suite TEXT, gpu TEXT,
  variants INT, checked INT, timed INT, profiled INT, command TEXT, place TEXT, host TEXT, uuid TEXT, driver TEXT,
  limits TEXT, nvcc TEXT, "commit" TEXT, dirty BOOL, UNIQUE (folder, name));
CREATE TABLE cases (key INTEGER PRIMARY KEY, variant TEXT, shape TEXT, UNIQUE (variant, shape));
CREATE TABLE names (key INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE code (run INT, "case" INT, code TEXT, reference BOOL, params TEXT, mode TEXT, uuid TEXT,
  PRIMARY KEY (run, "case"))
  WITHOUT ROWID;
CREATE TABLE facts ("case" INT, name INT, run INT, value REAL, PRIMARY KEY ("case", name, run)) WITHOUT ROWID;
"""
sqlite3.register_converter("BOOL", b"1".__eq__)
#: The key of a fact's name, which is a parameter.
_KEY = "(SELECT key FROM names WHERE name = ?{fact})"


class RunSummary(NamedTuple):
    """A recorded run.

    Args:
        created: its date and time in UTC, ISO 8601.
        dirty: whether the tree differed from ``commit``.
        gpu: the GPU that measured; ``None`` if there was none.
        variants: how many variants it built or measured.
        checked, timed, profiled: how many cases have a result of this stage.
        command: the command line that recorded it.
        place: its folder or packed file.
    """

    id: str
    created: str
    suite: str
    commit: str | None
    dirty: bool | None
    gpu: str | None
    variants: int
    checked: int
    timed: int
    profiled: int
    command: str
    place: str


class TimePoint(NamedTuple):
    """One fact of one case in one run. ``code`` is the hash of the machine code with its launches, or of a reference's
    file; ``clock`` in MHz and ``temperature`` in °C were measured while the case was timed; ``limits`` are power and
    clocks of the GPU; ``dirty``: the tree differed from ``commit``; ``mode``: the timing mode of its shape's rank."""

    run: str
    suite: str
    gpu: str | None
    variant: str
    shape: str
    params: str
    mode: str
    value: float
    code: str
    reference: bool
    uuid: str | None
    driver: str | None
    limits: str | None
    nvcc: str | None
    commit: str | None
    dirty: bool | None
    clock: float | None
    temperature: float | None


class Index:
    """The runs of some places, as of now.

    Args:
        places: folders of runs, runs, or packed runs. The file is in the first; in memory if that cannot be written.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._base = _opened(places[0] / NAME)
        self._folders = [str(place.resolve()) for place in places]
        try:
            self._update_all(places)
        except sqlite3.DatabaseError:  # damaged, locked, or not to be written
            self._base = _with_tables(_connected(":memory:"))
            self._update_all(places)

    def _update_all(self, places: Sequence[Path]) -> None:
        self._base.execute("PRAGMA synchronous = OFF")  # a damaged index is read again
        self._base.execute("PRAGMA cache_size = -131072")
        with self._base:
            for place, folder in zip(places, self._folders, strict=True):
                self._update(place, folder)

    def _update(self, place: Path, folder: str) -> None:
        present = _names(place)
        recorded = {row[0] for row in self._base.execute("SELECT name FROM runs WHERE folder = ?", (folder,))}
        for name in recorded - present.keys():
            ((key,),) = self._base.execute("SELECT key FROM runs WHERE (folder, name) = (?, ?)", (folder, name))
            for table, column in (("facts", "run"), ("code", "run"), ("runs", "key")):
                self._base.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))
        cases = {(v, s): k for k, v, s in self._base.execute("SELECT * FROM cases")}
        names = {name: k for k, name in self._base.execute("SELECT * FROM names")}
        for name in sorted(present.keys() - recorded):
            try:
                for run in lookup.runs_at(present[name]):
                    self._add(run, present[name], folder, name, cases, names)
            except (OSError, RecordError) as error:
                lookup.warn_skipped(name, error)
            except UsageError:
                pass  # a folder with a run's name and without a run

    def _add(
        self,
        run: Traversable,
        path: Path,
        folder: str,
        name: str,
        cases: dict[tuple[str, str], int],
        names: dict[str, int],
    ) -> None:
        record = store.opened(run)
        machine = record.environment
        outcomes = [o for o in record.outcomes if o.status == "ok"]
        stages: list[str] = [o.stage for o in outcomes]
        row = (
            *(folder, name, run.name, record.created, record.suite.name, machine.gpu),
            len({*(a.variant for a in record.artifacts), *(o.variant for o in record.outcomes)}),
            *map(stages.count, ("check", "bench", "profile")),
            *(record.command, str(path), machine.host, machine.gpu_uuid, machine.driver, machine.gpu_limits),
            *(machine.nvcc, machine.git_commit, machine.git_dirty),
        )
        facts = _facts(record, {(o.case, o.stage) for o in outcomes if not o.origin})
        marks = ", ".join("?" * len(row))
        key = self._base.execute(f"INSERT INTO runs VALUES (NULL, {marks})", row).lastrowid

        def case(variant: str, shape: str) -> int:
            if (variant, shape) not in cases:
                cases[variant, shape] = len(cases) + 1
                self._base.execute("INSERT INTO cases VALUES (?, ?, ?)", (len(cases), variant, shape))
            return cases[variant, shape]

        for fact in {fact for _, _, fact in facts} - names.keys():
            names[fact] = len(names) + 1
            self._base.execute("INSERT INTO names VALUES (?, ?)", (names[fact], fact))
        self._base.executemany(
            "INSERT INTO facts VALUES (?, ?, ?, ?)",
            [(case(v, s), names[fact], key, value) for (v, s, fact), value in facts.items()],
        )
        shapes = record.suite.shapes
        shared = {case: gpu.uuid for gpu in record.gpus for case in gpu.cases.get("bench", ())}
        self._base.executemany(
            "INSERT INTO code VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    key,
                    case(at.variant, at.shape),
                    code.code,
                    code.is_reference,
                    json.dumps(shapes[at.shape].params, sort_keys=True),
                    shapes[at.shape].rank_by,
                    shared.get(at),
                )
                for at, code in record.keys.items()
            ],
        )

    def runs(self) -> list[RunSummary]:
        """The runs, newest first; of runs with the same id, the first place's."""
        rows = self._base.execute(
            f"""SELECT folder, {", ".join(f'"{column}"' for column in RunSummary._fields)} FROM runs
            WHERE folder IN (SELECT value FROM json_each(?))""",
            (json.dumps(self._folders),),
        )
        first = sorted(rows, key=lambda row: self._folders.index(row[0]), reverse=True)
        by_id = {row[1]: RunSummary(*row[1:]) for row in first}
        return [by_id[run] for run in sorted(by_id, reverse=True)]

    def points(self, fact: str, variant: str | None = None, shape: str | None = None) -> list[TimePoint]:
        """A fact of all cases, or of those of a variant on a shape, oldest run first."""
        rows = self._base.execute(
            f"""SELECT r.id, r.suite, r.gpu, c.variant, c.shape, k.params, coalesce(k.mode, ''), f.value,
              coalesce(k.code, ''), k.reference,
              coalesce(k.uuid, r.uuid), r.driver, r.limits, r.nvcc, r."commit", r.dirty, clock.value, heat.value
            FROM cases c CROSS JOIN facts f ON f."case" = c.key AND f.name = {_KEY.format(fact=1)}
            CROSS JOIN runs r ON r.key = f.run LEFT JOIN code k ON k.run = f.run AND k."case" = f."case"
            LEFT JOIN facts clock ON clock."case" = f."case" AND clock.name = {_KEY.format(fact=4)}
              AND clock.run = f.run
            LEFT JOIN facts heat ON heat."case" = f."case" AND heat.name = {_KEY.format(fact=5)} AND heat.run = f.run
            WHERE coalesce(?2, c.variant) = c.variant AND coalesce(?3, c.shape) = c.shape
              AND r.folder IN (SELECT value FROM json_each(?6))""",
            (fact, variant, shape, "bench_sm_clock", "bench_temperature", json.dumps(self._folders)),
        )
        first = {(p.run, p.variant, p.shape): p for p in map(TimePoint._make, rows)}
        return sorted(first.values(), key=lambda p: p.run)

    def values(self, run: str, variant: str, shape: str) -> dict[str, float]:
        """All that a run measured about a case and its variant, by the facts' names."""
        rows = self._base.execute(
            """SELECT n.name, f.value FROM runs r CROSS JOIN cases c CROSS JOIN names n
            CROSS JOIN facts f ON f."case" = c.key AND f.name = n.key AND f.run = r.key
            WHERE r.id = ? AND c.variant = ? AND c.shape IN (?, '')
              AND r.folder IN (SELECT value FROM json_each(?))""",
            (run, variant, shape, json.dumps(self._folders)),
        )
        return dict(rows)

    def facts(self, variant: str, shape: str) -> list[str]:
        """The names of the facts that any run has about a case, or without a shape about a variant."""
        rows = self._base.execute(
            """SELECT DISTINCT n.name FROM cases c JOIN facts f ON f."case" = c.key JOIN names n ON n.key = f.name
            WHERE (c.variant, c.shape) = (?, ?)""",
            (variant, shape),
        )
        return sorted(name for (name,) in rows)


def count(places: Sequence[Path]) -> int:
    """The number of runs in these places, without their index."""
    return sum(len(_names(place)) for place in places)


def _opened(file: Path) -> sqlite3.Connection:
    """The tables of the file, empty ones if it is missing, damaged or of another version."""
    for attempt in range(2):
        try:
            base = _connected(file)
            (version,) = base.execute("PRAGMA user_version").fetchone()
            if version == _VERSION:
                return base
            if version == 0 and not base.execute("SELECT 1 FROM sqlite_master").fetchone():
                return _with_tables(base)
        except sqlite3.DatabaseError:
            pass
        if attempt == 0:
            try:
                file.unlink(missing_ok=True)
            except OSError:
                break
    return _with_tables(_connected(":memory:"))


def _connected(file: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=60, detect_types=sqlite3.PARSE_DECLTYPES)


def _with_tables(base: sqlite3.Connection) -> sqlite3.Connection:
    base.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
    return base


def _names(place: Path) -> dict[str, Path]:
    """The runs in a place by name; a packed run's name also changes with its content."""
    if place.is_file() or (place / HEADER).is_file():
        return {_stamped(place): place}
    try:
        entries = [*os.scandir(place)]
    except OSError:
        return {}
    runs = {e.name: Path(e.path) for e in entries if RUN_ID.fullmatch(e.name)}
    packed = (Path(e.path) for e in entries if e.name.endswith(lookup.PACKED))
    return runs | {_stamped(file): file for file in packed}


def _stamped(path: Path) -> str:
    state = path.stat()
    return f"{path.name} {state.st_mtime_ns} {state.st_size}" if path.is_file() else path.name


def _facts(record: Record, measured: set[tuple[Case | None, Stage]]) -> dict[tuple[str, str, str], float]:
    """The numbers by variant, shape and name."""
    arch = record.environment.gpu_arch
    facts: dict[tuple[str, str, str], float] = {}
    for fact in record.facts:
        about, value = fact.subject, fact.number
        if value is None:
            continue
        place = about.variant, about.shape or "", fact.name
        if (stage := MEASURED.get(fact.source)) is None:
            if arch in (None, about.arch) or about.arch is None:
                facts[place] = max(value, facts.get(place, value))
        elif about.kernel is None and (about.case, stage) in measured:
            facts[place] = value
    times = {name: f"{shape.rank_by}_p50" for name, shape in record.suite.shapes.items()}
    return facts | {(v, s, "time"): value for (v, s, name), value in facts.items() if name == times.get(s)}


def rows(places: Sequence[Path], case: str, fact: str) -> Iterator[TimePoint]:
    """A fact's series of one case, ``variant/shape``; static facts may be a variant's, for all its shapes.

    Raises:
        UsageError: no run has it.
    """
    index = Index(places)
    selected = Case.parse(case)
    variant, shape = selected.variant, selected.shape
    points = index.points(fact, variant, shape) or index.points(fact, variant, "")
    if not points:
        names = sorted({*index.facts(variant, shape), *index.facts(variant, "")})
        raise UsageError(
            f"{case}, {fact}: expected runs that measured it, found none\n  hint: "
            + (f"they measured {', '.join(names[:12])}" if names else "flashcore runs lists the runs")
        )
    yield from points
