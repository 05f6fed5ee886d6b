"""Contexts and pools for tests of stages, and stages that are stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.build import build
from flashcore.model.settings import Limits, Settings
from flashcore.runner.journal import Task, TaskResult
from flashcore.runner.process import Command, Place, Program
from flashcore.runner.queue import Pool
from flashcore.stages.context import Context
from tests import factory


def context(folder: Path, baseline: str = "", **changes: Any) -> Context:
    """A context on the CPU whose stages write into ``folder``; ``changes`` of its fields, or of its settings'."""
    suite = factory.suite()
    suite = replace(suite, baseline=baseline or suite.baseline)
    settings = {k: changes.pop(k) for k in list(changes) if k in Settings.__dataclass_fields__}
    chosen = Settings("suite", build=str(folder / "build"), **settings)
    made = Context(chosen, suite, None, None, build.Options(), (), (), folder=folder, device="cpu")
    return replace(made, **changes)


def program(command: Command, **options: Any) -> Program:
    """A program; options are its own, or those of its limits."""
    program_options = {k: options.pop(k) for k in list(options) if k in Program.__dataclass_fields__}
    return Program(command=command, limits=Limits(**options), **program_options)


def run(
    tasks: Sequence[Task], folder: Path, command: Command, places: Sequence[Place] = (), **options: Any
) -> list[TaskResult]:
    """The tasks in a pool of their own; options as of :func:`program`, and ``on_result``."""
    seen = options.pop("on_result", lambda result: None)
    with Pool(places) as pool:
        return pool.run(tasks, program(command, **options), folder, seen)
