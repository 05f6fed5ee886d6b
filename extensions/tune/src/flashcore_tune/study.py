"""A study on disk: one search of a space, a line per candidate.

Its folder has ``results.jsonl``, with the header (space and machine) in the first line and a result in each other one,
and ``work``, the files of the measuring processes. Each line is synced before the search continues, so a kill loses at
most the candidates being measured. An incomplete last line is removed when the study is resumed.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from flashcore.errors import UsageError
from flashcore.model.files import writing
from flashcore.records.store import RUN_ID, claimed, new_id
from flashcore_tune.space import Space

RESULTS, WORK = "results.jsonl", "work"

#: The step at which a candidate was rejected, in order; ``""`` for a timed one.
Fell = Literal["", "build", "static", "check", "bench"]
FUNNEL: tuple[Fell, ...] = ("build", "static", "check", "bench")
#: The steps that need no GPU.
STATIC: tuple[Fell, ...] = ("build", "static")


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one candidate.

    Args:
        index: its number in the space.
        fell: the step at which it was rejected, and ``reason`` why; empty if it was timed.
        broken: failed soft budget → its miss as a share of the limit.
        facts: static facts, the worst over its kernels: ``registers``, ``smem`` (B), ``spill_store_bytes`` …
        times: shape → median in us, in the timing mode that ranks there.
        error: largest error, relative to the tolerance class's.
        twin: the candidate with the same machine code whose measurement this is; -1 if it was measured itself.
        code: the same for two candidates if their machine code and launches are the same.
        seconds: since the study's first start, this process's pauses left out.
    """

    index: int
    fell: Fell = ""
    reason: str = ""
    broken: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    error: float | None = None
    twin: int = -1
    code: str = ""
    seconds: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether it was measured on a GPU: neither rejected earlier nor a twin."""
        return self.fell not in STATIC and self.twin < 0


@dataclass(frozen=True, slots=True)
class Header:
    """A study's subject and machine. ``closure`` is the hash of the sources, headers and flags of the space's variant;
    a replay has the replayed study's."""

    suite: str
    space: Space
    sampler: str
    seed: int
    closure: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    gpu: str | None = None
    arch: str | None = None
    nvcc: str = ""
    compiler: str = ""  # of kernels that Python launches
    floor: float | None = None  # least time of the first shape by the datasheet, us
    command: str = ""

    @property
    def made_by(self) -> str:
        """The candidates' compiler."""
        return self.compiler or f"nvcc {self.nvcc}"


@dataclass
class Study:
    """A study that is open for writing; see :func:`create` and :func:`resume`."""

    folder: Path
    header: Header
    results: dict[int, Result]

    @property
    def measured(self) -> int:
        """The number of candidates measured on a GPU."""
        return sum(r.measured for r in self.results.values())

    def record(self, result: Result) -> None:
        """Writes one result and syncs it.

        Raises:
            WriteError: it cannot be written.
        """
        _append(self.folder / RESULTS, result)
        self.results[result.index] = result


@contextmanager
def create(studies: Path, header: Header) -> Iterator[Study]:
    """Creates a study in a new folder, locked while it is open."""
    folder = studies / f"{header.space.name}-{new_id()}"
    with writing(folder):
        folder.mkdir(parents=True)
    with claimed(folder):
        _append(folder / RESULTS, header)
        yield Study(folder, header, {})


@contextmanager
def resume(folder: Path) -> Iterator[Study]:
    """Opens a study to continue it, locked while it is open.

    Raises:
        UsageError: another process has it open, or it is not a study.
    """
    with claimed(folder):
        _cut_incomplete(folder / RESULTS)
        yield Study(folder, *read(folder))


def find(studies: Path, name: str | None, space: str = "*") -> Path:
    """Returns a study's folder: the named one, else the space's newest.

    Raises:
        UsageError: there is no such study.
    """
    for path in (Path(name), studies / name) if name is not None else ():
        if path.exists():
            return path
    folders = sorted(
        (p for p in studies.glob(f"{space}-*") if RUN_ID.fullmatch(p.name[-21:])), key=lambda p: p.name[-21:]
    )
    if name is None and folders:
        return folders[-1]
    newest = f"\n  hint: the newest are {', '.join(p.name for p in folders[-3:])}" if folders else ""
    raise UsageError(f"{name or space}: expected a study in {studies}, found none{newest}")


def read(path: Path) -> tuple[Header, dict[int, Result]]:
    """Returns the header and the results in a study's folder, or in a copy of its ``results.jsonl``, plain or ``.xz``.

    Raises:
        UsageError: it is not a study.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
        first, *lines = data[: data.rfind(b"\n") + 1].splitlines()
        header = TypeAdapter(Header).validate_json(first)
        results = map(TypeAdapter(Result).validate_json, lines)
        return header, {r.index: r for r in results}
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise UsageError(f"{file}: expected the results of a study, found something else ({error})") from error


def _append(path: Path, line: Header | Result) -> None:
    text = json.dumps(dataclasses.asdict(line), separators=(",", ":"), allow_nan=False)
    with writing(path), path.open("ab") as stream:
        stream.write(text.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _cut_incomplete(path: Path) -> None:
    """Removes a last line without an end: it was being written when the process was killed."""
    with writing(path):
        if path.is_file() and not (data := path.read_bytes()).endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)
