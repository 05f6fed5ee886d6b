"""How far an answer is from the reference, and when that is too far."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from flashcore.stages.check.accuracy import Errors, differing, errors, judge, over_class, ulp
from flashcore.worker.kernel_call import load_problem
from tests.conftest import ROOT


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
    assert len(judge(own, sound, "class", {"max": 1.0, "mean": 1.0})) == 4


def test_an_emulation_without_error_is_no_division_by_zero() -> None:
    exact = Errors(0.0, 0.0, 0.0, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, found=1.0)
    assert over_class(exact, exact) == (0.0, 0.0)
    off = Errors(2**-10, 2**-10, 2**-10, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, found=1.0)
    assert over_class(off, exact) == (2.0, 2.0)
    assert judge(off, exact, "class", {"max": 1.0, "mean": 1.0}) == []


def test_differing_compares_bits() -> None:
    a = torch.tensor([0.0, math.nan, 1.0])
    assert differing(a, torch.tensor([-0.0, math.nan, 1.0])).tolist() == [True, False, False]


# --- planted answers of the attention suite ------------------------------------------------------


ATTENTION = load_problem(ROOT / "kernels/attention", "problem.py")
CLASSES = ("fp32_p", "fused_fp16_p", "unfused_fp16_sp", "fp16_accum", "quantized_u8")


@functools.cache
def entitled(tolerance: str, kind: str, seq: int) -> tuple[dict[str, Any], torch.Tensor, Errors]:
    params = {"B": 1, "H": 2, "S": seq, "D": 64}
    inputs = ATTENTION.make_inputs(params, 0, "cpu", kind)
    answer = ATTENTION.reference(ATTENTION.basis(tolerance, inputs, params), params)["out"]
    return inputs, answer, errors(ATTENTION.emulate(tolerance, inputs, params)["out"], answer)


def complaints(tolerance: str, plant: Callable[[dict[str, Any]], torch.Tensor], kind: str, seq: int) -> list[str]:
    inputs, answer, own = entitled(tolerance, kind, seq)
    return judge(errors(plant(inputs), answer), own, tolerance, ATTENTION.FENCE)


def answered(tolerance: str, inputs: dict[str, Any]) -> torch.Tensor:
    found: torch.Tensor = ATTENTION.emulate(tolerance, inputs, {"D": 64})["out"]
    return found


def padded(inputs: dict[str, Any]) -> dict[str, Any]:
    """Sixteen keys of zeros taken in."""
    more = {n: torch.cat([inputs[n], torch.zeros_like(inputs[n][:, :, :16])], 2) for n in ("k", "v")}
    return inputs | more


@pytest.mark.parametrize("tolerance", CLASSES)
def test_a_scale_that_is_off_by_a_thousandth_and_padded_keys_are_wrong(tolerance: str) -> None:
    for kind in ATTENTION.KINDS:
        assert complaints(tolerance, lambda given: answered(tolerance, given), kind, 256) == []
    scaled = functools.partial(complaints, tolerance, lambda x: answered(tolerance, x | {"scale": x["scale"] * 1.001}))
    assert scaled("normal", 256)
    assert complaints(tolerance, lambda given: answered(tolerance, padded(given)), "normal", 256)


@pytest.mark.parametrize("tolerance", CLASSES)
@pytest.mark.parametrize("factor", [1.0005, 0.9995])
def test_an_output_that_is_off_by_a_factor_is_wrong(tolerance: str, factor: float) -> None:
    def plant(given: dict[str, Any]) -> torch.Tensor:
        """As a kernel would: rounded once, after the factor."""
        exact = ATTENTION.emulate(tolerance, given | {"v": given["v"].double() * factor}, {"D": 64})
        found: torch.Tensor = exact["out"]
        return found

    found = complaints(tolerance, plant, "normal", 512)
    assert any("the answer as a whole is" in text for text in found), found
