"""What a run stores when it begins, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.measure.context import Say
from flashcore.measure.settings import Settings
from flashcore.model.files import PARTIAL, write_atomically
from flashcore.records import lookup
from flashcore.suites.load import load

_FILE = "settings.json"


def remember(folder: Path, settings: Settings, closures: Mapping[str, str]) -> None:
    """Writes down what a run begins with: the user's choice and the sources."""
    data = {"settings": asdict(settings), "closures": closures}
    write_atomically(folder / _FILE, json.dumps(data).encode())


def forget(folder: Path) -> None:
    """A complete run has nothing to resume."""
    (folder / _FILE).unlink(missing_ok=True)


def require_same(folder: Path, closures: Mapping[str, str]) -> None:
    """Only the sources that a run began with may be measured into it.

    Raises:
        UsageError: they have changed.
    """
    began = _began(folder)[1]
    if began.keys() != closures.keys():
        raise UsageError(
            f"{folder}: expected the variants and archs that the run began with "
            f"({', '.join(sorted({name.split()[1] for name in began}))}), found others "
            f"({', '.join(sorted({name.split()[1] for name in closures}))})\n"
            "  hint: resume on the machine where it began, or record a new run (without --resume)"
        )
    if began != closures:
        raise UsageError(
            f"{folder}: expected the sources that the run began with, found others\n"
            "  hint: record a new run (without --resume); the old folder can be deleted"
        )


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The runs of a command that did not end.

    Args:
        folder: the folder of the run to continue.
        settings: the user's choice when that run began, except for GPUs that are chosen anew.
        ended: the complete runs before it.
        not_begun: the settings of the runs to record after it.
    """

    folder: Path
    settings: Settings
    ended: Sequence[Traversable] = ()
    not_begun: Sequence[Settings] = ()


def unfinished(settings: Settings, say: Say) -> Unfinished:
    """The newest run of this suite that did not end. If its command records several runs and the GPUs are not chosen
    anew, also the others.

    Raises:
        UsageError: there is none.
    """
    folder, began = _newest(settings)
    several = began.gpus in began.kinds
    rest = began.kinds[began.kinds.index(began.gpus) + 1 :] if several else ()
    ended: list[Traversable] = []
    resumed = began
    if settings.chooses_gpus:  # one that it began on may no longer be there
        resumed = replace(began, gpus=settings.gpus, executor=settings.executor)
        if rest:
            say(f"resume: only the run that did not end; not begun: {'; '.join(f'--gpus {gpus}' for gpus in rest)}")
            rest = ()
    elif several:
        recorded = lookup.recorded_with(Path(began.profiles), load(began.suite).name, {began.recording})
        for run, gpu in reversed(recorded):
            say(f"resume: {run.name} on {gpu} had ended")
            ended.append(run)
    say(f"resume: {folder.name.removesuffix(PARTIAL)}, begun as: {began.command}")
    return Unfinished(folder, resumed, ended, [replace(began, gpus=gpus) for gpus in rest])


def _newest(settings: Settings) -> tuple[Path, Settings]:
    torn = ""
    for folder in lookup.unfinished(Path(settings.profiles)):
        try:
            began, _ = _began(folder)
        except UsageError as error:
            torn = f"\n  skipped: {error}"
            continue
        if began.suite == settings.suite:
            return folder, began
    raise UsageError(f"{settings.profiles}: expected an unfinished run of {settings.suite} to resume, found none{torn}")


def _began(folder: Path) -> tuple[Settings, dict[str, str]]:
    """What the user chose when a run began, and the closures of its builds.

    Raises:
        UsageError: it was not written completely, or by another version.
    """
    try:
        data = json.loads((folder / _FILE).read_bytes())
        settings = Settings.from_json(data["settings"])
        closures = {str(k): str(v) for k, v in data["closures"].items()}
        if any(" " not in k for k in closures) or not isinstance(settings.suite, str):
            raise ValueError("names of another form")
        return settings, closures
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{folder / _FILE}: expected what the run began with, found something else: {error}\n"
            "  hint: record a new run (without --resume); the old folder can be deleted"
        ) from error
