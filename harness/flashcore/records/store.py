"""Run records on disk: written atomically, read back completely or refused with a reason.

A run is a folder ``profiles/<id>``; its id is its UTC time and four random digits, so the newest is
known without looking at file times. While a run is under way its folder ends in ``.partial``; the
last act is to rename it, so a folder without that ending is complete.

``run.json`` holds everything but the facts and the samples, which lie beside it compressed. ``facts.json.gz`` has rows
``[subject, name, value, unit, source, detail]`` over tables of subjects and of details: each cause is stored once, a
remark in its row. Where warps were sampled, ``listings.json.gz`` has rows
``[offset, text, line, values]`` over tables of lines and of names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import gzip
import itertools
import json
import os
import re
import secrets
import typing
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.errors import RecordError, UsageError
from flashcore.model.causes import Detail, as_json, from_json
from flashcore.model.files import PARTIAL, Lock, write_atomically, writing
from flashcore.model.record import (
    SCHEMA_VERSION,
    Fact,
    Facts,
    Instruction,
    Listing,
    Listings,
    Record,
    Source,
    Subject,
)
from flashcore.records import schema_2, soundness

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

HEADER = "run.json"
FACTS = "facts.json.gz"
SAMPLES = "samples.json.gz"
LISTINGS = "listings.json.gz"
_BESIDE = ("facts", "samples", "listings")  # in files of their own
_LATER = ("gpus", "recording")  # came after the schema: absent where there is nothing to say
_LOCK = "going.lock"
#: The schemas that can be read.
READABLE = (schema_2.VERSION, SCHEMA_VERSION)
_MOST_UNPACKED = 1 << 29  # bytes of facts or listings; the largest published run has 13 MB of them
RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")


def new_id(now: datetime.datetime | None = None) -> str:
    """A run's id, as ``20261121T093000Z-1f2e``; two started in one second differ."""

    now = now or datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def begin(profiles: Path, run_id: str) -> Path:
    """Makes the folder of a run that is under way.

    Raises:
        FlashcoreError: the folder cannot be made (no space, no permission).
    """
    folder = profiles / (run_id + PARTIAL)
    with writing(folder):
        folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Locks a run that is under way, so that no other process continues it. The operating system releases the lock when
    the process ends, in any way; child processes do not inherit it.

    Raises:
        UsageError: another process holds it.
        FlashcoreError: the folder cannot be written.
    """
    path = folder / _LOCK
    with writing(path):
        lock = Lock(path, os.O_RDWR | os.O_CREAT)
    with lock:
        if not lock.taken():
            process = path.read_text(encoding="utf-8").strip()
            raise UsageError(
                f"{folder}: expected a run that no process works on, found it locked by process {process}\n"
                "  hint: wait for it to end, or end it and then continue with --resume"
            )
        with writing(path):
            path.write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield


def is_going(folder: Path) -> bool:
    """Whether a process holds it; changes nothing."""
    try:
        lock = Lock(folder / _LOCK)
    except FileNotFoundError:
        return False
    with lock:
        return not lock.taken(shared=True)


def write(record: Record, folder: Path) -> None:
    """Writes the record's files into ``folder``.

    Raises:
        FlashcoreError: they cannot be written.
    """
    header = {f.name: _plain(getattr(record, f.name)) for f in dataclasses.fields(record) if f.name not in _BESIDE}
    for name in _LATER:
        if not header[name]:
            del header[name]  # and a run that has none reads as it always did
    subjects: dict[Subject, int] = {}
    details: dict[Detail, int] = {}
    rows = [
        [
            subjects.setdefault(fact.subject, len(subjects)),
            fact.name,
            value,
            fact.unit,
            fact.source.value,
            details.setdefault(detail, len(details)) if isinstance(detail, Detail) else detail,
        ]
        for fact, (value, detail) in ((f, soundness.measured(f)) for f in record.facts)
    ]
    table = [[s.variant, s.arch, s.shape, s.kernel, s.launch] for s in subjects]
    data = {"subjects": table, "details": [as_json(d) for d in details], "facts": rows}
    write_atomically(folder / FACTS, _packed(data))
    samples = {k: [round(x, 4) for x in v] for k, v in record.samples.items()}
    write_atomically(folder / SAMPLES, _packed(samples))
    if record.listings:
        write_atomically(folder / LISTINGS, _packed(_listed(record.listings)))
    text = json.dumps(header, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(folder / HEADER, text.encode())


def complete(partial: Path) -> Path:
    """Gives a complete run its final name."""
    final = partial.with_name(partial.name.removesuffix(PARTIAL))
    with writing(final):
        (partial / _LOCK).unlink(missing_ok=True)
        partial.rename(final)
    return final


def read(folder: Traversable) -> Record:
    """Reads a run.

    Raises:
        RecordError: it is not complete, not readable, or of an older or newer schema.
    """
    path = folder / HEADER
    header = _load(path, path.read_bytes if path.is_file() else None)
    schema = header.get("schema_version") if isinstance(header, dict) else None
    old = schema == schema_2.VERSION
    if old:
        header = schema_2.header(header, SCHEMA_VERSION)
    elif schema != SCHEMA_VERSION:
        if isinstance(schema, int):
            age = "newer" if schema > SCHEMA_VERSION else "older"
            mend = "update flashcore" if age == "newer" else "record the run again"
            found = f"the {age} version {schema}"
        else:
            found, mend = f"{schema!r}", "name a folder that flashcore wrote"
        raise RecordError(f"{path}: expected schema version {SCHEMA_VERSION}, found {found}\n  hint: {mend}")
    from pydantic import ValidationError  # a quarter of the start of commands that read no run

    try:
        checked = _header_form().model_validate(header)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:10]]
        raise RecordError("\n".join([f"{path}: expected a run record", *lines])) from error
    values = {name: getattr(checked, name) for name in type(checked).model_fields}
    with _no_collection():
        facts = _read_facts(folder / FACTS, old=old)
    samples_path = folder / SAMPLES
    samples = _load(samples_path, lambda: _unpacked(samples_path))
    if not isinstance(samples, dict) or not all(isinstance(v, list) for v in samples.values()):
        raise RecordError(f"{samples_path}: expected a table of samples, found {type(samples).__name__}")
    listings = Listings(lambda: _read_listings(folder / LISTINGS))
    record = Record(facts=facts, listings=listings, samples={k: tuple(v) for k, v in samples.items()}, **values)
    wrong = list(itertools.islice(soundness.mistakes(record), 10))
    if not RUN_ID.fullmatch(record.id):  # names the folder of its report
        wrong.insert(0, f"id: expected one such as {new_id()}, found {record.id[:100]!r}")
    if wrong:
        raise RecordError(
            "\n".join([f"{folder}: expected a record as flashcore writes it", *(f"  {w}" for w in wrong)])
        )
    return record


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Hundreds of thousands of small objects, none of them garbage: collecting would take half the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _read_facts(path: Traversable, *, old: bool) -> Facts:
    data = _load(path, lambda: _unpacked(path))
    try:
        subjects = [Subject(*row) for row in data["subjects"]]
        hash(tuple(subjects))  # text and numbers alone
        sources = {s.value: s for s in Source}
        if old:
            return Facts(
                Fact(subjects[index], name, value, unit, sources[source], schema_2.detail(name, value, note))
                for index, name, value, unit, source, note in data["facts"]
            )
        details = [from_json(detail) for detail in data["details"]]
        return Facts(
            Fact(subjects[index], name, value, unit, sources[source], details[told] if type(told) is int else told)
            for index, name, value, unit, source, told in data["facts"]
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: expected rows of facts, found something else ({error!r})") from error


def _listed(listings: Iterable[Listing]) -> dict[str, Any]:
    """Listings as plain data: each line and each name of a value is stored once."""
    lines: dict[tuple[str, int, str], int] = {}
    names: dict[str, int] = {}
    kernels = []
    for one in listings:
        rows = [
            [
                i.offset,
                i.text,
                lines.setdefault((i.file, i.line, i.source), len(lines)),
                [x for name, value in i.values.items() for x in (names.setdefault(name, len(names)), value)],
            ]
            for i in one.instructions
        ]
        kernels.append([one.subject.variant, one.subject.shape, one.subject.kernel, rows])
    return {"lines": list(lines), "names": list(names), "kernels": kernels}


def _read_listings(path: Traversable) -> tuple[Listing, ...]:
    if not path.is_file():
        return ()  # no warp was sampled, or before listings were kept
    with _no_collection():
        return _listings(path)


def _listings(path: Traversable) -> tuple[Listing, ...]:
    data = _load(path, lambda: _unpacked(path))
    try:
        lines = [(str(file), int(line), str(text)) for file, line, text in data["lines"]]
        names = [str(name) for name in data["names"]]

        def instruction(row: Any) -> Instruction:
            offset, text, at, flat = row
            file, line, source = lines[at]
            values = {names[n]: float(v) for n, v in zip(flat[::2], flat[1::2], strict=True)}
            return Instruction(int(offset), str(text), file, line, source, values)

        return tuple(
            Listing(Subject(str(variant), shape=str(shape), kernel=str(kernel)), tuple(map(instruction, rows)))
            for variant, shape, kernel, rows in data["kernels"]
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RecordError(f"{path}: expected instructions by kernel, found something else ({error!r})") from error


def _unpacked(path: Traversable) -> bytes:

    try:
        with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
            data = stream.read(_MOST_UNPACKED + 1)
    except zlib.error as error:
        raise ValueError(error) from error
    if len(data) > _MOST_UNPACKED:
        raise ValueError(f"more than {_MOST_UNPACKED >> 20} MiB in it")
    return data


def _load(path: Traversable, read_bytes: Any) -> Any:
    if read_bytes is None:
        raise RecordError(f"{path}: expected a run's header, found no such file")
    try:
        return json.loads(read_bytes(), parse_constant=_no_constant)
    except FileNotFoundError as error:
        raise RecordError(f"{path}: expected with every run, found no such file") from error
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read: {error}\n  hint: record the run again") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no measurement")


_FORM: Any = None


def _header_form() -> Any:
    """The header's form, made from the record's own fields."""
    global _FORM
    if _FORM is None:
        from pydantic import ConfigDict, create_model

        hints = typing.get_type_hints(Record)
        fields: dict[str, Any] = {
            f.name: (hints[f.name], f.default if f.name in _LATER else ...)
            for f in dataclasses.fields(Record)
            if f.name not in _BESIDE
        }
        _FORM = create_model("RunHeader", __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)
    return _FORM


def _plain(value: Any) -> Any:
    if isinstance(value, Detail):
        return as_json(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _packed(data: Any) -> bytes:

    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)
