"""Nsight Compute: where it is found, and how it names what it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import ncu, toolchain
from tests.conftest import TESTS

STANDIN = TESTS / "standins" / "ncu"


def test_find_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{STANDIN.parent}{os.pathsep}{os.environ['PATH']}")
    assert ncu.find_ncu() == STANDIN
    assert toolchain.tool_version(STANDIN) == "2025.3.1.0"
    with pytest.raises(CapabilityError, match="no Nsight Compute at /no/such/ncu"):
        ncu.find_ncu("/no/such/ncu")
    for release in ("2024.3.2", "2025.10.0", "2025.9.1"):
        (tmp_path / release).mkdir()
        shutil.copy("/bin/true", tmp_path / release / "ncu")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "_INSTALLED", tmp_path)
    monkeypatch.setattr(ncu, "CUDA", str(tmp_path / "2025.9.1"))
    assert ncu.find_ncu() == tmp_path / "2025.9.1" / "ncu"
    monkeypatch.setattr(ncu, "CUDA", str(tmp_path))
    assert ncu.find_ncu() == tmp_path / "2025.10.0" / "ncu"
    monkeypatch.setattr(ncu, "_INSTALLED", tmp_path / "none")
    with pytest.raises(CapabilityError) as caught:
        ncu.find_ncu()
    assert caught.value.exit_code == 4


def test_a_relative_path_is_that_of_the_same_program_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    for folder in (tmp_path, tmp_path / "here"):
        shutil.copy("/bin/true", folder / "ncu")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ncu.find_ncu("./ncu") == tmp_path / "here" / "ncu" and ncu.find_ncu("ncu") == tmp_path / "ncu"
    monkeypatch.setattr(ncu, "CUDA", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert ncu.find_ncu() == tmp_path / "ncu", "an empty PATH is no folder"


def test_an_import_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NCU_STANDIN", "slow")
    with pytest.raises(FlashcoreError, match="did not finish within"):
        ncu.raw_page_of(STANDIN, tmp_path / "r.ncu-rep", time_limit=1.0)


@pytest.mark.parametrize(
    "line",
    [
        "==ERROR== Failed to find metric derived__local_spilling_requests",
        r"==ERROR== Failed to find metric regex:^derived__local_spilling_requests(\.(sum|min|max|avg|pct|ratio))?$",
        r"==ERROR== Failed to find metric regex:^derived__local_spilling_requests\.(sum|min|max|avg)$",
    ],
)
def test_how_ncu_names_what_it_refuses(line: str) -> None:
    requested = [
        "derived__local_spilling_requests",
        "derived__local_spilling_requests.sum",
        "derived__local_spilling_requests_pct",
        "a.sum",
    ]
    assert set(ncu.refused_metrics(f"==PROF== x\n{line}\n", requested)) == set(requested[:2])
    assert ncu.refused_metrics("Failed to find metric a.sum", requested) == {}, "the target's words are not ncu's"
