"""Planted regressions: the gate names every fault rightly, and stays silent on every harmless change.

Faults and harmless changes of code go through the real compiler: each is the suite's one kernel with one
edit, built as a variant of its own and then judged as if it were the sound one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flashcore.build import build, launch_plan
from flashcore.build import static_facts as facts_module
from flashcore.build.unit import CUBIN
from flashcore.errors import Exit
from flashcore.gate import baseline, judge
from flashcore.gate.baseline import Baseline
from flashcore.gate.judge import Judgement
from flashcore.machine import toolchain
from flashcore.model.record import Artifact, Plan, Record
from flashcore.model.suite import Suite
from flashcore.suites import load as suite_module
from tests import factory
from tests.conftest import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("whole_cuda_headers")]
PLANTED = TESTS / "suites" / "planted"
TODAY = date(2026, 6, 1)
Edits = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Code:
    """One change of the kernel. ``blame`` is the budget that must fail; empty if the change is harmless."""

    name: str
    edits: Edits
    blame: str = ""
    code: Exit = Exit.OK


def fault(name: str, blame: str, *edits: tuple[str, str], code: Exit = Exit.FAILED) -> Code:
    return Code(name, edits, blame, code)


def harmless(name: str, *edits: tuple[str, str]) -> Code:
    return Code(name, edits)


LOAD = """    const float4 wide = reinterpret_cast<const float4*>(x + base + kTile / 2)[t];
    sum += wide.x + wide.y + wide.z + wide.w;
"""
STORE = "    reinterpret_cast<float4*>(out + base)[t] = make_float4(c[0] * factor, c[1], c[2], c[3] + sum);\n"
BOUNDS = "__launch_bounds__(kThreads)"
MANY = """    float many[%d];
#pragma unroll
    for (int i = 0; i < %d; ++i) many[i] = tile[(t + i * 7) %% kTile];
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < %d; ++i) many[i] = many[i] * many[(i * 7 + 1) %% %d] + factor;
    }
#pragma unroll
    for (int i = 0; i < %d; ++i) sum += many[i];
"""

CODE_FAULTS = [
    fault(
        "register_cap",
        "baseline_spill_store_bytes",
        (BOUNDS, "__launch_bounds__(kThreads, 8)"),
        (LOAD, LOAD + MANY % ((48,) * 5)),
    ),
    fault("more_registers", "baseline_registers", (LOAD, LOAD + MANY % ((64,) * 5))),
    fault("occupancy_by_registers", "baseline_theoretical_occupancy", (LOAD, LOAD + MANY % ((96,) * 5))),
    fault(
        "barrier_in_loop",
        "baseline_sass_bar",
        (
            "      multiply(c, a, b);\n      __syncthreads();\n",
            "      __syncthreads();\n      multiply(c, a, b);\n      __syncthreads();\n",
        ),
    ),
    fault("barrier_outside", "baseline_sass_bar", (STORE, "    __syncthreads();\n" + STORE)),
    fault(
        "narrow_loads",
        "baseline_sass_ldg_128",
        (
            LOAD,
            """    for (int i = 0; i < 4; ++i)
      sum += x[base + kTile / 2 + i * kThreads + t];
""",
        ),
    ),
    fault(
        "narrow_stores",
        "baseline_sass_stg_128",
        (
            STORE,
            """    out[base + t] = c[0] * factor;
    out[base + kThreads + t] = c[1] + c[2];
    out[base + 2 * kThreads + t] = c[3] + sum;
""",
        ),
    ),
    fault(
        "twice_the_shared_memory",
        "baseline_smem",
        ("tile[kTile];", "tile[2 * kTile];"),
        ("tile[t ^ 1]", "tile[t ^ 1 + kTile]"),
    ),
    fault(
        "occupancy_by_shared_memory",
        "baseline_theoretical_occupancy",
        ("tile[kTile];", "tile[5 * kTile];"),
        ("tile[t ^ 1]", "tile[(t ^ 1) + 4 * kTile]"),
    ),
    fault(
        "tensor_cores_lost",
        "baseline_sass_hmma",
        (
            "      multiply(c, a, b);\n",
            """      for (int i = 0; i < 4; ++i)
        c[i] += __uint_as_float(a[i]) * __uint_as_float(b[i & 1]);
""",
        ),
    ),
    fault(
        "asynchronous_copy_lost",
        "baseline_sass_ldgsts",
        (
            "    copy_async(tile + 4 * t, x + base + 4 * t);\n",
            "    reinterpret_cast<float4*>(tile)[t] = reinterpret_cast<const float4*>(x + base)[t];\n",
        ),
    ),
    fault("run_time_index", "baseline_stack_bytes", ("(step & 1) ? c[1] : c[0]", "c[step & 3]")),
    fault("workspace", "baseline_workspace_bytes", ("p.workspace_bytes = 0;", "p.workspace_bytes = 4 * s.N;")),
    fault(
        "smaller_blocks_on_an_sm",
        "baseline_theoretical_occupancy",
        ("block = dim3(kThreads)", "block = dim3(kThreads), .dynamic_smem = 64 * 1024"),
    ),
    fault("does_not_compile", "builds", ("float sum = 0;", "flaot sum = 0;")),
    fault("plan_of_another_kernel", "as_planned", ('.kernel = "planted_kernel"', '.kernel = "planted_kernel_v2"')),
    fault("block_beyond_launch_bounds", "as_planned", ("block = dim3(kThreads)", "block = dim3(2 * kThreads)")),
    fault(
        "plan_crashes",
        "as_planned",
        ("  flashcore::Plan p;\n", "  flashcore::Plan p;\n  *reinterpret_cast<volatile int*>(8) = 0;\n"),
    ),
]

HARMLESS_CODE = [
    harmless("comment", ("  float sum = 0;", "  // What is added up.\n  float sum = 0; /* it starts at nothing */")),
    harmless("white_space", ("  float sum = 0;", "\n\n\n  float   sum   =   0 ;\n\n")),
    harmless("renamed_symbol", ("planted_kernel", "other_kernel")),
    harmless("renamed_variable", ("sum", "total")),
    harmless("renamed_constant", ("kTile", "kElements")),
    harmless("renamed_helper", ("copy_async", "fetch_async")),
    harmless(
        "dead_code",
        ("__device__ void copy_wait", "__device__ int unused(int i) { return i * 7; }\n\n__device__ void copy_wait"),
    ),
    harmless(
        "static_assert", ("}  // namespace", 'static_assert(kTile % kThreads == 0, "whole tiles");\n\n}  // namespace')
    ),
    harmless(
        "another_kernel_beside_it",
        (
            "static flashcore::Plan plan",
            'extern "C" __global__ void unused_kernel(float* out) { out[0] = 1; }\n\nstatic flashcore::Plan plan',
        ),
    ),
    harmless("same_value_spelt_otherwise", ("kTile = 2048", "kTile = 8 * kThreads")),
    harmless(
        "local_name_for_an_expression",
        ("    copy_wait();", "    const bool arrived = true;\n    if (arrived) copy_wait();"),
    ),
    harmless(
        "using_alias",
        ("namespace {\n", "namespace {\n\nusing Number = float;\n"),
        ("  float sum = 0;", "  Number sum = 0;"),
    ),
    harmless("fewer_registers_are_better", ("tile[t ^ 3]", "tile[t ^ 2]")),
]
CODE = [*CODE_FAULTS, *HARMLESS_CODE]


def write_suite(folder: Path, codes: Sequence[Code]) -> Suite:
    """The planted suite with a variant for each change."""
    shutil.copytree(PLANTED, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (PLANTED / "kernel.cu").read_text()
    manifest = (PLANTED / "suite.toml").read_text()
    at, end = manifest.index("[variant.sound]"), manifest.index("[[budget]]")
    table = manifest[at:end]
    for code in codes:
        text = source
        for old, new in code.edits:
            assert old in text, f"{code.name}: the kernel has no {old!r}"
            text = text.replace(old, new)
        (folder / f"{code.name}.cu").write_text(text)
        manifest += "\n" + table.replace("variant.sound", f"variant.{code.name}").replace(
            "kernel.cu", f"{code.name}.cu"
        )
    (folder / "suite.toml").write_text(manifest)
    return suite_module.load(folder)


def host_code(text: str) -> str:
    """The host code of a source."""
    head, _, rest = text.partition("__device__ void")
    return head + rest.partition("static flashcore::Plan plan")[2]


def only_cubins(real: Callable[..., Any]) -> Callable[..., Any]:
    """The build's units without what is compiled for the host: most of their time."""

    def units(*given: Any) -> Any:
        result, artifacts = real(*given)
        return [replace(unit, wanted=(CUBIN,)) for unit in result], artifacts

    return units


class World:
    """Everything compiled once: the facts of each variant, to be judged as those of ``sound``."""

    def __init__(self, folder: Path) -> None:
        everything = write_suite(folder / "suite", CODE)
        self.suite = suite_module.load(PLANTED)
        self.build = folder / "build"
        sources = {v.name: (folder / "suite" / v.kind.file).read_text() for v in everything.variants.values()}
        sound = host_code(sources["sound"])
        #: Those with the launch plan of the sound one: all else of them is device code.
        self.same_host = {n for n, text in sources.items() if n != "sound" and host_code(text) == sound}
        self.artifacts = self._built(everything, everything.variants.keys() - self.same_host)
        self.plans = launch_plan.plans(everything, self.artifacts, list(everything.shapes.values()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(build, "_units", only_cubins(build._units))
            self.artifacts += self._built(everything, self.same_host)
        self.nvcc = toolchain.find_nvcc().version
        self.baseline: Baseline = baseline.save(self.record("sound"), None).baseline

    def _built(self, suite: Suite, names: Set[str]) -> list[Artifact]:
        variants = [suite.variants[name] for name in sorted(names)]
        return build.build(suite, self.build, build.Options(operator=False), variants=variants)

    def record(self, name: str) -> Record:
        artifact = next(a for a in self.artifacts if a.variant == name)
        planned = "sound" if name in self.same_host else name
        plans = [replace(p, variant="sound") for p in self.plans if p.variant == planned]
        return record_of(self.suite, replace(artifact, variant="sound"), plans, self.nvcc)


def record_of(suite: Suite, artifact: Artifact, plans: Sequence[Plan], nvcc: str) -> Record:
    facts = facts_module.facts(artifact, Path(suite.root))
    if artifact.status == "ok":
        facts += list(facts_module.plan_facts(artifact, plans, facts, None))
    return factory.bare_record(
        suite, facts, artifacts=(artifact,), plans=tuple(plans),
        environment=factory.environment(gpu=None, nvcc=nvcc),
    )  # fmt: skip


@pytest.fixture(scope="module")
def world(compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory) -> World:
    if toolchain.optional_tool("nvdisasm") is None:
        pytest.skip("tool: no nvdisasm on this machine")
    if compiler.release != "13.0":
        pytest.skip(f"tool: planted for nvcc 13.0, found {compiler.version}")
    return World(tmp_path_factory.mktemp("planted"))


def broken(judgement: Judgement) -> set[str]:
    return {v.budget for v in judgement.limits if v.status == "fail" or (v.status == "unmeasured" and v.required)}


def test_the_sound_kernel_passes(world: World) -> None:
    judgement = judge.judge(world.record("sound"), today=TODAY, baseline=world.baseline)
    assert (judgement.exit_code, broken(judgement), judgement.notes) == (Exit.OK, set(), ())
    facts = {k.fact: v for k, v in world.baseline.values.items()}
    assert 15 <= len(world.same_host) < len(CODE) - 5
    assert min(facts[n] for n in ("sass_hmma", "sass_bar", "sass_ldg_128", "sass_stg_128", "sass_ldgsts")) >= 1


@pytest.mark.parametrize("change", CODE_FAULTS, ids=lambda c: c.name)
def test_a_fault_of_the_code_is_named(change: Code, world: World) -> None:
    judgement = judge.judge(world.record(change.name), today=TODAY, baseline=world.baseline)
    assert judgement.exit_code is change.code
    assert change.blame in broken(judgement)


@pytest.mark.parametrize("change", HARMLESS_CODE, ids=lambda c: c.name)
def test_a_harmless_change_of_the_code_is_passed_in_silence(change: Code, world: World) -> None:
    judgement = judge.judge(world.record(change.name), today=TODAY, baseline=world.baseline)
    assert (judgement.exit_code, broken(judgement)) == (Exit.OK, set())


def rebuilt(world: World, folder: Path, objects: Path, text: Callable[[str], str]) -> Record:
    """The sound kernel at another place, its manifest changed."""
    shutil.copytree(PLANTED, folder / "elsewhere" / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    manifest = folder / "elsewhere" / "suite" / "suite.toml"
    manifest.write_text(text(manifest.read_text()))
    suite = suite_module.load(manifest.parent)
    made = build.build(suite, objects, build.Options(operator=False), variants=suite.variants.values())
    artifact = next(a for a in made if a.variant == "sound")
    plans = launch_plan.plans(suite, [artifact], list(suite.shapes.values()))
    return record_of(suite, artifact, plans, world.nvcc)


def reordered(manifest: str) -> str:
    head, *parts = manifest.split("\n[")
    return "\n[".join([head, *reversed(parts)])


def reworded(manifest: str) -> str:
    return manifest.replace("as it should be", "still as it should be").replace("eight blocks", "8 blocks")


@pytest.mark.parametrize(
    "text", [str, reordered, reworded], ids=["other_build_path", "reordered_manifest", "reworded_manifest"]
)
def test_a_harmless_change_around_the_code_is_passed_in_silence(
    text: Callable[[str], str], world: World, tmp_path: Path
) -> None:
    # Built anew where the path is what differs; else what the world compiled is to be found.
    objects = tmp_path / "objects" if text is str else world.build
    record = rebuilt(world, tmp_path, objects, text)
    assert record.artifacts[0].cached == (text is not str)
    judgement = judge.judge(record, today=TODAY, baseline=world.baseline)
    assert (judgement.exit_code, broken(judgement)) == (Exit.OK, set())
    assert record.artifacts[0].code == world.record("sound").artifacts[0].code
