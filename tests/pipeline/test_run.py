"""What a run begins with: the suite as the user asks for it, and the machine's roofs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.machine.gpu import Gpu
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.pipeline import resume, roofs
from flashcore.pipeline import run as run_module
from flashcore.records import store
from flashcore.runner.queue import Pool
from flashcore.stages.context import Context
from tests import factory
from tests.conftest import TOY, published_run
from tests.support import staged


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


# --- roofs: measured once for a machine; another GPU, driver or limit makes it another machine ---

RUN = "20261201T113945Z-7c3c"


class Host:
    """An executor with one GPU."""

    def __init__(self, uuid: str, gpu: Gpu) -> None:
        self.gpus = {uuid: gpu}

    def places(self, requested: str, say: object) -> tuple[dict[str, Gpu], Pool]:
        return self.gpus, Pool()


@pytest.fixture
def recorded(tmp_path: Path) -> Record:
    """The only run of a folder: of the roofs of one of two GPUs."""
    shutil.copy(Path(__file__).parents[2] / "profiles" / f"{RUN}.run.zip", tmp_path)
    return store.read(published_run(RUN))


def chosen(
    recorded: Record,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    uuid: str = "",
    limits: str | None = None,
    fresh: bool = False,
    **changes: Any,
) -> str:
    """The run whose roofs are used by a machine like the recorded one, but for the changes."""
    e = recorded.environment
    assert e.gpu and e.gpu_memory_bytes and e.gpu_sm_clock_mhz and e.driver
    gpu = Gpu(e.gpu, (9, 0), 132, e.gpu_memory_bytes, 1, e.gpu_sm_clock_mhz, e.driver)
    host = Host(uuid or (e.gpu_uuid or ""), replace(gpu, **changes))
    monkeypatch.setattr(run_module, "executor_of", lambda settings: host)
    monkeypatch.setattr(roofs, "limits", lambda uuid: limits or e.gpu_limits)
    context = staged.context(folder)
    monkeypatch.setattr(run_module, "open_recordable", lambda settings, say, *, needs_gpu: context)
    measured = replace(recorded, id="20270101T000000Z-0001")
    monkeypatch.setattr(run_module, "run", lambda context: run_module.RecordedRun(measured, folder, context.settings))
    record, _ = run_module.measure_roofs(Settings("suite", profiles=str(folder)), lambda _: None, fresh=fresh)
    return record.id


def test_the_same_machine_has_the_roofs_that_it_had(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(recorded, tmp_path, monkeypatch) == RUN


@pytest.mark.parametrize(
    "change",
    [
        {"fresh": True},
        {"uuid": "GPU-00000000-0000-0000-0000-000000000000"},
        {"limits": "500 W, 1500 MHz"},
        {"driver": "999.1"},
        {"max_sm_clock_mhz": 1755.0},
        {"memory_bytes": 1},
        {"name": "NVIDIA H100"},
    ],
)
def test_another_machine_is_measured(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    assert chosen(recorded, tmp_path, monkeypatch, **change) != RUN


# --- roofs while the build runs ------------------------------------------------------------------
