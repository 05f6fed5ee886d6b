"""Pieces of a source, found by a function's name, a comment or quoted code."""

from __future__ import annotations

from typing import Any

import pytest

from flashcore.model.suite import Decision
from flashcore.readers.pieces import pieces

SOURCE = """\
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


def found(text: str = SOURCE, python: bool = False, **place: Any) -> list[tuple[int, int]]:
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
