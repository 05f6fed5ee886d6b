"""Candidates of a suite that copies bytes, on the stand-in of CUDA's driver."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extensions.judge.tests.driver import Machine, machine, made
from flashcore.chips import devices
from flashcore.machine import gpu_choice
from flashcore.machine.gpu import Gpu
from flashcore.pipeline import plugins
from flashcore.suites.load import load
from flashcore_judge import measuring
from flashcore_judge.judging import judge_all
from flashcore_judge.verdict import Verdict

__all__ = ["machine", "made"]
SUITE = Path(__file__).parent / "suite"
Judge = Callable[..., Verdict]
LAUNCH: dict[str, Any] = {
    "cubin": "k.cubin",
    "kernel": "copy_bytes",
    "grid": ["=cdiv(N, N)", 1, 1],
    "block": [128, 1, 1],
    "arguments": [[{"tensor": "x"}], [{"tensor": "y"}], [{"int32": "=N"}]],
}


def written(folder: Path, cubin: Path | None = None, **changes: Any) -> Path:
    """A candidate's folder."""
    folder.mkdir()
    if cubin:
        shutil.copyfile(cubin, folder / "k.cubin")
    form = {"name": "copy", "problem": "copy", "tolerance": "exact", "launches": [LAUNCH]}
    (folder / "candidate.json").write_text(json.dumps({**form, **changes}))
    return folder


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the machine GPUs of these names, on which nothing can run without a stand-in."""

    def gpus(*names: str) -> None:
        one = Gpu("Stand-in", (9, 0), 8, 0, 0, 0.0, "")
        monkeypatch.setattr(gpu_choice, "visible", lambda: dict.fromkeys(names, one))
        monkeypatch.setattr(gpu_choice, "leases", lambda *_: contextlib.nullcontext())

    gpus("GPU-a")
    return gpus


@pytest.fixture
def stand_in(machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials use the stand-in of CUDA's driver, a GPU whose datasheet is known."""
    monkeypatch.setattr(devices, "find", lambda _: devices.load()["h100"])
    environment = machine().environment
    del environment["LIBCUDA_LOG"]  # type: ignore[attr-defined]  # it would take time by the host's clock
    for name in ("LD_LIBRARY_PATH", "LIBCUDA_PARAMETERS"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setattr(measuring, "_VARIABLES", (*measuring._VARIABLES, "LIBCUDA_"))


@pytest.fixture
def busy_host(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in on a machine that may interrupt every call: the host's clock rejects no candidate."""
    monkeypatch.setitem(measuring._CLOCKS, "host", (1.1, 1e6))


@pytest.fixture
def judge(
    forked: None, busy_host: None, gpus: object, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Judge:
    plugins.load()

    def judge(cubin: Path | None = None, **changes: Any) -> Verdict:
        for name, value in changes.pop("environment", {}).items():
            monkeypatch.setenv(name, value)
        suite = changes.pop("suite", SUITE)
        folder = written(tmp_path / f"c{len(list(tmp_path.iterdir()))}", cubin or made / "k.cubin", **changes)
        ((_, verdict),) = judge_all(load(suite), [folder], lambda _: None)
        return verdict

    return judge
