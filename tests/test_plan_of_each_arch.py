"""One build of a suite whose launch plans depend on the arch, on a header that expands it, and on the environment."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.gate.judge import judge
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.record import Built, Facts, Record
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.stages.compiling import compile_all
from flashcore.suites.load import load
from tests import factory
from tests.conftest import TOY, no_disassembler

ARCHS = ("sm_89", "sm_90a")
H200 = Gpu("NVIDIA H200", (9, 0), 132, 1 << 37, 60 << 20, 1980.0, "580.65")
#: Of each variant, what its plan gives as shared memory, and what the source needs for that.
SOURCES = {
    # Not in the text of the host's code: pasted, so that no search for the macro's name finds it.
    "by_arch": (
        "(PASTED(CUDA_ARCH_, LIST) == 890 ? 90112 : 1024)",
        "#define PASTED_(a, b) __##a##b##__\n#define PASTED(a, b) PASTED_(a, b)\n",
    ),
    # Where there is a GPU, plans must not see it: they would differ from those of other machines.
    "by_environment": (
        '(std::getenv("ARCHS_TEST") && std::string(std::getenv("CUDA_VISIBLE_DEVICES")).empty() ? 2048u : 1024u)',
        "#include <cstdlib>\n#include <string>\n",
    ),
}
BUDGET = '\n[[budget]]\nname = "shared"\nfact = "smem"\nmax = 49152\nsource = "a kernel this small"\n'


def write_suite(folder: Path) -> Path:
    shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    manifest, source = (folder / "suite.toml").read_text(), (folder / "scale.cu").read_text()
    head, problem = manifest.split("[variant.plain]", 1)[0].replace("sm_80", "sm_89"), ""
    for name, (smem, needs) in SOURCES.items():
        (folder / f"{name}.cu").write_text(
            needs + source.replace(".block = dim3(256)}", f".block = dim3(256), .dynamic_smem = {smem}}}")
        )
        table = manifest[manifest.index("[variant.plain]") : manifest.index("[variant.wide]")]
        problem += table.replace("variant.plain", f"variant.{name}").replace("scale.cu", f"{name}.cu")
    (folder / "suite.toml").write_text(head.replace('"plain"', '"by_arch"') + problem + BUDGET)
    return folder


def smem(built: Built) -> dict[tuple[str, str], set[object]]:
    """Dynamic shared memory by variant and arch, on all shapes."""
    values: dict[tuple[str, str], set[object]] = {}
    for fact in built.facts:
        if fact.name == "dynamic_smem":
            values.setdefault((fact.subject.variant, fact.subject.arch or ""), set()).add(fact.value)
    return values


def test_each_archs_plan_is_of_the_code_compiled_for_it(
    tmp_path: Path, kept_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = write_suite(tmp_path / "suite")
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)  # no operators

    def built(gpu: Gpu | None = None) -> Built:
        monkeypatch.setattr(Gpu, "find", lambda: gpu)
        with no_disassembler():
            return compile_all(open_context(Settings(str(suite), build=str(kept_folder), roofs=None)))

    fresh = built()
    expected: dict[tuple[str, str], set[object]] = {(name, arch): {1024} for name in SOURCES for arch in ARCHS}
    expected["by_arch", "sm_89"] = {90112}
    assert smem(fresh) == expected
    environment = factory.environment(gpu=None, nvcc=fresh.nvcc)
    record = Record("", "", load(suite), environment, fresh.artifacts, fresh.plans, (), (), Facts(fresh.facts))
    failed = {(v.budget, v.subject.variant, v.subject.arch) for v in judge(record).failed}
    assert failed == {("shared", "by_arch", "sm_89")}

    # A plan is recorded once for all archs on which it is the same, and a library made only where the text differs.
    assert {(p.variant, p.archs) for p in fresh.plans} == {
        *((name, ARCHS) for name in SOURCES if name != "by_arch"),
        *(("by_arch", (arch,)) for arch in ARCHS),
    }
    libraries = {name: {a.plan_library for a in fresh.artifacts if a.variant == name} for name in SOURCES}
    assert {name: len(paths) for name, paths in libraries.items()} == {**dict.fromkeys(SOURCES, 1), "by_arch": 2}

    # From the cache, and with the other arch as the GPU's, the answers are the same.
    again = built()
    assert all(a.cached for a in again.artifacts)
    assert (again.plans, again.facts) == (fresh.plans, fresh.facts)
    turned = built(gpu=replace(H200, capability=(8, 9)))
    assert set(turned.plans) == set(fresh.plans) and smem(turned) == expected

    # An answer that may change is asked for each time.
    monkeypatch.setenv("ARCHS_TEST", "1")
    expected |= {("by_environment", arch): {2048} for arch in ARCHS}
    assert smem(built()) == expected
