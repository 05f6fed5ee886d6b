"""``flashcore diff`` of git revisions, which are built here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.measure.settings import Settings
from flashcore.model.record import Record
from flashcore.pipeline.recording import present
from flashcore.plugins.against import checkout
from flashcore.plugins.compare import command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds none: a revision is another kind of name for a record."""


def run(arguments: argparse.Namespace) -> int:
    return command.compare(arguments, record)


def record(name: str, settings: Settings, say: Callable[[str], None]) -> Record:
    """Returns the record of a name: a run, the working tree (``.``), or a git revision.

    A revision's record has static facts, joined with recorded ones that are fresh for its code.

    Raises:
        UsageError: it is neither, or the suite is not in that revision.
        CapabilityError: there is no git, or no nvcc to build with.
    """
    try:
        return command.record(name, settings, say)
    except UsageError as error:
        commit = checkout.resolve(name, Path(settings.suite))
        if commit is None:
            raise UsageError(
                f"{name}: expected a recorded run, a git revision or '.', found neither\n  {error}"
            ) from None
    with checkout.suite_at(name, commit, Path(settings.suite)) as suite:
        say(f"revision: {name} is {commit[:12]}")
        build = str(Path(settings.build) / checkout.BUILD)
        made = present(replace(settings, suite=str(suite), build=build, reuse=settings.build), say)
        # Its folder is removed soon: the record must not name files there.
        root = replace(made.suite, root=settings.suite)
        return replace(made, id=f"{name} ({commit[:12]})", suite=root)
