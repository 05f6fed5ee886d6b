"""How far an answer is from the reference, and when that is too far."""

from __future__ import annotations

import math

import pytest
import torch

from flashcore.stages.check.accuracy import Errors, differing, errors, judge, over_class, ulp


def test_ulp() -> None:
    assert ulp(1.0, torch.float16) == 2**-10
    assert ulp(1.99, torch.float16) == 2**-10
    assert ulp(2.0, torch.float16) == 2**-9
    assert ulp(0.0, torch.float16) == 2**-24  # the smallest subnormal
    assert ulp(1.0, torch.bfloat16) == 2**-7
    assert ulp(100.0, torch.int32) == 1.0


def test_errors_are_those_of_the_finite_part() -> None:
    reference = torch.tensor([1.0, -2.0, math.inf], dtype=torch.float64)
    found = errors(torch.tensor([1.0, -2.5, math.inf], dtype=torch.float16), reference)
    assert (found.max, found.mean, found.at) == (0.5, 0.25, (1,))
    assert found.frobenius == pytest.approx(0.5 / math.sqrt(5))
    assert (found.expected, found.found) == (-2.0, -2.5)


def test_nan_is_never_within_a_limit() -> None:
    reference = torch.zeros(4, dtype=torch.float64)
    own = errors(torch.tensor([0, math.nan, 0, 0], dtype=torch.float16), reference)
    sound = errors(torch.zeros(4, dtype=torch.float16), reference)
    assert math.isnan(own.max)
    assert len(judge(own, sound, "class", {"max": 1.0, "mean": 1.0}, peer=False)) == 4


def test_an_emulation_without_error_is_no_division_by_zero() -> None:
    exact = Errors(0.0, 0.0, 0.0, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, found=1.0)
    assert over_class(exact, exact) == (0.0, 0.0)
    off = Errors(2**-10, 2**-10, 2**-10, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, found=1.0)
    assert over_class(off, exact) == (2.0, 2.0)
    assert judge(off, exact, "class", {"max": 1.0, "mean": 1.0}, peer=False) == []


def test_differing_compares_bits() -> None:
    a = torch.tensor([0.0, math.nan, 1.0])
    assert differing(a, torch.tensor([-0.0, math.nan, 1.0])).tolist() == [True, False, False]
