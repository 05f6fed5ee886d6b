"""Finds recorded runs: the newest, by id or folder, in the runs' folder and in other places."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.errors import RecordError, UsageError
from flashcore.model.files import PARTIAL
from flashcore.model.record import SCHEMA_VERSION, Record
from flashcore.model.text import matches_any
from flashcore.records import packed
from flashcore.records.store import HEADER, RUN_ID, opened

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    #: Where to look for runs. The first is the folder that runs are recorded in. Others have runs of other machines:
    #: each is a folder of runs, a run's folder, or a packed run.
    Places = Path | Sequence[Path]

ROOFS_SUITE = "roofs"  # the name of the suite that measures roofs
PACKED = ".run.zip"  # suffix of a packed run
#: Errors of reading parts of a damaged header.
DAMAGED = (OSError, ValueError, LookupError, TypeError, RecursionError)


def runs(profiles: Path) -> list[Path]:
    """The complete runs, newest first."""
    return [run for run in _newest_first(profiles) if (run / HEADER).is_file()]


def unfinished(profiles: Path) -> list[Path]:
    """The folders of incomplete runs, newest first."""
    return _newest_first(profiles, PARTIAL)


def _newest_first(profiles: Path, ending: str = "") -> list[Path]:
    return sorted(
        (p for p in profiles.glob(f"*{ending}") if RUN_ID.fullmatch(p.name.removesuffix(ending))), reverse=True
    )


def all_runs(places: Places) -> list[Traversable]:
    """The complete runs of all places, newest first; of runs with the same id, the first place's.

    An unreadable packed run of the first place is skipped with a warning.

    Raises:
        RecordError: another place's packed run is damaged, or the file is something else.
    """
    first, *others = [places] if isinstance(places, Path) else places
    complete: list[Traversable] = [*runs(first)]
    for file in _packed(first):
        try:
            complete.append(_opened(file))
        except (RecordError, UsageError) as error:
            warn_skipped(file.name, error)
    complete += chain.from_iterable(map(runs_at, others))
    by_id = {run.name: run for run in reversed(complete)}
    return sorted(by_id.values(), key=lambda run: run.name, reverse=True)


def runs_at(place: Path) -> list[Traversable]:
    """The runs at a path of ``--records``: a packed run, a run's folder, or a folder of both.

    Raises:
        UsageError: there is none.
        RecordError: a packed run is damaged, or the file is something else.
    """
    if place.is_file():
        return [_opened(place)]
    if (place / HEADER).is_file() and RUN_ID.fullmatch(place.resolve().name):
        return [place.resolve()]
    complete: list[Traversable] = [*runs(place), *map(_opened, _packed(place))]
    if not complete:
        raise UsageError(
            f"--records {place}: expected a run, a packed run (*{PACKED}) or a folder of them, found none\n"
            "  hint: pack a run with flashcore runs pack, on the machine that recorded it"
        )
    return complete


def _packed(place: Path) -> list[Path]:
    return sorted(place.glob(f"*{PACKED}"))


def _opened(file: Path) -> Traversable:
    """The run in a packed file, verified once until the file changes."""
    state = file.stat()
    return _verified(file.resolve(), state.st_mtime_ns, state.st_size)


@cache
def _verified(file: Path, modified: int, size: int) -> Traversable:
    return packed.opened(file)


def find(places: Places, name: str | None, variants: Collection[str] = (), shapes: Collection[str] = ()) -> Traversable:
    """The run of that id, prefix of an id, folder, or packed file; the newest if ``name`` is ``None``: the newest that
    has a case of these variants (globs) and shapes, if one has.

    Runs of the roofs suite or of ``sanitize`` alone, which has no times, count as the newest only if there is no other.

    Raises:
        UsageError: there is no such run, or several have that prefix.
        RecordError: a packed run is damaged, or the file is something else.
    """
    if name is not None:
        path = Path(name)
        if (path / HEADER).is_file():
            return path
        if name.endswith(PACKED) and path.is_file():
            return _opened(path)
    complete = all_runs(places)
    if name is None:
        if not complete:
            where = places if isinstance(places, Path) else places[0]
            raise UsageError(
                f"{where}: expected a recorded run, found none\n"
                "  hint: record one with flashcore profile or import, or name its folder by --profiles"
            )
        complete = [run for run in complete if _has_case(run, variants, shapes)] or complete
        return next((run for run in complete if suite_of(run) != ROOFS_SUITE and not _of_sanitizer(run)), complete[0])
    matches = [p for p in complete if p.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    newest = ", ".join(p.name for p in complete[:5]) or "none"
    count = "several" if matches else "none"
    raise UsageError(f"run {name}: expected one run's id, folder or packed file, found {count} (newest: {newest})")


def suite_of(run: Traversable) -> str:
    """The name of a run's suite; empty if the header is damaged, which reading the run reports."""
    try:
        return str(json.loads((run / HEADER).read_bytes())["suite"]["name"])
    except DAMAGED:
        return ""


def _has_case(run: Traversable, variants: Collection[str], shapes: Collection[str]) -> bool:
    """Whether the run has a case of variants (globs) and shapes; one without results has all of its suite's."""
    if not (variants or shapes):
        return True
    try:
        header = json.loads((run / HEADER).read_bytes())
        suite = header["suite"]
        cases = [(o["variant"], o["shape"]) for o in header["outcomes"]]
        cases = cases or [(variant, shape) for variant in suite["variants"] for shape in suite["shapes"]]
    except DAMAGED:
        return False

    globs = [*variants] or ["*"], [*shapes] or ["*"]
    return any(all(map(matches_any, case, globs)) for case in cases)


def _of_sanitizer(run: Traversable) -> bool:
    """Whether the run has only GPU results of ``flashcore sanitize``."""
    return (run / "sanitize").is_dir() and not (run / "check").is_dir()


def measured_runs(places: Places, suite: str, *, before: str | None = None) -> Iterator[Record]:
    """The runs of this suite with GPU results, newest first."""
    return filter(is_readable, opened_runs(places, suite, before=before))


def opened_runs(places: Places, suite: str, *, before: str | None = None) -> Iterator[Record]:
    """As :func:`measured_runs`, but with facts that are read lazily."""
    for folder in all_runs(places):
        if before is not None and folder.name >= before:
            continue
        try:
            record = opened(folder) if _is_measured(folder, suite) else None
        except (*DAMAGED, RecordError) as error:
            warn_skipped(folder.name, error)
            continue
        if record:
            yield record


def is_readable(run: Record) -> bool:
    """Whether the run's facts can be read; if not, warns that the run is skipped."""
    try:
        len(run.facts)
    except RecordError as error:
        warn_skipped(run.id, error)
        return False
    return True


def warn_skipped(run: str, error: Exception) -> None:
    """Warns that a damaged run is skipped, so that it does not block a new one."""
    print(f"flashcore: skipped run {run}: {error}", file=sys.stderr)


def _is_measured(folder: Traversable, suite: str) -> bool:
    """Whether a run is of this suite, with GPU results."""
    header = json.loads((folder / HEADER).read_bytes())
    of_suite = header["schema_version"] == SCHEMA_VERSION and header["suite"]["name"] == suite
    return bool(of_suite and header["environment"]["gpu"] and header["outcomes"])
