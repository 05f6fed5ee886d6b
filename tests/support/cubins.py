"""Recorded cubins, and artifacts of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flashcore.model.record import Artifact
from tests.conftest import TESTS
from tests.recorded import RECORDED

DATA = TESTS / "data"
ARCHS = ("sm_80", "sm_90a")
MANGLED = "_Z6tensorILi4EEvP6__halfPKS0_S3_"


def text(name: str) -> str:
    """A recorded file's text."""
    return (RECORDED / name).read_text(encoding="utf-8")


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    """The recorded sm_90a files as the build would leave them."""
    shutil.copyfile(DATA / "static_sm_90a.cubin", tmp_path / "variant.cubin")
    shutil.copyfile(RECORDED / "static_sm_90a.log", tmp_path / "variant.log")
    (tmp_path / "variant.sass").write_text(text("static_sm_90a.sass"), encoding="utf-8")
    return Artifact("kernels", "sm_90a", "ok", cubin=str(tmp_path / "variant.cubin"), log=str(tmp_path / "variant.log"))


def sample(name: str) -> bytes:
    """A recorded cubin of another compiler."""
    return (RECORDED / f"{name}.cubin").read_bytes()
