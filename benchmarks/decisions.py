"""Plants lost compiler decisions and harmless edits: the gate must name the first at their line and pass the second.

    python -m benchmarks.decisions [--only NAME...]

It needs no GPU: nvcc 13.0 compiles `benchmarks/decided` to cubins with line information.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import raw
from flashcore.build import nvcc_command, static_facts
from flashcore.errors import UsageError
from flashcore.explain.verdict import Verdict
from flashcore.gate import judge
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.machine import toolchain
from flashcore.model.record import Artifact, Environment, Facts, Record
from flashcore.suites.load import load

SUITE = Path(__file__).with_name("decided")
ARCH = "sm_90a"
FLAGS = (*load(SUITE).variants["copy"].flags, *nvcc_command.FLAGS)


class Edit(NamedTuple):
    """A change of one source.

    Args:
        variant: the source's name.
        edits: texts and what replaces each of them, everywhere.
        budget: the one that must fail; empty if the change is harmless.
        line: a text of the line that must be named, in the changed source.
        there: what the code must be said to have.
    """

    name: str
    variant: str
    edits: Sequence[tuple[str, str]]
    budget: str = ""
    line: str = ""
    there: str = ""


def fault(name: str, place: tuple[str, str, str], there: str, *edits: tuple[str, str]) -> Edit:
    variant, budget, line = place
    return Edit(name, variant, edits, budget, line, there)


def harmless(name: str, variant: str, *edits: tuple[str, str]) -> Edit:
    return Edit(name, variant, edits)


_LOAD = "Pack load(const float* from, int i) { return *reinterpret_cast<const Pack*>(from + 4 * i); }"
_EITHER = """template <bool kWide>
__device__ __forceinline__ Pack load(const float* from, int i) {
  if constexpr (kWide) return *reinterpret_cast<const Pack*>(from + 4 * i);
  Pack pack;
  for (int k = 0; k < 4; ++k) pack.v[k] = from[4 * i + k];
  return pack;
}"""
_STORE = """  // wide store
  *reinterpret_cast<Pack*>(to + 4 * i) = pack;
"""
_MULTIPLY = "multiply(d, a + 2 * k, b + 2 * k);"
_BULK = (
    '  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared(from)), '
    '"r"(bytes)\n               : "memory");\n'
)
_LDMATRIX = """  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
"""
_PRODUCT = "      multiply(c, a, b);\n"
_ROW = "*reinterpret_cast<const float4*>(bias + kRow / 8 * (t ^ 5))"

FAULTS = (
    fault(
        "misaligned_pointer",
        ("copy", "wide_loads", "reinterpret_cast<const Pack*>"),
        "LDG.E.CONSTANT ×8",
        ("alignas(16) Pack", "alignas(4) Pack"),
    ),
    fault(
        "one_of_two_calls",
        ("copy", "wide_loads", "pack.v[k] = from"),
        "LDG.E.128.CONSTANT",
        (f"__device__ __forceinline__ {_LOAD}", _EITHER),
        ("load(x", "load<true>(x"),
        ("load(y", "load<false>(y"),
    ),
    fault(
        "one_of_two_instances",
        ("copy", "wide_loads", "pack.v[k] = from"),
        "LDG.E.128.CONSTANT",
        (f"__device__ __forceinline__ {_LOAD}", _EITHER),
        ("load(x", "load<true>(x"),
        ("load(y", "load<kUnroll == 1>(y"),
    ),
    fault(
        "unaligned_stride",
        ("copy", "rows_in_one_piece", "const Row part"),
        "LDG.E.CONSTANT ×16",
        ("using Row = float4;", "struct Row {\n  float x, y, z, w;\n};"),
    ),
    fault(
        "rows_one_by_one",
        ("copy", "rows_in_one_piece", "const Row part"),
        "LDG.E.128.CONSTANT ×1",
        ("#pragma unroll\n  for (int i = 0; i < 4", "#pragma unroll 1\n  for (int i = 0; i < 4"),
    ),
    fault(
        "narrow_stores",
        ("copy", "wide_stores", "to[4 * i + k] = pack.v[k]"),
        "STG.E ×",
        (_STORE, "  // wide store\n  for (int k = 0; k < 4; ++k) to[4 * i + k] = pack.v[k];\n"),
    ),
    fault(
        "serialized_wgmma", ("wgmma", "main_loop", "k < 8"), "HGMMA.64", (_MULTIPLY, f"{{ {_MULTIPLY} d[0] *= 1.5f; }}")
    ),
    fault(
        "mma_sync_for_wgmma",
        ("wgmma", "main_loop", "k < 8"),
        "HMMA.16816.F32 ×",
        (_MULTIPLY, "multiply_old(d, unsigned(a) + k, unsigned(b) + k);"),
    ),
    fault(
        "cp_async_for_tma",
        ("wgmma", "bulk_copies", "cp.async.cg"),
        "LDGSTS.E.BYPASS.128",
        ("load_tile(smem, map, bar, i);", "load_tile_old(smem, x + 4 * i);"),
    ),
    fault(
        "registers_not_given", ("wgmma", "bulk_copies", "wgmma_kernel"), "UTMALDG.2D", ("__launch_bounds__(256, 1)", "")
    ),
    fault(
        "stores_by_all_threads",
        ("wgmma", "bulk_store", "static_cast<float*>(to)[i]"),
        "STG.E",
        (
            _BULK,
            "  for (int i = 0; i < bytes / 4; ++i) static_cast<float*>(to)[i] = static_cast<const float*>(from)[i];\n",
        ),
    ),
    fault(
        "copies_through_registers",
        ("mma", "asynchronous_copies", "copy_async(tile_a"),
        "LDG.E.128",
        (
            'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");',
            "*reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);",
        ),
    ),
    fault(
        "fp32_products",
        ("mma", "tensor_cores", "__uint_as_float"),
        "FFMA.FTZ ×",
        (_PRODUCT, "      for (int k = 0; k < 4; ++k) c[k] += __uint_as_float(a[k]) * __uint_as_float(b[k]);\n"),
    ),
    fault(
        "fragments_by_words",
        ("mma", "fragments", "reinterpret_cast<const unsigned*>(tile)"),
        "LDS ×",
        (
            _LDMATRIX,
            "  for (int k = 0; k < 4; ++k) r[k] = reinterpret_cast<const unsigned*>(tile)[256 * step + 32 * k];\n",
        ),
    ),
    fault(
        "padded_rows",
        ("mma", "shared_rows", "padded["),
        "LDS ×4",
        (
            f"const float4 row = {_ROW};  // bias",
            "const float* padded = bias + 5 * (t ^ 5);\n"
            "  const float4 row = {padded[0], padded[1], padded[2], padded[3]};  // bias",
        ),
    ),
    fault(
        "not_unrolled",
        ("sums", "unrolled", "i < kSums"),
        "BRA ×1",
        ("    // unrolled\n", "    // unrolled\n#pragma unroll 1\n"),
    ),
    fault(
        "array_in_local_memory",
        ("sums", "in_registers", "sums[(i + shift) % kSums]"),
        "LDL",
        ("sums[i] += ", "sums[(i + shift) % kSums] += "),
    ),
    fault("double_constants", ("sums", "fast_math", "0.5 + 1.0"), "DFMA ×", ("0.5f + 1.0f", "0.5 + 1.0")),
    fault(
        "exact_division",
        ("sums", "fast_math", "__fdiv_rn"),
        "CALL.REL.NOINC ×",
        ("shifted * factor", "__fdiv_rn(shifted, factor)"),
    ),
    fault(
        "call_not_inlined",
        ("sums", "in_registers", "warp_sum(total)"),
        "CALL.REL.NOINC ×1",
        ("__forceinline__ float warp_sum", "__noinline__ float warp_sum"),
    ),
    fault(
        "atomics_by_all_lanes",
        ("sums", "one_atomic", "atomicAdd(&shared_sum"),
        "ATOMS",
        (
            "    value += __shfl_xor_sync(0xffffffffu, value, step);\n",
            "    value += __shfl_xor_sync(0xffffffffu, value, step);\n    atomicAdd(&shared_sum, value);\n",
        ),
        (
            "__device__ __forceinline__ float warp_sum",
            "__shared__ float shared_sum;\n__device__ __forceinline__ float warp_sum",
        ),
    ),
)

_UNUSED = "__device__ int unused(int i) { return i * 7; }\n\n}  // namespace\n"
HARMLESS = (
    *(
        harmless(f"{v}_comment", v, ("namespace {\n", "// One more comment.\n/* And\n   another. */\nnamespace {\n"))
        for v in ("copy", "wgmma", "mma", "sums")
    ),
    *(harmless(f"{v}_unused", v, ("}  // namespace\n", _UNUSED)) for v in ("copy", "wgmma", "mma", "sums")),
    *(harmless(f"{v}_kernel_renamed", v, (f"{v}_kernel", f"{v}_kernel_v2")) for v in ("copy", "wgmma", "mma", "sums")),
    *(harmless(f"{v}_blank_lines", v, ("\n  ", "\n\n  ")) for v in ("copy", "wgmma", "mma", "sums")),
    harmless(
        "copy_variables",
        "copy",
        ("Pack a =", "Pack left ="),
        ("Pack b =", "Pack right ="),
        ("a.v[k] + b.v[k]", "left.v[k] + right.v[k]"),
    ),
    harmless(
        "copy_order",
        "copy",
        (
            "    const Pack a = load(x, i);\n    const Pack b = load(y, i);\n",
            "    const Pack b = load(y, i);\n    const Pack a = load(x, i);\n",
        ),
    ),
    harmless(
        "copy_function_moved",
        "copy",
        (f"__device__ __forceinline__ {_LOAD}\n", ""),
        ("}  // namespace\n", f"__device__ __forceinline__ {_LOAD}\n\n}}  // namespace\n"),
    ),
    harmless("copy_quote_formatted", "copy", ("from[row * pitch + 32 * i]", "from[\n        row*pitch + 32*i ]")),
    harmless(
        "copy_mark_beside_code", "copy", (_STORE, "  *reinterpret_cast<Pack*>(to + 4 * i) = pack;  // wide store\n")
    ),
    harmless(
        "copy_more_kernels",
        "copy",
        (
            "template __global__ void copy_kernel<1>",
            "__global__ void other(float* out) { out[0] = out[1]; }\n\ntemplate __global__ void copy_kernel<1>",
        ),
    ),
    harmless(
        "wgmma_variables",
        "wgmma",
        ("float d[4] = {};", "float acc[4] = {};"),
        (_MULTIPLY, "multiply(acc, a + 2 * k, b + 2 * k);"),
        ("make_float4(d[0], d[1], d[2], d[3])", "make_float4(acc[0], acc[1], acc[2], acc[3])"),
    ),
    harmless(
        "wgmma_steps",
        "wgmma",
        ("k < 8; ++k) multiply(d, a + 2 * k, b + 2 * k)", "k < 16; k += 2) multiply(d, a + k, b + k)"),
    ),
    harmless("wgmma_braces", "wgmma", (_MULTIPLY, f"{{\n      {_MULTIPLY}\n    }}")),
    harmless(
        "wgmma_order",
        "wgmma",
        (
            "const uint64_t a = descriptor(smem), b = descriptor(smem + 2 * kTile);",
            "const uint64_t b = descriptor(smem + 2 * kTile);\n    const uint64_t a = descriptor(smem);",
        ),
    ),
    harmless(
        "mma_order",
        "mma",
        (
            "      load_fragment(a, tile_a, step);\n      load_fragment(b, tile_b, step);\n",
            "      load_fragment(b, tile_b, step);\n      load_fragment(a, tile_a, step);\n",
        ),
    ),
    harmless("mma_constant", "mma", ("kSteps = 4", "kSteps = kThreads / 32")),
    harmless(
        "mma_using",
        "mma",
        ("namespace {\n", "using Half = __half;\n\nnamespace {\n"),
        ("const __half* tile,", "const Half* tile,"),
    ),
    harmless(
        "sums_product",
        "sums",
        (
            "  const float shifted = value * 0.5f + 1.0f;\n  return shifted * factor;",
            "  return (value * 0.5f + 1.0f) * factor;",
        ),
    ),
    harmless("sums_variable", "sums", ("total", "sum_of_all")),
    harmless(
        "sums_assert", "sums", ("}  // namespace\n", 'static_assert(kSums == 8, "eight sums");\n\n}  // namespace\n')
    ),
)
EDITS = (*FAULTS, *HARMLESS)


class Outcome(NamedTuple):
    """The gate's result for an edit: the verdicts that did not pass, each with file and line, and the sources."""

    judgement: Judgement
    complaints: list[tuple[Verdict, str, int]]
    text: list[str]

    def names(self, edit: Edit) -> bool:
        """True if the fault is named at its line, or the harmless edit passes without a message."""
        if not edit.budget:
            return not self.complaints
        return any(
            v.budget == edit.budget
            and v.status == "fail"
            and edit.there in v.reason
            and edit.line in self.text[line - 1]
            for v, _, line in self.complaints
        )


def judged(edit: Edit, folder: Path, flags: Sequence[str] = FLAGS) -> Outcome:
    """Compiles an edit in an empty folder, and judges it by the suite's budgets.

    Raises:
        UsageError: the edit does not apply or does not compile.
    """
    root = folder / "decided"
    shutil.copytree(SUITE, root, ignore=shutil.ignore_patterns("__pycache__"))
    source = root / f"{edit.variant}.cu"
    text = source.read_text(encoding="utf-8")
    for old, new in edit.edits:
        if old not in text:
            raise UsageError(f"{edit.name}: expected {old!r} in {source.name}, found none")
        text = text.replace(old, new)
    source.write_text(text, encoding="utf-8")
    nvcc, made = toolchain.find_nvcc(), folder / "variant.cubin"
    arch = f"-gencode=arch=compute_{ARCH[3:]},code={ARCH}"
    run = subprocess.run([nvcc.path, *flags, arch, "-cubin", source, "-o", made], capture_output=True, text=True)
    if run.returncode:
        raise UsageError(f"{edit.name}: {run.stderr}")
    suite = load(root)
    artifact = Artifact(edit.variant, ARCH, "ok", cubin=str(made))
    environment = Environment(None, "", "", "", "", nvcc=nvcc.version)
    values = Facts(static_facts.facts(artifact, root, suite))
    record = Record("", "", suite, environment, (artifact,), (), (), (), values)
    judgement = judge.judge(record, today=date(2026, 1, 1), variants=[edit.variant])
    places = Places(record, root)
    bad = [v for v in judgement.limits if v.fact.startswith("decision_") and v.status != "pass"]
    complaints = [(v, place.file, place.line) for v in bad if (place := places.of(v))]
    return Outcome(judgement, complaints, text.splitlines())


def main(argv: Sequence[str] | None = None) -> int:
    """Exits 1 if an edit is judged wrongly."""
    return raw.main(
        __file__, __doc__, arguments, measure, table, argv, lambda m: int(any(not e["right"] for e in m["edits"]))
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these edits")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles and judges one edit after the other."""
    results = []
    for edit in EDITS:
        if options.only and edit.name not in options.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            outcome = judged(edit, Path(folder))
        complaints = [
            f"{v.budget} {v.subject.kernel} {v.status} {file}:{line} {v.reason}" for v, file, line in outcome.complaints
        ]
        results.append({"name": edit.name, "budget": edit.budget, "right": outcome.names(edit), "said": complaints,
                        "seconds": round(time.monotonic() - begin, 2)})  # fmt: skip
    return {"edits": results}


def table(measured: raw.Results) -> list[str]:
    """The counts, and each edit that was judged wrongly."""
    lines = []
    for what, of in (("faults named at their line", True), ("harmless edits passed in silence", False)):
        edits = [edit for edit in measured["edits"] if bool(edit["budget"]) is of]
        lines.append(f"{what:34}{sum(edit['right'] for edit in edits)} of {len(edits)}")
        for edit in edits:
            if not edit["right"]:
                lines += [
                    f"  {edit['name']}: {edit['budget'] or 'silence'} expected",
                    *(f"    {one}" for one in edit["said"]),
                ]
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
