"""A run's record of its machine and of its sources' commit."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from flashcore.machine import environment, toolchain
from flashcore.machine.environment import of_this_machine
from flashcore.machine.gpu import Gpu
from flashcore.model.record import Environment
from tests.support.repositories import git


def recorded(root: Path, gpu: Gpu | None = None) -> Environment:
    return of_this_machine(root, None, gpu, "sm_90a" if gpu else None, "2026.1")


def test_the_only_gpu_is_named_with_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "limits", {"GPU-1": "700 W"}.get)
    made = of_this_machine(tmp_path, None, Gpu("NVIDIA H200", (9, 0), 132, 150, 60, 1980.0, "580"), None, None, "GPU-1")
    assert (made.gpu_uuid, made.gpu_limits) == ("GPU-1", "700 W")
    assert (recorded(tmp_path).gpu_uuid, recorded(tmp_path).gpu_limits) == (None, None)


def test_the_commit_and_whether_tracked_files_differ_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLASHCORE_COMMIT", raising=False)
    assert (recorded(tmp_path).git_commit, recorded(tmp_path).git_dirty) == (None, None)
    git(tmp_path, "init", "-q")
    assert (recorded(tmp_path).git_commit, recorded(tmp_path).git_dirty) == (None, None), "there is no commit yet"
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "untracked").touch()
    head = git(tmp_path, "rev-parse", "HEAD")
    assert (recorded(tmp_path).git_commit, recorded(tmp_path).git_dirty) == (head, False)
    (tmp_path / "a").write_text("2")
    assert (recorded(tmp_path).git_commit, recorded(tmp_path).git_dirty) == (head, True)
    monkeypatch.setenv("FLASHCORE_COMMIT", "given")
    assert (recorded(tmp_path).git_commit, recorded(tmp_path).git_dirty) == ("given", None), "of a copy elsewhere"
    monkeypatch.setenv("FLASHCORE_COMMIT", "given-dirty")
    assert (recorded(tmp_path).git_commit, recorded(tmp_path).git_dirty) == ("given", True)


def test_the_machine_its_gpu_and_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "version_of", {"numpy": "2.1", "torch": "2.11", "nvidia-cuda-runtime": "13"}.get)
    gpu = Gpu("NVIDIA H200", (9, 0), 132, 150, 60, 1980.0, "580")
    made, bare = recorded(tmp_path, gpu), recorded(tmp_path)
    assert (made.gpu, made.gpu_sms, made.gpu_memory_bytes, made.gpu_l2_bytes) == ("NVIDIA H200", 132, 150, 60)
    assert (made.gpu_sm_clock_mhz, made.driver, made.gpu_arch) == (1980.0, "580", "sm_90a")
    assert (bare.gpu, bare.gpu_sms, bare.driver) == (None, None, None)
    assert (made.libraries, made.torch, made.cuda_runtime, made.ncu, made.nvcc) == (
        {"numpy": "2.1"}, "2.11", "13", "2026.1", None
    )  # fmt: skip
    models = {
        line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "name" in line
    }
    assert made.cpu in (models or {platform.machine()})


@pytest.mark.parametrize(("given", "host"), [("ci", "ci"), ("", None), (None, platform.node())])
def test_the_host_has_the_name_that_the_user_gives(
    given: str | None, host: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLASHCORE_HOST", raising=False)
    if given is not None:
        monkeypatch.setenv("FLASHCORE_HOST", given)
    assert recorded(tmp_path).host == host
