"""The recorded runs, and how one is chosen: the newest, one by its id or folder, those of other places."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.errors import RecordError, UsageError
from flashcore.model import plugin
from flashcore.model.files import PARTIAL
from flashcore.model.record import SCHEMA_VERSION, Record
from flashcore.records.store import HEADER, RUN_ID, opened

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    #: Where runs lie. One place is the folder that runs are recorded in, and published as packed files; of more, the
    #: others hold what was recorded elsewhere: each a folder of runs, a run's folder, or one packed file.
    Places = Path | Sequence[Path]

ROOFS = "roofs"  # the name of the suite that measures roofs
PACKED = ".run.zip"  # how a packed run's name ends
_DAMAGED = (OSError, ValueError, LookupError, TypeError, RecursionError)


def runs(profiles: Path) -> list[Path]:
    """The complete runs, newest first by their ids."""
    return [run for run in _newest_first(profiles) if (run / HEADER).is_file()]


def unfinished(profiles: Path) -> list[Path]:
    """Folders of runs that did not end, newest first."""
    return _newest_first(profiles, PARTIAL)


def _newest_first(profiles: Path, ending: str = "") -> list[Path]:
    return sorted(
        (p for p in profiles.glob(f"*{ending}") if RUN_ID.fullmatch(p.name.removesuffix(ending))), reverse=True
    )


def everywhere(places: Places) -> list[Traversable]:
    """The complete runs of all places, newest first by their ids; of those with one id only the first place's.

    A packed run of the first place that cannot be read is skipped with a warning.

    Raises:
        RecordError: another place's packed run is damaged, or the file is something else.
    """
    first, *others = [places] if isinstance(places, Path) else places
    complete: list[Traversable] = [*runs(first)]
    for file in _packed(first):
        try:
            complete.append(_opened(file))
        except (RecordError, UsageError) as error:
            tell_skipped(file.name, error)
    complete += chain.from_iterable(map(elsewhere, others))
    by_id = {run.name: run for run in reversed(complete)}
    return sorted(by_id.values(), key=lambda run: run.name, reverse=True)


def elsewhere(place: Path) -> list[Traversable]:
    """The runs that a user's ``--records`` names: a packed file, a run's folder, or a folder of both.

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
            f"--records {place}: expected a run, a packed one (*{PACKED}) or a folder of them, found none\n"
            "  hint: flashcore pack writes one, where the run was recorded"
        )
    return complete


def _packed(place: Path) -> list[Path]:
    return sorted(place.glob(f"*{PACKED}"))


def _opened(file: Path) -> Traversable:
    """The run in a packed file, checked once."""
    state = file.stat()
    return _unchanged(file.resolve(), state.st_mtime_ns, state.st_size)


@cache
def _unchanged(file: Path, changed: int, size: int) -> Traversable:
    run: Traversable = plugin.resolve("flashcore.plugins.pack.pack:opened")(file)
    return run


def find(places: Places, name: str | None) -> Traversable:
    """The run that ``name`` (an id, the beginning of one, a folder, or a packed file) means; the newest if ``None``.

    ``profile`` may have measured the machine's roofs too, and ``sanitize`` times nothing: such runs count as the newest
    only where there is no other.

    Raises:
        UsageError: there is no such run, or several begin so.
        RecordError: a packed run is damaged, or the file is something else.
    """
    if name is not None:
        path = Path(name)
        if (path / HEADER).is_file():
            return path
        if name.endswith(PACKED) and path.is_file():
            return _opened(path)
    complete = everywhere(places)
    if name is None:
        if not complete:
            where = places if isinstance(places, Path) else places[0]
            raise UsageError(
                f"{where}: expected a recorded run, found none\n"
                "  hint: `flashcore profile` records one, `flashcore import` reads one, --profiles names another folder"
            )
        return next((run for run in complete if suite_of(run) != ROOFS and not _of_sanitizer(run)), complete[0])
    matches = [p for p in complete if p.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    newest = ", ".join(p.name for p in complete[:5]) or "none"
    count = "several" if matches else "none"
    raise UsageError(f"run {name}: expected one run's id or folder, found {count} (newest: {newest})")


def suite_of(run: Traversable) -> str:
    """The name of a run's suite; empty if its header is damaged, which reading it reports."""
    try:
        return str(json.loads((run / HEADER).read_bytes())["suite"]["name"])
    except _DAMAGED:
        return ""


def _of_sanitizer(run: Traversable) -> bool:
    """Whether its only GPU results are those of ``flashcore sanitize``."""
    return (run / "sanitize").is_dir() and not (run / "check").is_dir()


def latest(places: Places, suite: str, *, before: str | None = None) -> Record | None:
    """The newest run of this suite that a GPU timed; if there is none, the newest that it measured."""
    newest = None
    for record in measured_runs(places, suite, before=before):
        if record.samples:
            return record
        newest = newest or record
    return newest


def measured_runs(places: Places, suite: str, *, before: str | None = None) -> Iterator[Record]:
    """The runs of this suite that a GPU measured, newest first."""
    return filter(is_readable, opened_runs(places, suite, before=before))


def opened_runs(places: Places, suite: str, *, before: str | None = None) -> Iterator[Record]:
    """As :func:`measured_runs`, with facts that are not read yet."""
    for folder in everywhere(places):
        if before is not None and folder.name >= before:
            continue
        try:
            if _measured(folder, suite) is None:
                continue
            record = opened(folder)
        except (*_DAMAGED, RecordError) as error:
            tell_skipped(folder.name, error)
            continue
        yield record


def is_readable(run: Record) -> bool:
    """Whether the run's facts can be read; if not, says that it is skipped."""
    try:
        len(run.facts)
    except RecordError as error:
        tell_skipped(run.id, error)
        return False
    return True


def tell_skipped(run: str, error: Exception) -> None:
    """Warns that a damaged run is left out: it must not stop a new one."""
    print(f"flashcore: skipped run {run}: {error}", file=sys.stderr)


def recorded_with(places: Places, suite: str, recordings: Collection[str]) -> list[tuple[Traversable, str]]:
    """The measured runs of this suite whose :attr:`Record.recording` is one of these, newest first, and the name of the
    GPU of each."""
    folders = []
    for folder in everywhere(places) if recordings else ():
        with suppress(*_DAMAGED):
            header = _measured(folder, suite)
            if header is not None and header.get("recording", "") in recordings:
                folders.append((folder, str(header["environment"]["gpu"])))
    return folders


def _measured(folder: Traversable, suite: str) -> dict[str, Any] | None:
    """The header of a run of this suite that a GPU measured; of any other ``None``."""
    header: dict[str, Any] = json.loads((folder / HEADER).read_bytes())
    of_suite = header["schema_version"] == SCHEMA_VERSION and header["suite"]["name"] == suite
    return header if of_suite and header["environment"]["gpu"] and header["outcomes"] else None
