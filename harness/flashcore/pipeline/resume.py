"""What a run stores when it begins, so that it can be resumed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.measure.settings import Settings
from flashcore.model.files import write_atomically
from flashcore.records import lookup

_FILE = "settings.json"


def remember(folder: Path, settings: Settings, closures: Mapping[str, str]) -> None:
    """Writes down what a run begins with: the user's choice and the sources."""
    data = {"settings": dataclasses.asdict(settings), "closures": closures}
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


def unfinished(settings: Settings) -> tuple[Path, Settings]:
    """The newest run of this suite that did not end, and what the user chose when it began.

    Raises:
        UsageError: there is none.
    """
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
