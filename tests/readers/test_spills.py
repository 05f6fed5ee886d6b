"""Local memory: real kernels through nvcc, and what the tools' words come to when put together."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flashcore.build.static_facts import facts
from flashcore.machine import toolchain
from flashcore.model.causes import NOT_IN_LOG
from flashcore.model.record import Artifact, Fact
from flashcore.readers import sass, spills
from flashcore.readers.spills import Site, SpillEvidence, classify, loop_depths
from tests import factory
from tests.conftest import TESTS

SOURCE = TESTS / "data" / "local_memory.cu"
ARCHS = ("sm_80", "sm_90a")
SPILL_LINE, INDEX_LINE = (
    next(i for i, line in enumerate(SOURCE.read_text().splitlines(), 1) if mark in line)
    for mark in ("// spill line", "// index line")
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], dict[str, dict[str, Fact]]]:
    """(arch, register cap) → kernel → fact name → fact, of the real compiler and disassembler."""
    if toolchain.optional_tool("nvdisasm") is None:
        pytest.skip("tool: no nvdisasm on this machine")
    try:
        nvcc = toolchain.find_nvcc()
    except Exception as error:
        pytest.skip(f"tool: no nvcc: {error}")
    results: dict[tuple[str, int], dict[str, dict[str, Fact]]] = {}
    for arch in ARCHS:
        for cap in (40, 255):
            folder = tmp_path_factory.mktemp(f"{arch}-{cap}")
            done = subprocess.run(
                [nvcc.path, "-O3", "-lineinfo", "-Xptxas", "-v", f"-maxrregcount={cap}", "-cubin", SOURCE,
                 "-gencode", f"arch=compute_{arch[3:]},code={arch}", "-o", folder / "variant.cubin"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            log = folder / "variant.log"
            log.write_text(done.stderr + done.stdout)
            artifact = Artifact("x", arch, "ok", cubin=str(folder / "variant.cubin"), log=str(log))
            unlogged = [("unlogged", replace(artifact, log=None))] if arch == ARCHS[-1] else []
            for key, built in ((arch, artifact), *unlogged):
                (folder / "static.json").unlink(missing_ok=True)
                table = results.setdefault((key, cap), {})
                for fact in facts(built, SOURCE.parent):
                    table.setdefault(fact.subject.kernel or "", {})[fact.name] = fact
    return results


Compiled = dict[tuple[str, int], dict[str, dict[str, Fact]]]


@pytest.mark.parametrize("arch", ARCHS)
def test_spilled_registers_are_told_and_their_line_named(compiled: Compiled, arch: str) -> None:
    kernel = compiled[arch, 40]["spills"]
    assert (kernel["spill_store_bytes"].number or 0) > 0
    assert kernel["local_memory"].value == "spills"
    assert (kernel["sass_local_loop"].number or 0) > 0
    assert kernel["local_memory_site"].value == f"local_memory.cu:{SPILL_LINE}"
    accesses = (kernel["sass_ldl"].number or 0) + (kernel["sass_stl"].number or 0)
    for words in ("ptxas spills", "in a loop", f"{accesses:.0f} accesses in the code"):
        assert words in kernel["local_memory"].note


@pytest.mark.parametrize("arch", ARCHS)
def test_without_the_cap_nothing_spills(compiled: Compiled, arch: str) -> None:
    kernel = compiled[arch, 255]["spills"]
    assert (kernel["local_memory"].value, kernel["sass_local_loop"].value) == ("none", 0)
    assert "local_memory_site" not in kernel
    assert compiled[arch, 40]["neither"]["local_memory"].value == "none"


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("cap", [40, 255])
def test_an_array_with_a_run_time_index_is_no_spill(compiled: Compiled, arch: str, cap: int) -> None:
    kernel = compiled[arch, cap]["indexed"]
    assert kernel["spill_store_bytes"].value == 0
    assert (kernel["stack_bytes"].number or 0) >= 128
    assert kernel["local_memory"].value == "array"
    assert kernel["local_memory_site"].value == f"local_memory.cu:{INDEX_LINE}"


def test_without_a_log_the_cubin_lists_the_same_bytes(compiled: Compiled) -> None:
    logged, listed = compiled[ARCHS[-1], 40]["spills"], compiled["unlogged", 40]["spills"]
    for name in ("spill_store_bytes", "spill_load_bytes"):
        assert (logged[name].value, logged[name].detail, logged[name].source) == (listed[name].value, "", "ptxas")
        assert listed[name].value and listed[name].source == "cubin"
    assert listed["local_memory"].value == "spills"
    for kernel, cap in (("neither", 40), ("indexed", 255), ("spills", 255)):
        facts = compiled["unlogged", cap][kernel]
        assert facts["spill_store_bytes"].value is None, "a cubin without notes does not say that nothing spills"
        assert facts["spill_store_bytes"].detail == NOT_IN_LOG()
    assert compiled["unlogged", 255]["indexed"]["local_memory"].detail == NOT_IN_LOG()


# --- loops --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "depths"),
    [
        ([[1], [2], []], [0, 0, 0]),
        ([[1], [1, 2], []], [0, 1, 0]),  # a block that loops on itself
        ([[1], [2], [1, 3], []], [0, 1, 1, 0]),
        ([[1], [2], [3], [2, 4], [1, 5], []], [0, 1, 2, 2, 1, 0]),  # nested
        ([[1, 3], [2], [], [1]], [0, 0, 0, 0]),  # out of line, with a branch back: no loop
        ([[1, 2], [2], [1, 3], []], [0, 1, 1, 0]),  # entered at two places
        ([[0]], [1]),
        ([], []),
    ],
)
def test_loops_are_what_can_run_again(edges: list[list[int]], depths: list[int]) -> None:
    assert loop_depths(edges) == depths


def test_any_graph_is_analysed_and_depth_is_positive_exactly_on_cycles() -> None:
    source = random.Random(7)
    for _ in range(300):
        size = source.randrange(1, 12)
        edges = [[source.randrange(size) for _ in range(source.randrange(3))] for _ in range(size)]
        depths = loop_depths(edges)
        for node in range(size):
            assert (depths[node] > 0) == _reaches_itself(edges, node)


def _reaches_itself(edges: Sequence[Sequence[int]], start: int) -> bool:
    seen: set[int] = set()
    pending = list(edges[start])
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += edges[node]
    return start in seen


def test_a_deep_chain_needs_no_recursion() -> None:
    size = 50_000
    edges = [[i + 1] for i in range(size - 1)] + [[0]]
    assert set(loop_depths(edges)) == {1}


LISTING = """
	.section	.text.k,"ax",@progbits
.text.k:
	//## File "/src/k.cu", line 3
        /*0000*/                   STL.64 [R1+0x8], R4 ;
.L_x_0:
	//## File "/src/k.cu", line 5
        /*0010*/                   LDL R0, [R1] ;
        /*0020*/              @!P0 BRA `(.L_x_2) ;
	//## File "/src/k.cuh", line 9
        /*0030*/                   LDL.U8 R0, [R3+0x4] ;
        /*0040*/               @P1 BRA `(.L_x_0) ;
        /*0050*/                   EXIT ;
.L_x_2:
        /*0060*/                   BRA.U !UP0, `(.L_x_3) ;
        /*0070*/                   STL.128 [R1], R8 ;
.L_x_3:
        /*0080*/                   EXIT ;
.L_x_4:
        /*0090*/                   BRA `(.L_x_4);
"""


def test_a_listing_is_read_site_by_site() -> None:
    assert spills.sites(sass.parse(LISTING)["k"]) == (
        Site(True, 8, 0, True, "/src/k.cu", 3),
        Site(False, 4, 1, True, "/src/k.cu", 5),
        Site(False, 1, 1, False, "/src/k.cuh", 9),
        Site(True, 16, 0, True, "/src/k.cuh", 9),
    )


@pytest.mark.parametrize("text", ["", "no listing\n", "\t.section\t.text.k\n"])
def test_no_listing_no_sites(text: str) -> None:
    assert not any(map(spills.sites, sass.parse(text).values()))


# --- the verdict --------------------------------------------------------------------------------

LOAD = Site(False, 4, 1, True, "k.cu", 9)
STORE = Site(True, 4, 0, True, "k.cu", 3)
COMPUTED = Site(False, 4, 2, False, "k.cu", 12)


@pytest.mark.parametrize(
    ("evidence", "use", "worst"),
    [
        (SpillEvidence(0, 0, 0, ()), "none", ""),
        (SpillEvidence(4, 4, 8, (STORE, LOAD)), "spills", "k.cu:9"),
        (SpillEvidence(4, 4, 8, None), "spills", ""),
        (SpillEvidence(0, 0, 128, (STORE, COMPUTED)), "array", "k.cu:12"),
        (SpillEvidence(0, 0, 128, None), "array", ""),
        (SpillEvidence(4, 4, 136, (STORE, LOAD, COMPUTED)), "spills and array", "k.cu:9"),
        (SpillEvidence(4, 4, 40, (STORE, LOAD, LOAD)), "spills and array", "k.cu:9"),  # more bytes than spilled
        (SpillEvidence(0, 0, 16, ()), "stack frame", ""),
        (SpillEvidence(None, None, 0, (LOAD,)), "unmeasured", "k.cu:9"),
        (SpillEvidence(None, None, 128, (COMPUTED,)), "unmeasured", "k.cu:12"),
        (SpillEvidence(None, None, 0, ()), "none", ""),
        (SpillEvidence(), "unmeasured", ""),
    ],
)
def test_the_tools_are_reconciled(evidence: SpillEvidence, use: str, worst: str) -> None:
    usage = classify(evidence)
    assert (usage.use, str(usage.worst or "")) == (use, worst)


def test_depth_outweighs_bytes() -> None:
    shallow = [Site(True, 16, 0, True, "k.cu", 2)] * 20
    assert str(classify(SpillEvidence(324, 4, 328, (*shallow, LOAD))).worst) == "k.cu:9"


def test_the_gate_says_why_a_spill_budget_broke() -> None:
    from flashcore.gate import judge as judge_module

    subject: dict[str, Any] = {"arch": "sm_90a", "kernel": "fast_kernel"}
    usage = classify(SpillEvidence(8, 8, 16, (Site(False, 8, 1, True, "fast.cu", 7),)))
    made = [
        factory.fact("spill_store_bytes", 8, "fast", **subject),
        factory.fact("local_memory", usage.use, "fast", detail=usage.text, **subject),
        factory.fact("local_load_instructions", 4096, "fast", shape="mission", kernel="fast_kernel"),
    ]
    record = factory.record(factory.suite(budgets=[factory.budget("spill_store_bytes", maximum=0)]), made)
    (failed,) = [v for v in judge_module.judge(record).verdicts if v.status == "fail"]
    assert failed.reason.startswith("spilled registers (ptxas spills 8 B and refills 8 B; 16 B of stack")
    assert "worst at fast.cu:7" in failed.reason
    assert "executed: 4,096 loads" in failed.reason


def test_the_gate_says_what_would_fit_one_block_more() -> None:
    from flashcore.gate import judge as judge_module

    fact = factory.fact("theoretical_occupancy", 25.0, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    suite = factory.suite(budgets=[factory.budget("theoretical_occupancy", minimum=30, variants=("fast",),
                                                  archs=("sm_90a",), shapes=("mission",))])  # fmt: skip
    (failed,) = [v for v in judge_module.judge(factory.record(suite, [fact])).verdicts if v.status == "fail"]
    assert "registers fewer give" in failed.reason and "limited by registers" in failed.reason
