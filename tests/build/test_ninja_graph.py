"""The order in which ninja starts compilations."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from flashcore.build.ninja_graph import Programs, graph
from flashcore.build.unit import CUBIN, PLAN, Unit
from flashcore.machine.toolchain import Nvcc
from flashcore.suites import load
from tests.conftest import TOY


def test_the_gpus_arch_is_first_and_of_an_arch_the_last_variants(tmp_path: Path) -> None:
    suite = load.load(TOY)
    variants = [replace(suite.variants["plain"], name=name) for name in "abc"]
    units = [
        Unit(v, arch, tmp_path / f"{v.name}-{arch}", "", (), (CUBIN, PLAN) if arch == "sm_90a" else (CUBIN,))
        for v in variants
        for arch in ("sm_80", "sm_90a", "sm_100a")
    ]
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudart_static.a").touch()
    programs = Programs(Nvcc(tmp_path / "nvcc", tmp_path, "13.0", "13.0.88"), tmp_path / "g++", None, None)
    text = graph(suite, units, {"scale": tmp_path}, programs)
    order = re.findall(r"what = (\w) (sm_\w+)$", text, re.MULTILINE)
    assert order[:3] == [("c", "sm_90a"), ("b", "sm_90a"), ("a", "sm_90a")] and len(order) == 9
    assert [name for name, _ in order[3:]] == [*"ccbbaa"]
