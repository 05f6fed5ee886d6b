"""The build's data on the profiled code: variants with phases, and the registers of this GPU's kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.build import static_facts
from flashcore.machine import toolchain
from flashcore.model.record import Built
from flashcore.model.suite import CudaSource
from flashcore.stages.profile import code
from tests import factory
from tests.support import staged


def test_registers_are_those_of_this_gpus_kernels(tmp_path: Path) -> None:
    built = Built("", (), (), (
        factory.fact("registers", 40, "fast", arch="sm_90a", kernel="a"),
        factory.fact("registers", 50, "fast", arch="sm_90a", kernel="b"),
        factory.fact("registers", 60, "fast", arch="sm_80", kernel="a"),
        factory.fact("registers", None, "slow", arch="sm_90a", kernel="c"),
        factory.fact("stack_bytes", 8, "slow", arch="sm_90a", kernel="c"),
        factory.fact("registers", 70, "slow", arch="sm_90a"),
    ))  # fmt: skip
    context = staged.context(tmp_path, gpu_arch="sm_90a", built=built)
    assert code.registers(context) == {"fast": {"a": 40, "b": 50}}


def test_only_cubins_of_this_gpu_are_searched_for_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"plain": "void f() {}\n", "marked": "void f() {\n// phase: load\n}\n"}
    for name, text in sources.items():
        (tmp_path / f"{name}.cu").write_text(text)
    variants = [factory.variant(name, kind=CudaSource(f"{name}.cu")) for name in sources]
    suite = factory.suite([*variants, factory.reference()], baseline="plain", root=str(tmp_path))
    cubin = str(tmp_path / "x.cubin")
    artifacts = (
        factory.artifact("plain", "sm_90a", cubin=cubin),
        factory.artifact("marked", "sm_80", cubin=cubin),
        factory.artifact("marked", "sm_90a"),
        replace(factory.artifact("marked", "sm_90a", cubin=cubin), status="failed"),
    )
    read: list[Path] = []
    monkeypatch.setattr(toolchain, "optional_tool", lambda name: None)

    def listing(path: Path, disassembler: object) -> dict[str, object]:
        read.append(path)
        return {}

    monkeypatch.setattr(static_facts, "listing", listing)
    made = staged.context(tmp_path, gpu_arch="sm_90a", built=Built("", artifacts, ()))
    context = replace(made, suite=suite, variants=(*variants, factory.reference()))
    code_of = code.codes(context)
    assert not any(code_of(variant.name) for variant in context.variants) and read == [Path(cubin)]
    assert [*code.marked(context)] == ["marked"]


def test_a_language_names_its_kernels_as_its_plan_does(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "data" / "static_sm_90a.cubin"  # tensor<4>, shared, spills, stack, warned
    cubins = {"shared<num_warps=4>": str(file), "softmax": str(file)}
    artifacts = tuple(factory.artifact(f"of_{n}", "sm_90a", cubins={n: f}) for n, f in cubins.items())
    context = staged.context(tmp_path, gpu_arch="sm_90a", built=Built("", artifacts, ()))
    names = code.names(context)
    assert names["of_softmax"]["tensor<4>"] == "softmax" and "shared" not in names["of_shared<num_warps=4>"]
