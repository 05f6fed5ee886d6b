"""Kernels of two builds are paired by what they are."""

from __future__ import annotations

import pytest

from flashcore.explain.pairs import KernelIdentity, paired


def pairs(before: list[str], after: list[str]) -> dict[str, str]:
    """The pairs of kernels with other names; of kernels in the reverse order they are the same."""
    made = paired(map(KernelIdentity, before), map(KernelIdentity, after))
    assert paired(map(KernelIdentity, before[::-1]), map(KernelIdentity, after[::-1])) == made
    return {new: old for new, old in made.items() if new != old}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["k<64>", "k<128>"], ["k<128>", "k<64>"], {}),
        (["k<1,64>", "k<2,64>"], ["k<2,128>", "k<1,128>"], {"k<1,128>": "k<1,64>", "k<2,128>": "k<2,64>"}),
        (["k<64>", "k<1024>"], ["k<128>"], {"k<128>": "k<64>"}),
        (["k<float>", "k<double>"], ["k<half>"], {}),  # both fit
        (["n::a<float,4>", "n::b<float,4>"], ["n::b<float,8>"], {"n::b<float,8>": "n::b<float,4>"}),
        (["A<1>::k<2>", "A<3>::k<2>"], ["A<1>::k<4>"], {"A<1>::k<4>": "A<1>::k<2>"}),
        (["_Z1kILi64EEvPf"], ["k<128>"], {"k<128>": "_Z1kILi64EEvPf"}),
        (
            ["s<BLOCK=1024,columns%16>", "s<BLOCK=256>"],
            ["s<BLOCK=256,num_warps=4>", "s<BLOCK=1024,columns%16,num_warps=8>"],
            {"s<BLOCK=256,num_warps=4>": "s<BLOCK=256>",
             "s<BLOCK=1024,columns%16,num_warps=8>": "s<BLOCK=1024,columns%16>"},
        ),
        (["copy"], ["scale"], {}),
    ],
)  # fmt: skip
def test_pairs_differ_the_least(before: list[str], after: list[str], expected: dict[str, str]) -> None:
    assert pairs(before, after) == expected


def test_the_same_code_is_the_same_kernel_under_another_name() -> None:
    before = [KernelIdentity("k<1>", "a1"), KernelIdentity("k<2>", "b2"), KernelIdentity("copy", "c3")]
    after = [KernelIdentity("k<3>", "b2"), KernelIdentity("k<4>", "a1"), KernelIdentity("move", "c3")]
    assert paired(before, after) == {"k<3>": "k<2>", "k<4>": "k<1>", "move": "copy"}


def test_kernels_without_code_are_paired_by_name_though_all_are_the_same() -> None:
    before = [KernelIdentity(f"k<{n},1>", "empty") for n in (1, 2, 3)]
    after = [KernelIdentity(f"k<{n},2>", "empty") for n in (3, 1, 2)]
    assert paired(before, after) == {f"k<{n},2>": f"k<{n},1>" for n in (1, 2, 3)}


def test_another_name_and_other_code_is_the_same_kernel_only_with_most_values_in_common() -> None:
    old = KernelIdentity("copy", "a", frozenset({("registers", 32), ("smem", 1024), ("sass_bar", 2)}))
    near = KernelIdentity("move", "b", frozenset({("registers", 40), ("smem", 1024), ("sass_bar", 2)}))
    far = KernelIdentity("scale", "b", frozenset({("registers", 40), ("smem", 512), ("sass_bar", 2)}))
    assert paired([old], [near, far]) == {"move": "copy"}
    assert paired([old], [far]) == {}


def test_thousands_of_instantiations_are_paired_in_seconds() -> None:
    before = [KernelIdentity(f"k<{n},{m}>", f"{n} {m}") for n in range(100) for m in range(50)]
    after = [KernelIdentity(f"k<{n},{m},0>", f"{n} {m}") for n in range(100) for m in range(50)]
    assert len(paired(before, after)) == 5000
