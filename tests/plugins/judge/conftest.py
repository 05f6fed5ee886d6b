"""Candidates of a suite that copies bytes, on the stand-in of CUDA's driver."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashcore.pipeline import plugins
from flashcore.plugins.judge.judging import Settings, judge_all
from flashcore.plugins.judge.verdict import Verdict
from flashcore.suites.load import load
from tests.plugins.launcher.conftest import Machine, machine, made

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
def judge(forked: None, machine: Callable[..., Machine], made: Path, tmp_path: Path) -> Judge:
    plugins.load()
    here = machine()

    def judge(cubin: Path | None = None, **changes: Any) -> Verdict:
        environment = {**here.environment, **changes.pop("environment", {})}
        suite = changes.pop("suite", SUITE)
        del environment["LIBCUDA_LOG"]  # it would take time by the host's clock
        folder = written(tmp_path / f"c{len(list(tmp_path.iterdir()))}", cubin or made / "k.cubin", **changes)
        settings = Settings(arch="sm_90a", environment=environment)
        ((_, verdict),) = judge_all([(load(suite), folder)], settings, lambda _: None)
        return verdict

    return judge
