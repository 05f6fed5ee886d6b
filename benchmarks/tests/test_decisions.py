"""Lost compiler decisions through the real compiler: named at their line; harmless edits pass; no trick does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import decisions
from benchmarks.decisions import EDITS, FAULTS, HARMLESS, Edit, Outcome, harmless
from flashcore.errors import Exit
from flashcore.machine import toolchain

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("whole_cuda_headers")]


@pytest.fixture(autouse=True)
def _tools(compiler: toolchain.Nvcc) -> None:
    if toolchain.optional_tool("nvdisasm") is None:
        pytest.skip("tool: no nvdisasm on this machine")
    if compiler.release != "13.0":
        pytest.skip(f"tool: planted for nvcc 13.0, found {compiler.version}")


def test_there_are_enough_of_both() -> None:
    assert len(FAULTS) >= 12 and len(HARMLESS) >= 30
    assert len({edit.name for edit in EDITS}) == len(EDITS)


@pytest.mark.parametrize("edit", FAULTS, ids=lambda edit: edit.name)
def test_a_lost_decision_is_named_at_its_line(edit: Edit, tmp_path: Path) -> None:
    outcome = decisions.judged(edit, tmp_path)
    assert outcome.judgement.exit_code is Exit.FAILED
    assert outcome.names(edit), shown(outcome)


@pytest.mark.parametrize("edit", HARMLESS, ids=lambda edit: edit.name)
def test_a_harmless_edit_passes_in_silence(edit: Edit, tmp_path: Path) -> None:
    outcome = decisions.judged(edit, tmp_path)
    assert outcome.names(edit) and any(v.fact.startswith("decision_") for v in outcome.judgement.limits), shown(outcome)


def test_only_the_instance_that_lost_it_fails(tmp_path: Path) -> None:
    edit = next(e for e in FAULTS if e.name == "one_of_two_instances")
    assert [v.subject.kernel for v, *_ in decisions.judged(edit, tmp_path).complaints] == ["copy_kernel<2>"]


STORE = "  // wide store\n  *reinterpret_cast<Pack*>(to + 4 * i) = pack;\n"
NARROW = "  for (int k = 0; k < 4; ++k) to[4 * i + k] = pack.v[k];\n"
UNUSED = "__device__ void unused(float4* to) {\n  // wide store\n  to[1] = to[0];\n}\n\n}  // namespace\n"
ROW = "const Row part = from[row * pitch + 32 * i];"
PARTS = (
    "const float* p = reinterpret_cast<const float*>(from + row * pitch + 32 * i) + 1;\n"
    "    const Row part = {p[0], p[1], p[2], p[3]};"
)
#: A change that would lose a decision unseen, the budget that must notice, and how it does.
TRICKS = [
    (harmless("mark_in_dead_code", "copy", (STORE, f"#if 0\n{STORE}#endif\n{NARROW}")), "wide_stores", "unmeasured"),
    (
        harmless("mark_in_an_unused_function", "copy", (STORE, NARROW), ("}  // namespace\n", UNUSED)),
        "wide_stores",
        "unmeasured",
    ),
    (
        harmless(
            "mark_twice", "copy", (STORE, f"  if (i < 0) {{\n  {STORE}  }} else {{\n  // wide store\n{NARROW}  }}\n")
        ),
        "wide_stores",
        "unmeasured",
    ),
    (harmless("mark_removed", "copy", (STORE, NARROW)), "wide_stores", "unmeasured"),
    (
        harmless("mark_in_a_macro", "copy", (STORE, f"#define STORE /* wide store */ x\n{NARROW}")),
        "wide_stores",
        "unmeasured",
    ),
    (harmless("quote_in_a_comment", "copy", (ROW, f"// {ROW}\n    {PARTS}")), "rows_in_one_piece", "unmeasured"),
    (
        harmless("quote_in_a_string", "copy", (ROW, f'const char* s = "{ROW}";\n    {PARTS}')),
        "rows_in_one_piece",
        "unmeasured",
    ),
    (harmless("quote_changed", "copy", (ROW, ROW.replace("pitch", "(pitch)"))), "rows_in_one_piece", "unmeasured"),
    (harmless("kernel_renamed", "copy", ("rows_kernel", "lines_kernel")), "rows_in_one_piece", "unmeasured"),
    (harmless("function_renamed", "copy", ("load(", "fetch(")), "wide_loads", "unmeasured"),
    (
        harmless(
            "function_overloaded",
            "copy",
            ("}  // namespace\n", "__device__ float load(float x) { return x; }\n}  // namespace\n"),
        ),
        "wide_loads",
        "unmeasured",
    ),
    (
        harmless(
            "instance_without_the_function",
            "copy",
            ("    const Pack b = load(y, i);\n", "    const Pack b = {};\n"),
            (
                "const Pack a = load(x, i);",
                "Pack a = {};\n    if constexpr (kUnroll == 1) a = load(x, i);\n"
                "    else for (int k = 0; k < 4; ++k) a.v[k] = x[4 * i + k];",
            ),
        ),
        "wide_loads",
        "unmeasured",
    ),
    (
        harmless(
            "both_in_one_statement",
            "copy",
            (
                STORE,
                "  // wide store\n  if (i & 1) {\n    *reinterpret_cast<Pack*>(to + 4 * i) = pack;\n"
                f"  }} else {{\n  {NARROW}  }}\n",
            ),
        ),
        "wide_stores",
        "fail",
    ),
    (
        harmless(
            "enough_in_another_loop",
            "copy",
            (
                "    total += part.x",
                "    const float4 other = reinterpret_cast<const float4*>(from)[i];\n    total += other.x + part.x",
            ),
            ("using Row = float4;", "struct Row {\n  float x, y, z, w;\n};"),
        ),
        "rows_in_one_piece",
        "fail",
    ),
]


@pytest.mark.parametrize(("edit", "budget", "status"), TRICKS, ids=lambda x: x.name if isinstance(x, Edit) else "")
def test_no_trick_passes(edit: Edit, budget: str, status: str, tmp_path: Path) -> None:
    outcome = decisions.judged(edit, tmp_path)
    assert (budget, status) in {(v.budget, v.status) for v, *_ in outcome.complaints}, shown(outcome)
    assert outcome.judgement.exit_code is not Exit.OK


def test_without_line_information_pieces_are_unmeasured(tmp_path: Path) -> None:
    flags = [flag for flag in decisions.FLAGS if flag != "-lineinfo"]
    outcome = decisions.judged(harmless("no_lines", "copy"), tmp_path, flags)
    assert {v.status for v, *_ in outcome.complaints} == {"unmeasured"}
    assert {v.budget for v, *_ in outcome.complaints} == {"wide_loads", "wide_stores", "rows_in_one_piece"}
    assert outcome.judgement.exit_code is Exit.UNMEASURED


def shown(outcome: Outcome) -> str:
    return "\n".join(
        f"{v.budget} {v.subject} {v.status} {file}:{line} {v.reason}" for v, file, line in outcome.complaints
    )
