"""Roofs: measured once for a machine; another GPU, driver or limit makes it another machine."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.machine.gpu import Gpu
from flashcore.model.progress import silent
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.pipeline import measure_roofs
from flashcore.records import store
from flashcore.runner.queue import Pool
from tests.conftest import published_run
from tests.support import staged

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
    monkeypatch.setattr(measure_roofs, "executor_of", lambda settings: host)
    monkeypatch.setattr(measure_roofs, "limits", lambda uuid: limits or e.gpu_limits)
    context = staged.context(folder)
    monkeypatch.setattr(measure_roofs, "open_recordable", lambda settings, say, *, needs_gpu: context)
    measured = replace(recorded, id="20270101T000000Z-0001")
    settings = Settings("suite", profiles=str(folder))
    record, found = measure_roofs.measure_roofs(settings, silent, lambda _: measured, fresh=fresh)
    assert len(found) > 30
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
