"""What a run begins with: the suite as the user asks for it, and the machine's roofs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.model.settings import Settings
from flashcore.pipeline import resume
from flashcore.pipeline import run as run_module
from flashcore.records import store
from flashcore.stages.context import Context
from tests import factory
from tests.conftest import TOY


def test_an_interrupted_run_is_continued_on_the_gpus_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run itself is a stand-in."""
    began = Settings(str(TOY), profiles=str(tmp_path), gpus="GPU-b")
    resume.remember(folder := store.begin(tmp_path, "20260102T050000Z-0003"), began, {}, "")
    runs: list[tuple[str, Path | None]] = []

    def run(context: Context, resumed: Path | None = None) -> run_module.RecordedRun:
        runs.append((context.settings.gpus, resumed))
        return run_module.RecordedRun(factory.record(), tmp_path, context.settings)

    monkeypatch.setattr(run_module, "run", run)
    for gpus in ("all", "GPU-z"):
        run_module.record_run(replace(began, gpus=gpus), print, resume=True)
    assert runs == [("GPU-b", folder), ("GPU-z", folder)]
