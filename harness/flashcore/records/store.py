"""Writes run records atomically; reads them back completely, or refuses them with a reason.

A run is a folder ``profiles/<id>``. The id is its UTC time with a fraction of a second, so ids sort by time. The folder
of a run in progress ends in ``.partial``. Renaming it is the last step, so a folder without that suffix is complete.

``run.json`` has everything but facts, samples and listings, which are in compressed files. ``facts.json.gz`` has rows
``[subject, name, value, unit, source, detail]`` that index tables of subjects and details; a remark is stored in its
row. A subject is ``["code", variant, arch, kernel]`` or ``["case", variant, shape, kernel, launch, arch]``, without
``null`` at its end. ``samples.json.gz`` has rows ``[variant, shape, mode, times]``. If warps were sampled,
``listings.json.gz`` has rows ``[offset, text, line, values]`` that index tables of lines, names and source files. An
inlined line refers to the line of its call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import gzip
import itertools
import json
import os
import re
import time
import typing
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flashcore.errors import RecordError, UsageError
from flashcore.model.case import Case, TimeKey
from flashcore.model.cause import Detail, as_json, from_json
from flashcore.model.files import PARTIAL, Lock, file_hash, write_atomically, writing
from flashcore.model.record import (
    SCHEMA_VERSION,
    Artifact,
    CaseSubject,
    CodeSubject,
    CountedInstruction,
    Fact,
    Facts,
    Lazy,
    Listing,
    Record,
    Source,
    SourcePlace,
    Subject,
)
from flashcore.model.text import shortened
from flashcore.records import soundness

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

HEADER = "run.json"
FACTS = "facts.json.gz"
SAMPLES = "samples.json.gz"
LISTINGS = "listings.json.gz"
SUMS = "SHA256SUMS"
_SEPARATE = ("facts", "raw_samples", "listings")  # stored in separate files
_BY_CASE = ("keys", "stale")  # stored as pairs of a case and its value
_CLOCK_SKEW = datetime.timedelta(days=1)
_LOCK = "going.lock"
_MOST_UNPACKED = 1 << 29  # bytes of facts or listings; the largest published run has 13 MB
_Content = TypeVar("_Content")
RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")


def new_id(now: datetime.datetime | None = None) -> str:
    """A run's id, such as ``20261121T093000Z-1f2e``: its start to 1/65536 s, so that ids sort by time."""
    if now is None:
        time.sleep(2**-15)  # so that ids of one process differ
        now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{(now.microsecond << 16) // 1_000_000:04x}"


def begin(profiles: Path, run_id: str) -> Path:
    """Creates the folder of a run in progress.

    Raises:
        FlashcoreError: the folder cannot be created (no space, no permission).
    """
    folder = profiles / (run_id + PARTIAL)
    with writing(folder):
        folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Locks a run in progress, so that no other process continues it; see :class:`Lock`.

    Raises:
        UsageError: another process holds the lock.
        FlashcoreError: the folder cannot be written.
    """
    path = folder / _LOCK
    with writing(path):
        lock = Lock(path, os.O_RDWR | os.O_CREAT)
    with lock:
        if not lock.try_acquire():
            process = path.read_text(encoding="utf-8").strip()
            raise UsageError(
                f"{folder}: expected a run that no process has locked, found it locked by process {process}\n"
                "  hint: wait for the process or end it, then continue with --resume"
            )
        with writing(path):
            path.write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield


def in_progress(folder: Path) -> bool:
    """Whether a process has the run locked."""
    try:
        lock = Lock(folder / _LOCK)
    except FileNotFoundError:
        return False
    with lock:
        return not lock.try_acquire(shared=True)


def write(record: Record, folder: Path) -> None:
    """Writes the record's files into ``folder``.

    Raises:
        FlashcoreError: they cannot be written.
        RecordError: they could not be read back.
    """
    _refuse(folder, soundness.mistakes(record))
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record) if f.name not in _SEPARATE}
    header = values | {name: list(values[name].items()) for name in _BY_CASE} | {"created": record.created}
    subjects: dict[Subject, int] = {}
    details: dict[Detail, int] = {}
    rows = [
        [
            subjects.setdefault(fact.subject, len(subjects)),
            fact.name,
            value,
            fact.unit,
            fact.source,
            details.setdefault(detail, len(details)) if isinstance(detail, Detail) else detail,
        ]
        for fact, (value, detail) in ((f, soundness.measured(f)) for f in record.facts)
    ]
    samples = ((c.variant, c.shape, mode, list(map(_rounded, v))) for (c, mode), v in record.raw_samples.items())
    text = json.dumps(header, indent=1, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
    contents = {
        FACTS: _packed({"subjects": list(map(_row, subjects)), "details": list(details), "facts": rows}),
        SAMPLES: _packed(list(samples)),
        **({LISTINGS: _packed(_listed(record.listings))} if record.listings else {}),
        HEADER: text.encode(),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content)
    seal(folder)


def seal(folder: Path) -> None:
    """Writes the hashes of a record's files, in the format of ``sha256sum --check``."""
    lines = (f"{digest}  {name}\n" for name, digest in sums(folder).items())
    write_atomically(folder / SUMS, "".join(lines).encode())


def _packed(data: Any) -> bytes:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)
    return gzip.compress(text.encode(), 6, mtime=0)  # 9 takes three times as long to save a twentieth


def _rounded(us: float) -> float:
    return round(us, 4) if us >= 1 else float(f"{us:.5g}")


def _plain(value: Any) -> Any:
    """The JSON object of a cause or another dataclass."""
    return (
        as_json(value)
        if isinstance(value, Detail)
        else {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    )


def _row(subject: Subject) -> list[Any]:
    """A subject as stored."""
    row: list[Any]
    if isinstance(subject, CodeSubject):
        row = ["code", subject.variant, subject.arch, subject.kernel]
    else:
        row = ["case", subject.variant, subject.shape, subject.kernel, subject.launch, subject.arch]
    while row[-1] is None:
        row.pop()
    return row


def stored_subject(row: Any) -> Subject:
    """A stored subject.

    Raises:
        TypeError, ValueError: it is none.
    """
    match row:
        case ["code", variant, *fields]:
            return CodeSubject(variant, *fields)
        case ["case", variant, shape, *fields]:
            return CaseSubject(Case(variant, shape), *fields)
    raise ValueError(f"expected code or a case, found {shortened(row)}")


def complete(partial: Path) -> Path:
    """Renames a complete run to its final name."""
    final = partial.with_name(partial.name.removesuffix(PARTIAL))
    with writing(final):
        (partial / _LOCK).unlink(missing_ok=True)
        partial.rename(final)
    return final


def read(folder: Traversable) -> Record:
    """Reads a run.

    Raises:
        RecordError: it is incomplete, unreadable, or of another schema version.
    """
    record = opened(folder)
    len(record.facts)
    return record


def opened(folder: Traversable) -> Record:
    """Reads a run, and its facts lazily: their first use raises a RecordError if they cannot be read.

    Raises:
        RecordError: see :func:`read`.
    """
    path = folder / HEADER
    header = header_of(folder)
    created = header.pop("created", None)
    from pydantic import ValidationError  # slow: a quarter of the start-up time of commands that read no run

    try:
        checked = _header_form().model_validate(header)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:10]]
        raise RecordError("\n".join([f"{path}: expected a run record", *lines])) from error
    fields = {name: getattr(checked, name) for name in type(checked).model_fields}
    record = Record(
        **fields | {name: dict(fields[name]) for name in _BY_CASE},
        facts=Facts(Lazy(lambda: _read_facts(folder, record))),
        raw_samples=_read_rows(folder / SAMPLES, "rows of samples", _samples),
        listings=Lazy(lambda: _read_listings(folder / LISTINGS)),
    )
    _refuse(folder, itertools.chain(_misdated(record, created, folder.name), soundness.mistakes(record)))
    verify(folder)
    return record


def header_of(folder: Traversable) -> dict[str, Any]:
    """A run's header, whose schema version is the present one.

    Raises:
        RecordError: it is unreadable, or of another schema version.
    """
    path = folder / HEADER
    header = _load(path)
    schema = header.get("schema_version") if isinstance(header, dict) else None
    if schema != SCHEMA_VERSION:
        actual, hint = f"{schema!r}", "name a folder that flashcore wrote"
        if isinstance(schema, int):
            newer = schema > SCHEMA_VERSION
            actual = f"the {'newer' if newer else 'older'} version {schema}"
            hint = "update flashcore" if newer else "record the run again"
        raise RecordError(f"{path}: expected schema version {SCHEMA_VERSION}, found {actual}\n  hint: {hint}")
    return dict(header)


def _misdated(record: Record, created: object, folder: str) -> Iterator[str]:
    """Messages about a wrong id or date: the newest run is chosen by id."""
    try:
        later = datetime.datetime.fromisoformat(record.created) - datetime.datetime.now(datetime.UTC)
        wrong = not RUN_ID.fullmatch(record.id)  # the id becomes a folder's name
    except ValueError:
        wrong = True
    if wrong:
        yield f"id: expected an id such as {new_id()}, found {record.id[:100]!r}"
    elif later > _CLOCK_SKEW:
        yield f"id: expected no time in the future, found {record.id}"
    elif created != record.created:
        yield f"created: expected {record.created}, as in its id, found {shortened(created)}"
    elif RUN_ID.fullmatch(folder) and folder != record.id:
        yield f"id: expected {folder}, the folder's name, found {record.id}"


def verify(folder: Traversable) -> None:
    """Compares a run's files with their recorded hashes.

    Raises:
        RecordError: a file was altered, added or removed since the run was recorded, or there are no hashes.
    """
    if not (file := folder / SUMS).is_file():
        raise RecordError(f"{folder}: expected the files' hashes in {SUMS}, found none\n  hint: restore {SUMS}")
    recorded = {tuple(line.split("  ")[::-1]) for line in file.read_bytes().decode(errors="replace").splitlines()}
    if altered := sorted({name for name, *_ in recorded ^ set(sums(folder).items())}):
        raise RecordError(
            f"{folder}: expected files with the hashes in {SUMS}, found altered: "
            f"{', '.join(altered)}\n  hint: restore the run from a copy or from git, or record it again"
        )


def sums(folder: Traversable) -> dict[str, str]:
    """The SHA-256 of each file of a record."""
    hashes = {name: file_hash(folder / name) for name in (HEADER, FACTS, SAMPLES, LISTINGS)}
    return {name: digest for name, digest in hashes.items() if digest}


def _refuse(folder: Traversable, mistakes: Iterable[str]) -> None:
    """Refuses a record with mistakes; the error has the first ten."""
    if wrong := [f"  {mistake}" for mistake in itertools.islice(mistakes, 10)]:
        raise RecordError("\n".join([f"{folder}: expected a record as flashcore writes it", *wrong]))


def _read_facts(folder: Traversable, record: Record) -> tuple[Fact, ...]:
    """The facts of a run, validated against its record."""
    facts = _read_rows(folder / FACTS, "rows of facts", _facts)
    _refuse(folder, soundness.mistakes_in_facts(record, facts))
    return facts


@functools.cache
def _header_form() -> Any:
    """The header's form, derived from the record's fields."""
    from pydantic import ConfigDict, create_model

    hints = typing.get_type_hints(Record)
    hints |= {name: list[tuple[*typing.get_args(hints[name])]] for name in _BY_CASE}  # type: ignore[misc]
    form: dict[str, Any] = {f.name: (hints[f.name], ...) for f in dataclasses.fields(Record) if f.name not in _SEPARATE}
    return create_model("RunHeader", __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **form)


def _load(path: Traversable) -> Any:
    """The JSON of a file."""
    try:
        with path.open("rb") as stream:
            data = stream.read() if path.name == HEADER else gzip.GzipFile(fileobj=stream).read(_MOST_UNPACKED + 1)
        if len(data) > _MOST_UNPACKED:
            raise ValueError(f"expected at most {_MOST_UNPACKED >> 20} MiB unpacked, found more")
        return json.loads(data, parse_constant=_no_constant)
    except FileNotFoundError as error:
        raise RecordError(f"{path}: expected in every run, found no such file") from error
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise RecordError(f"{path}: cannot be read: {error}\n  hint: record the run again") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"expected a finite number, found {text}")


def _read_rows(path: Traversable, what: str, convert: Callable[[Any], _Content]) -> _Content:
    """A file's converted data; ``what`` is its expected content, for messages."""
    data = _load(path)
    try:
        return convert(data)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: expected {what}, found something else ({error!r})") from error


def _samples(data: Any) -> dict[TimeKey, tuple[float, ...]]:
    samples = {(Case(variant, shape), mode): tuple(times) for variant, shape, mode, times in data}
    if len(samples) < len(data):
        raise ValueError("a time twice")
    return samples


def _facts(data: Any) -> tuple[Fact, ...]:
    subjects = list(map(stored_subject, data["subjects"]))
    hash((*subjects, *(row[1] for row in data["facts"])))  # rejects lists and tables with a TypeError
    details = [from_json(detail) for detail in data["details"]]
    sources = {s.value: s for s in Source}
    return tuple(
        Fact(subjects[index], name, value, unit, sources[source], details[detail] if type(detail) is int else detail)
        for index, name, value, unit, source, detail in data["facts"]
    )


def _listed(listings: Iterable[Listing]) -> dict[str, Any]:
    """Listings as plain data, with lines, names of values and files stored once."""
    lines: dict[tuple[Any, ...], int] = {}
    names: dict[str, int] = {}
    files: dict[tuple[str, str], int] = {}
    kernels = []

    def line(i: CountedInstruction) -> int:
        call: tuple[int, ...] = ()
        for place in (*reversed(i.calls), (i.file, i.line, i.source)):
            call = (lines.setdefault((*place, *call), len(lines)),)
        return call[0]

    for one in listings:
        rows = [
            [
                i.offset,
                i.text,
                line(i),
                [x for name, value in i.values.items() for x in (names.setdefault(name, len(names)), value)],
            ]
            for i in one.instructions
        ]
        texts = [files.setdefault(file, len(files)) for file in one.files.items()]
        kernels.append([one.subject.variant, one.subject.shape, one.subject.kernel, rows, texts])
    return {"lines": list(lines), "names": list(names), "files": list(files), "kernels": kernels}


def _read_listings(path: Traversable) -> tuple[Listing, ...]:
    if not path.is_file():
        return ()  # no warp was sampled, or the run is older than listings
    return _read_rows(path, "instructions by kernel", _listings)


def _listings(data: Any) -> tuple[Listing, ...]:
    places: list[tuple[SourcePlace, ...]] = []  # each line, then its calls
    for file, line, text, *call in data["lines"]:
        places.append(((str(file), int(line), str(text)), *(places[call[0]] if call else ())))
    names = [str(name) for name in data["names"]]
    files = [(str(name), str(text)) for name, text in data.get("files", ())]

    def instruction(row: Any) -> CountedInstruction:
        offset, text, at, flat = row
        (file, line, source), *calls = places[at]
        values = {names[n]: float(v) for n, v in zip(flat[::2], flat[1::2], strict=True)}
        return CountedInstruction(int(offset), str(text), file, line, source, values, tuple(calls))

    return tuple(
        Listing(
            CaseSubject(Case(str(variant), str(shape)), kernel=str(kernel)),
            tuple(map(instruction, rows)),
            dict(files[text] for one in texts for text in one),
        )
        for variant, shape, kernel, rows, *texts in data["kernels"]
    )


#: Archive of the ptxas logs, ``VARIANT-ARCH.log``; ninja does not print them again.
LOGS = "ptxas.zip"
_COMPRESSED = (".gz", ".xz", ".zip", ".ncu-rep")
_DAY = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same logs give the same bytes


def keep(folder: Path, artifacts: Iterable[Artifact]) -> None:
    """Adds the compilers' logs to a complete run, and compresses its journals and logs, which nothing reads any more.

    Raises:
        FlashcoreError: they cannot be written.
    """
    logs = {f"{a.variant}-{a.arch}.log": Path(a.log) for a in artifacts if a.log is not None}
    with writing(folder):
        if logs:
            with zipfile.ZipFile(folder / LOGS, "w") as archive:
                for name, path in sorted(logs.items()):
                    archive.writestr(zipfile.ZipInfo(name, _DAY), path.read_bytes(), zipfile.ZIP_DEFLATED)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.parent != folder and path.suffix not in _COMPRESSED:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), 6, mtime=0))
                path.unlink()
