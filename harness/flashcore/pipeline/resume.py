"""Stores the settings and sources that a run begins with, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.model.files import PARTIAL, write_atomically
from flashcore.model.progress import Say
from flashcore.model.settings import Check, Settings
from flashcore.records import lookup

_FILE = "settings.json"


def remember(folder: Path, settings: Settings, source_hashes: Mapping[str, str], gpu: str) -> None:
    """Stores the settings, the source hashes and the GPU model that a run begins with."""
    data = {"settings": asdict(settings), "source_hashes": source_hashes, "gpu": gpu}
    write_atomically(folder / _FILE, json.dumps(data).encode())


def forget(folder: Path) -> None:
    """Removes the stored settings of a complete run."""
    (folder / _FILE).unlink(missing_ok=True)


def require_same(folder: Path, source_hashes: Mapping[str, str], gpu: str) -> None:
    """Requires the sources and the GPU model that a run began with.

    Raises:
        UsageError: the sources changed, or this GPU is of another model.
    """
    _, began, model = _began(folder)
    before, now = (
        ", ".join([gpu_model, *sorted({name.split()[1] for name in names})])
        for gpu_model, names in [(model, began), (gpu, source_hashes)]
    )
    if before != now or began.keys() != source_hashes.keys():
        raise UsageError(
            f"{folder}: expected the GPU, archs and variants that the run began with ({before}), found others ({now})\n"
            "  hint: resume on the machine where it began, or record a new run (without --resume)"
        )
    if began != source_hashes:
        raise UsageError(
            f"{folder}: the sources changed since the run began\n"
            "  hint: record a new run (without --resume); the old folder can be deleted"
        )


def unfinished(settings: Settings, say: Say) -> tuple[Path, Settings]:
    """The folder of the newest unfinished run of this suite, and the settings that it began with, but for newly
    selected GPUs (the run's may be gone) and a time limit that is not the default (what is left may need longer).

    Raises:
        UsageError: there is no unfinished run.
    """
    folder, began = _newest(settings)
    if settings.chooses_gpus:
        began = replace(began, gpus=settings.gpus, executor=settings.executor)
    if (limit := settings.check.limits.time_limit) != Check().limits.time_limit:
        began = began.with_time_limit(limit)
    say(f"resume: {folder.name.removesuffix(PARTIAL)}, begun as: {began.command}")
    return folder, began


def _newest(settings: Settings) -> tuple[Path, Settings]:
    torn = ""
    for folder in lookup.unfinished(Path(settings.profiles)):
        try:
            began, *_ = _began(folder)
        except UsageError as error:
            torn = f"\n  skipped: {error}"
            continue
        if began.suite == settings.suite:
            return folder, began
    raise UsageError(f"{settings.profiles}: expected an unfinished run of {settings.suite} to resume, found none{torn}")


def _began(folder: Path) -> tuple[Settings, dict[str, str], str]:
    """The settings that a run began with, its builds' source hashes, and its GPU model.

    Raises:
        UsageError: the file is incomplete, or another version wrote it.
    """
    try:
        data = json.loads((folder / _FILE).read_bytes())
        settings = Settings.from_json(data["settings"])
        source_hashes = {str(k): str(v) for k, v in data["source_hashes"].items()}
        if any(" " not in k for k in source_hashes) or not isinstance(settings.suite, str):
            raise ValueError("unexpected names")
        return settings, source_hashes, str(data["gpu"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{folder / _FILE}: expected the settings that the run began with: {error}\n"
            "  hint: record a new run (without --resume); the old folder can be deleted"
        ) from error
