"""Compiler decisions in SASS, and the pieces of a source that they are about."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashcore.build.static_facts import disassemble
from flashcore.machine import toolchain
from flashcore.model.cause import Cause
from flashcore.model.causes import (
    CALLED_SEPARATELY,
    NO_CODE_OF_PIECE,
    NO_LINES,
    NO_PIECE,
    NOT_ON_ARCH,
    OTHER_LINES,
    SEVERAL_PIECES,
    Decided,
)
from flashcore.model.compiler_decisions import meanings
from flashcore.model.suite import Decision
from flashcore.readers import compiler_decisions, sass
from flashcore.readers.compiler_decisions import pieces
from flashcore.readers.phases import Sources

SOURCE = """\
float4 load(const float4* p) {
  return *p;
}
void kernel(const float4* p) {
  // first
  a = load(p);
  b = load(p + 1);
  c = p[2];  // third
}
"""
Line = tuple[str, int | tuple[int, ...]]


def listing(folder: Path, *lines: Line, name: str = "k") -> str:
    """A function of these instructions, each at a line or, where inlined, at several."""
    text = [f'\t.section\t.text.{name},"ax",@progbits', f".text.{name}:"]
    for at, (instruction, places) in enumerate(lines):
        chain = (places,) if isinstance(places, int) else places
        for n, line in enumerate(chain if chain != (0,) else ()):
            outer = f' inlined at "{folder / "k.cu"}", line {chain[n + 1]}' if n + 1 < len(chain) else ""
            text.append(f'\t//## File "{folder / "k.cu"}", line {line}{outer}')
        if instruction.startswith(".L"):
            text.append(instruction)
        else:
            text.append(f"        /*{16 * at:04x}*/                   {instruction} ;")
    return "\n".join(text) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k.cu").write_text(SOURCE)
    return tmp_path


def decided(
    folder: Path,
    decision: Decision,
    *lines: Line,
    arch: str = "sm_90a",
    cubin: bytes | None = None,
    more: str = "",
) -> tuple[int | None, Cause | Decided]:
    functions = sass.parse(listing(folder, *lines) + more)
    separate = [name for name in functions if name != "k"]
    return compiler_decisions.decided(decision, functions["k"], arch, Sources(folder, cubin), separate)


WIDE, NARROW, END = "LDG.E.128 R4, desc[UR6][R2.64]", "LDG.E R4, desc[UR6][R2.64]", "EXIT"


def test_a_kernel_needs_one_instruction_of_a_name(folder: Path) -> None:
    wide = Decision(("ldg.128",))
    assert decided(folder, wide, (WIDE, 8), (NARROW, 8))[0] == 0
    value, detail = decided(folder, wide, (NARROW, 8), (NARROW, 8), ("LD.E R4, desc[UR6][R2.64]", 6))
    assert (value, detail) == (1, Decided("k.cu", 8, ("ldg.128",), "LD.E ×1, LDG.E ×2"))
    assert decided(folder, wide, (END, 8)) == (1, Decided("", 0, ("ldg.128",), ""))
    assert decided(folder, wide, (NARROW, 0)) == (1, Decided("", 0, ("ldg.128",), "LDG.E ×1"))


def test_a_number_is_the_least_count(folder: Path) -> None:
    assert decided(folder, Decision(("2 ldg.128",)), (WIDE, 8), (WIDE, 8))[0] == 0
    assert decided(folder, Decision(("3 ldg.128",)), (WIDE, 8), (WIDE, 8)) == (
        1, Decided("", 0, ("3 ldg.128",), "LDG.E.128 ×2")
    )  # fmt: skip


def test_an_instruction_of_two_names_is_shown_once(folder: Path) -> None:
    detail = decided(folder, Decision(("ldg.128", "ldg.64"), ("fp64",)), (NARROW, 8), (NARROW, 8))[1]
    assert detail == Decided("k.cu", 8, ("ldg.128", "ldg.64"), "LDG.E ×2")


def test_each_name_that_does_not_hold_counts(folder: Path) -> None:
    decision = Decision(("ldg.128", "mma"), ("local", "fp64"))
    value, detail = decided(folder, decision, (WIDE, 8), ("STL [R1], R2", 6), ("FFMA R1, R2, R3, R4", 8))
    assert isinstance(detail, Decided)
    assert (value, detail.missed) == (2, ("mma", "no local"))
    assert detail.code_has == "FFMA ×1, LDG.E.128 ×1, STL ×1"


@pytest.mark.parametrize(
    "place", [{"mark": "third"}, {"quote": "c = p[2]"}, {"function": "kernel"}], ids=["mark", "quote", "function"]
)
def test_in_a_piece_nothing_weaker_may_stand(folder: Path, place: dict[str, str]) -> None:
    decision = Decision(("ldg.128",), **place)  # type: ignore[arg-type]
    assert decided(folder, decision, (WIDE, 8))[0] == 0
    value, detail = decided(folder, decision, (WIDE, 8), (NARROW, 8), (NARROW, 2))
    assert (value, detail) == (1, Decided("k.cu", 8, ("ldg.128",), "LDG.E ×1, LDG.E.128 ×1"))


@pytest.mark.parametrize("line", [9, 11])
def test_code_at_a_line_without_any_is_of_another_table(folder: Path, line: int) -> None:
    """As Triton 3.9 places loads: they would be missing in the piece, and what must not be there would seem absent."""
    (folder / "k.cu").write_text(SOURCE.replace("// third\n", "// third\n\n"))  # line 9 is empty, 10 the last
    decision = Decision((), ("ldg.128",), mark="third")
    assert decided(folder, decision, (END, 8))[0] == 0
    assert decided(folder, decision, (END, 8), (WIDE, line)) == (None, OTHER_LINES("k.cu"))


def test_what_is_inlined_is_of_the_function_and_of_its_call(folder: Path) -> None:
    lines = ((WIDE, (2, 6)), (NARROW, (2, 7)))
    assert decided(folder, Decision(("ldg.128",), function="load"), *lines)[0] == 1
    # A line table may give the loads of one call the line of the other: both count.
    assert decided(folder, Decision(("ldg.128",), mark="first"), *lines)[0] == 1
    assert decided(folder, Decision(("ldg.128",), quote="b = load"), *lines)[0] == 1
    assert decided(folder, Decision(("ldg.128",), quote="b = load"), (WIDE, (2, 6)), (WIDE, (2, 7)))[0] == 0


@pytest.mark.parametrize(
    ("place", "cause"),
    [
        ({"mark": "fourth"}, NO_PIECE("mark 'fourth'")),
        ({"quote": "load(p"}, SEVERAL_PIECES("quote 'load(p'", ("k.cu:6", "k.cu:7"))),
        ({"function": "missing"}, NO_PIECE("function 'missing'")),
        ({"quote": "b = load(p + 1)"}, NO_CODE_OF_PIECE("quote 'b = load(p + 1)'", "k.cu:7")),
    ],
)
def test_without_one_piece_with_code_nothing_is_told(folder: Path, place: dict[str, str], cause: Cause) -> None:
    for decision in (Decision(("ldg.128",), **place), Decision((), ("local",), **place)):  # type: ignore[arg-type]
        assert decided(folder, decision, (WIDE, 8), (END, 9)) == (None, cause)


def test_without_line_information_only_a_whole_kernel_is_judged(folder: Path) -> None:
    assert decided(folder, Decision((), ("local",), mark="third"), (WIDE, 0)) == (None, NO_LINES())
    assert decided(folder, Decision((), ("local",)), (WIDE, 0))[0] == 0


def test_a_source_of_another_size_is_not_the_compiled_one(folder: Path) -> None:
    decision = Decision(("ldg.128",), mark="third")
    listed = b"k.cu\0\x01\x80\x01%c\x01" % (len(SOURCE) - 128 + 128)
    assert 128 <= len(SOURCE) < 256
    assert decided(folder, decision, (WIDE, 8), cubin=b"ELF" + listed)[0] == 0
    (folder / "k.cu").write_text(SOURCE + " ")
    for content in (listed, b"k.cu\0\0\0\0", b"no line table"):
        assert decided(folder, decision, (WIDE, 8), cubin=content) == (None, OTHER_LINES("k.cu"))


def test_an_arch_without_the_instruction_is_no_pass(folder: Path) -> None:
    for decision in (Decision(("wgmma",)), Decision((), ("wgmma",))):
        assert decided(folder, decision, (WIDE, 8), arch="sm_80") == (None, NOT_ON_ARCH("wgmma", "sm_80"))


def test_a_function_compiled_separately_may_do_what_must_not_be(folder: Path) -> None:
    other = listing(folder, ("STL [R1], R2", 2), ("RET.REL.NODEC R2 `(k)", 2), name="_Z1fv")
    call: Line = ("CALL.ABS.NOINC `(_Z1fv)", 6)
    assert decided(folder, Decision((), ("local",)), call, more=other) == (None, CALLED_SEPARATELY("_Z1fv"))
    assert decided(folder, Decision((), ("local",)), (WIDE, 6), more=other)[0] == 0


LOOP: tuple[Line, ...] = (
    (".L_x_1:", 8),
    (WIDE, 8),
    ("@P0 BRA `(.L_x_1)", 8),
    (END, 9),
    (".L_x_2:", 9),
    ("BRA `(.L_x_2)", 9),
)


def test_a_loop_is_of_the_line_that_starts_it_again(folder: Path) -> None:
    assert decided(folder, Decision((), ("loop",)), *LOOP)[0] == 1
    assert decided(folder, Decision((), ("loop",), mark="third"), *LOOP)[0] == 1
    assert decided(folder, Decision((), ("loop",), mark="first"), ("NOP", 6), *LOOP)[0] == 0
    assert decided(folder, Decision((), ("loop",)), *LOOP[3:])[0] == 0  # the padding behind the end is none


def hgmma(*group: str, wait: str = "0x0") -> tuple[Line, ...]:
    products = [(f"HGMMA.64x8x16.F32 R24, gdesc[UR4], R24{tail}", 8) for tail in group]
    return (("WARPGROUP.ARRIVE", 8), *products, (f"WARPGROUP.DEPBAR.LE gsb0, {wait}", 8))


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (hgmma("", "", ", gsb0"), 0),
        (hgmma(", gsb0") * 2, 1),
        (hgmma(", gsb0", wait="0x1") * 2, 0),
        (hgmma("", ", gsb0") + hgmma(", gsb0"), 1),
        ((), 0),
    ],
)
def test_wgmma_is_serial_where_each_is_waited_for(folder: Path, lines: tuple[Line, ...], value: int) -> None:
    assert decided(folder, Decision((), ("wgmma_serial",)), *lines, (END, 9))[0] == value


# --- what ptxas writes ------------------------------------------------------------------------------------

PTX = {
    "wgmma": "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %l, %l, 1, 1, 1, 0, 0;",
    "mma": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r,%r}, {%r}, {%f0,%f1,%f2,%f3};",
    "tma_load": "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r], [%l, {%r}], [%r];",
    "tma_load ": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r], [%l], %r, [%r];",
    "tma_store": "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%l, {%r}], [%r];",
    "tma_store ": "cp.async.bulk.global.shared::cta.bulk_group [%l], [%r], %r;",
    "tma_store  ": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%l], [%r], %r;",
    "tma_store   ": "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%l, {%r}], [%r];",
    "cp_async": "cp.async.ca.shared.global [%r], [%l], 8;",
    "ldg.128": "ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%l];",
    "ldg.64": "ld.global.v2.f32 {%f0,%f1}, [%l];",
    "stg.128": "st.global.v4.f32 [%l], {%f0,%f1,%f2,%f3};",
    "stg.64": "st.global.v2.f32 [%l], {%f0,%f1};",
    "lds.128": "ld.shared.v4.f32 {%f0,%f1,%f2,%f3}, [%r];",
    "sts.128": "st.shared.v4.f32 [%r], {%f0,%f1,%f2,%f3};",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r}, [%r];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r], {%r};",
    "setmaxnreg": "setmaxnreg.dec.sync.aligned.u32 24;",
    "ffma": "fma.rn.f32 %f0, %f1, %f2, %f3;",
    "local": "st.local.u32 [%l2], %r; ld.local.u32 %r, [%l3];",
    "fp64": "cvt.f64.f32 %d, %f0; add.f64 %d, %d, %d; cvt.rn.f32.f64 %f0, %d;",
    "slow_path": "div.rn.f32 %f0, %f0, %f1;",
    "call": "to: .callprototype (.param .f32 _) _ (.param .f32 _); call (%f0), %m, (%f0), to;",
    "loop": "AGAIN: add.s32 %r, %r, 1; st.volatile.global.u32 [%l], %r; setp.lt.s32 %p, %r, %s; @%p bra AGAIN;",
    "barrier": "bar.sync 0;",
    "atomic": "atom.global.add.u32 %r, [%l], 3;",
    "atomic ": "red.shared.add.u32 [%r], 3;",
}
ELSEWHERE = {"tcgen05", "wgmma_serial"}  # tested by themselves


def test_every_name_is_tested() -> None:
    assert {name.strip() for name in PTX} | ELSEWHERE == {*meanings()}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[sass.Instruction]]:
    """A kernel with each instruction alone, and one with none."""
    ptxas, disassembler = map(toolchain.optional_tool, ("ptxas", "nvdisasm"))
    if not ptxas or not disassembler:
        pytest.skip("tool: no ptxas or no nvdisasm on this machine")
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    registers = (
        ".local .align 16 .b8 frame[64]; .reg .b64 %l, %l2, %l3, %m; .reg .b32 %r, %s; .reg .f32 %f<4>; .reg .f64 %d; "
        ".reg .pred %p; ld.param.u64 %l, [a]; ld.param.u32 %r, [b]; ld.param.u32 %s, [b]; mov.b32 %f0, %r;"
        "mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; cvt.u64.u32 %m, %r; "
        "mov.u64 %l2, frame; and.b64 %m, %m, 60; add.u64 %l2, %l2, %m; mov.u64 %l3, frame; cvt.u64.u32 %m, %s; "
        "shl.b64 %m, %m, 2; add.u64 %l3, %l3, %m;"
    )
    tail = "".join(f"st.volatile.global.b32 [%l], %{r};" for r in ("f0", "f1", "f2", "f3", "r")) + "ret;"
    kernels = "".join(
        f".visible .entry k{n} (.param .u64 a, .param .u32 b) .maxntid 128 .minnctapersm 1\n"
        f"{{ {registers}\n{code}\n{tail} }}\n"
        for n, code in enumerate([*PTX.values(), ""])
    )
    folder = tmp_path_factory.mktemp("names")
    (folder / "names.ptx").write_text(head + kernels)
    subprocess.run([ptxas, "-arch=sm_90a", folder / "names.ptx", "-o", folder / "names.cubin"], check=True)
    return sass.parse(disassemble(folder / "names.cubin", disassembler))


@pytest.mark.parametrize("name", PTX)
def test_a_name_is_seen_in_what_ptxas_makes_of_its_instruction(
    name: str, compiled: dict[str, list[sass.Instruction]]
) -> None:
    for kernel, value in (([*PTX].index(name), 0), (len(PTX), 1)):
        code = compiled[f"k{kernel}"]
        assert compiler_decisions.decided(Decision((name.strip(),)), code, "sm_90a", Sources(Path()))[0] == value


def test_tcgen05_is_seen_in_what_ptxas_makes_of_it(tmp_path: Path) -> None:
    ptxas, disassembler = map(toolchain.optional_tool, ("ptxas", "nvdisasm"))
    if not ptxas or not disassembler:
        pytest.skip("tool: no ptxas or no nvdisasm on this machine")
    (tmp_path / "k.ptx").write_text(
        ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k (.param .u64 a, .param .u32 b) {\n"
        ".reg .b64 %l; .reg .b32 %r; .reg .pred %p; ld.param.u64 %l, [a]; ld.param.u32 %r, [b]; setp.ne.u32 %p, %r, 0; "
        "\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%r], %l, %l, %r, %p; ret; }\n"
    )
    subprocess.run([ptxas, "-arch=sm_100a", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)
    functions = sass.parse(disassemble(tmp_path / "k.cubin", disassembler))
    assert compiler_decisions.decided(Decision(("tcgen05",)), functions["k"], "sm_100a", Sources(tmp_path))[0] == 0


CUDA = """\
#define HOT(x) /* in a macro */ (x)
__device__ float load(const float* p);
// load(p) loads
template <int S>
__device__ __forceinline__ float load(const float* p,
                                      int i = 0) noexcept {
  return p[S * i];  // the load
}
__global__ void kernel(const float* p, float* out, int n) {
  if (load<1>(p)) {
    out[0] = 1'000 + 'x';
  }
  // a loop
  for (int i = 0; i < n; ++i) {
    out[i] = p[i] + load<2>(
        p, i);
    if (out[i] > 0) out[i] = 0; else
      out[i] = 1;
  }
  float d[2] = {
      p[0], p[1]};
  /* the
     lambda */
  auto f = [&](int i) {
    return p[i];
  };
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      out[k] += f(j);
  printf("} // not a mark");
  out[9] = d[0];
}
"""
PYTHON = '''\
import triton

# the kernel
@triton.jit
def kernel(x, out,
           n: int):
    """kernel(x) adds"""
    for i in range(n):  # loop
        a = tl.load(
            x + i)

        tl.store(out, a)
    tl.store(out, 0)


def other(): pass
'''


def found(text: str = CUDA, python: bool = False, **place: Any) -> list[tuple[int, int]]:
    return pieces(text, Decision(("ldg.128",), **place), python=python)


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        ({"function": "load"}, [(4, 8)]),  # no declaration, no call
        ({"function": "kernel"}, [(9, 34)]),
        ({"function": "kern"}, []),
        ({"mark": "the load"}, [(7, 7)]),
        ({"mark": "load"}, []),  # all of a comment
        ({"mark": "a loop"}, [(14, 19)]),
        ({"mark": "the lambda"}, [(24, 26)]),
        ({"mark": "in a macro"}, []),
        ({"mark": "not a mark"}, []),
        ({"quote": "i<n;++i"}, [(14, 19)]),  # the statement, whatever its white space
        ({"quote": "load<2>(p, i)"}, [(15, 16)]),
        ({"quote": "out[i] = 1"}, [(17, 18)]),
        ({"quote": "p[1]"}, [(20, 21)]),
        ({"quote": "return p[i]"}, [(25, 25)]),
        ({"quote": "int k = 0"}, [(28, 31)]),
        ({"quote": "f(j)"}, [(28, 31)]),
        ({"quote": "out[9]"}, [(33, 33)]),
        ({"quote": "load(p) loads"}, []),  # only in a comment
        ({"quote": "ut[9]"}, []),  # whole words
        ({"quote": "HOT(x)"}, []),
    ],
)
def test_a_piece_of_c_is_its_whole_statement(place: dict[str, Any], lines: list[tuple[int, int]]) -> None:
    assert found(**place) == lines


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        ({"function": "kernel"}, [(5, 13)]),
        ({"function": "other"}, [(16, 16)]),
        ({"mark": "loop"}, [(8, 12)]),
        ({"quote": "tl.load(x + i)"}, [(9, 10)]),
        ({"quote": "tl.store(out, 0)"}, [(13, 13)]),
        ({"quote": "kernel(x) adds"}, [(7, 7)]),  # strings are code
        ({"mark": "adds"}, []),
    ],
)
def test_a_piece_of_python_has_its_block(place: dict[str, str], lines: list[tuple[int, int]]) -> None:
    assert found(PYTHON, python=True, **place) == lines


BRANCHES = """\
template <int S = 4, typename T = std::enable_if_t<(S > 2)>>
__global__ void __launch_bounds__(kThreads, min(2, kBlocks)) branches(const int* p) {
  if (int x = p[0]; x > 1) {
    a(x);
  } else if (b(x)) {
    c(x);
  } else {
    d(x);
  }
  each([&](int i) {
    e(i); f(i);
  }, p[1]);
  auto g = b(p) + h(float4{p[2]});
}
"""


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        ({"quote": "x > 1"}, [(3, 9)]),
        ({"quote": "b(x)"}, [(3, 9)]),  # an if with all of its branches
        ({"quote": "c(x)"}, [(6, 6)]),
        ({"quote": "d(x)"}, [(8, 8)]),
        ({"quote": "f(i)"}, [(11, 11)]),
        ({"quote": "p[1]"}, [(10, 12)]),
        ({"function": "branches"}, [(1, 14)]),
        *(({"function": name}, []) for name in ("b", "e", "each", "h")),  # called
    ],
)
def test_a_piece_of_c_has_all_branches_and_arguments(place: dict[str, Any], lines: list[tuple[int, int]]) -> None:
    assert found(BRANCHES, **place) == lines


def test_each_occurrence_is_a_piece() -> None:
    assert found(quote="for (int") == [(14, 19), (28, 31)]
    assert found("// a\nx();\n// a\ny();\n", mark="a") == [(2, 2), (4, 4)]
    assert found("void f() {}\nvoid f(int) {}\n", function="f") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("text", ["", "// a", "f(", "}}}", "// a\n}", "/* a", '"', "#define X \\", "// a\n{"])
def test_no_text_is_too_odd(text: str) -> None:
    for place in ({"mark": "a"}, {"quote": "f("}, {"function": "f"}):
        for python in (False, True):
            assert all(1 <= first <= last for first, last in found(text, python=python, **place))
