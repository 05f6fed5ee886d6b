"""The machine's parts determine the supported stages; a missing part has a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.cli import doctor
from flashcore.errors import CapabilityError
from flashcore.measure.machine import ncu, toolchain
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.sanitize import sanitize

BUILD = "nvcc,host compiler,ninja"


@pytest.mark.parametrize(
    ("parts", "can"),
    [
        ("", []),
        ("jinja2", []),
        ("jinja2,numpy", ["report"]),
        ("nvcc,ninja,torch,GPU,ncu,nvtx", []),
        (BUILD, ["build, static gate"]),
        (f"{BUILD},torch,ncu,nvtx", ["build, static gate"]),
        (f"{BUILD},torch,GPU,ncu", ["build, static gate", "check, bench"]),
        (f"{BUILD},torch,GPU,ncu,nvtx,jinja2,numpy",
         ["build, static gate", "check, bench", "profile (if counters may be read)", "report"]),
    ],
)  # fmt: skip
def test_abilities_follow_from_parts(parts: str, can: list[str]) -> None:
    assert doctor.abilities(parts.split(",")) == can


def test_each_part_is_there_with_its_version_or_missing_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu("NVIDIA L4", (8, 9), 58, 1, 1, 1.0, "580")
    versions = {"torch": "2.11", "numpy": "2"}

    def lacks_ncu() -> str:
        raise CapabilityError("no ncu", "install it")

    monkeypatch.setattr(Gpu, "find", lambda: gpu)
    monkeypatch.setattr(toolchain, "version_of", versions.get)
    monkeypatch.setattr(toolchain, "torch_root", lambda: Path("/torch"))
    monkeypatch.setattr(ncu, "find_ncu", lacks_ncu)
    parts = {part.name: part for part in doctor.examine()}
    assert parts["GPU"].text == "ok       GPU: NVIDIA L4, compute capability 8.9, 58 SMs, driver 580"
    assert parts["torch"].text == "ok       torch: 2.11 at /torch"
    assert parts["ncu"].text == "missing  ncu (profile): no ncu\n  hint: install it"
    assert parts["numpy"].found and not parts["jinja2"].found and "pip install" in parts["jinja2"].mend
    monkeypatch.setattr(Gpu, "find", lambda: None)
    assert not {part.name: part for part in doctor.examine()}["GPU"].found


def test_a_tool_is_told_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"ncu": "2026.1", "compute-sanitizer": None}
    monkeypatch.setattr(ncu, "find_ncu", lambda: Path("/bin/ncu"))
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: Path("/bin/compute-sanitizer"))
    monkeypatch.setattr(toolchain, "tool_version", lambda program: versions[program.name])
    parts = {part.name: part.detail for part in doctor.examine()}
    assert parts["ncu"] == "2026.1 at /bin/ncu"
    assert parts["compute-sanitizer"] == "of an unknown version at /bin/compute-sanitizer"
