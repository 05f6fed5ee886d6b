"""The errors of an answer against the reference, and their limits."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flashcore.runner.accuracy import (
    Errors,
    beyond_tolerance,
    differing,
    errors,
    not_finite,
    over_class,
    soundness,
    ulp,
)
from flashcore.runner.guarded import Outputs
from flashcore.runner.problem_file import load_problem
from tests.conftest import ROOT
from tests.support.late import Late, optional

torch = optional("torch")


def test_ulp() -> None:
    assert ulp(1.0, torch.float16) == 2**-10
    assert ulp(1.99, torch.float16) == 2**-10
    assert ulp(2.0, torch.float16) == 2**-9
    assert ulp(0.0, torch.float16) == 2**-24  # the smallest subnormal
    assert ulp(1.0, torch.bfloat16) == 2**-7
    assert ulp(100.0, torch.int32) == 1.0


def test_errors_are_those_of_the_finite_part() -> None:
    reference = torch.tensor([1.0, -2.0, math.inf], dtype=torch.float64)
    result = errors(torch.tensor([1.0, -2.5, math.inf], dtype=torch.float16), reference)
    assert (result.max, result.mean, result.at) == (0.5, 0.25, (1,))
    assert result.frobenius == pytest.approx(0.5 / math.sqrt(5))
    assert (result.expected, result.answer) == (-2.0, -2.5)


def test_nan_is_never_within_a_limit() -> None:
    reference = torch.zeros(4, dtype=torch.float64)
    measured = errors(torch.tensor([0, math.nan, 0, 0], dtype=torch.float16), reference)
    sound = errors(torch.zeros(4, dtype=torch.float16), reference)
    assert math.isnan(measured.max)
    assert len(beyond_tolerance(measured, sound, "class", {"max": 1.0, "mean": 1.0})) == 4


def test_an_emulation_without_error_is_no_division_by_zero() -> None:
    exact = Errors(0.0, 0.0, 0.0, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, answer=1.0)
    assert over_class(exact, exact) == (0.0, 0.0)
    assert beyond_tolerance(replace(exact, rows=0), exact, "class", {"max": 1.0, "mean": 1.0}) == [], (
        "an answer of no rows"
    )
    off = Errors(2**-10, 2**-10, 2**-10, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, answer=1.0)
    assert over_class(off, exact) == (2.0, 2.0)
    assert beyond_tolerance(off, exact, "class", {"max": 1.0, "mean": 1.0}) == []


def test_differing_compares_bits() -> None:
    a = torch.tensor([0.0, math.nan, 1.0])
    assert differing(a, torch.tensor([-0.0, math.nan, 1.0])).tolist() == [True, False, False]


# --- planted answers of the attention suite ------------------------------------------------------


ATTENTION = Late(lambda: load_problem(ROOT / "kernels/attention", "problem.py"))
CLASSES = ("fp32_p", "fused_fp16_p", "unfused_fp16_sp", "fp16_accum", "quantized_u8")


@functools.cache
def entitled(tolerance: str, kind: str, seq: int) -> tuple[dict[str, Any], Any, Errors]:
    params = {"B": 1, "H": 2, "S": seq, "D": 64}
    inputs = ATTENTION.make_inputs(params, 0, "cpu", kind)
    answer = ATTENTION.reference(ATTENTION.basis(tolerance, inputs, params), params)["out"]
    return inputs, answer, errors(ATTENTION.emulate(tolerance, inputs, params)["out"], answer)


def complaints(tolerance: str, plant: Callable[[dict[str, Any]], Any], kind: str, seq: int) -> list[str]:
    inputs, answer, measured = entitled(tolerance, kind, seq)
    return beyond_tolerance(errors(plant(inputs), answer), measured, tolerance, ATTENTION.FENCE)


def answered(tolerance: str, inputs: dict[str, Any]) -> Any:
    result: Any = ATTENTION.emulate(tolerance, inputs, {"D": 64})["out"]
    return result


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
    def plant(given: dict[str, Any]) -> Any:
        """As a kernel would: rounded once, after the factor."""
        exact = ATTENTION.emulate(tolerance, given | {"v": given["v"].double() * factor}, {"D": 64})
        result: Any = exact["out"]
        return result

    result = complaints(tolerance, plant, "normal", 512)
    size = "large" if factor > 1 else "small"
    assert any(re.match(rf"the answer's scale is too {size} by [\d.e-]+ \(relative\)", text) for text in result), result


# --- where was written ------------------------------------------------------------------------------


def outputs() -> Outputs:
    made = Outputs({"out": ((2, 3), "float32")})
    made["out"].copy_(torch.arange(6.0).view(2, 3))
    return made


def mistakes(made: Outputs, left: Sequence[int] = ()) -> list[str]:
    """Of an answer whose elements ``left`` need not be written."""
    unwritten = torch.zeros(6, dtype=torch.bool)
    unwritten[list(left)] = True
    return soundness(made, {"out": unwritten.view(2, 3)}, {"out": torch.arange(6, dtype=torch.float64).view(2, 3)})


def test_a_whole_answer_is_sound() -> None:
    assert mistakes(outputs()) == []


def test_a_write_beside_the_output_is_told() -> None:
    made = outputs()
    band = made["out"].as_strided((8,), (1,))
    band[6:8] = 1.0  # behind its last element
    (message,) = mistakes(made)
    assert message.startswith("out: out-of-bounds write: ")


def test_elements_never_written_are_counted_and_nothing_else_is_said_of_them() -> None:
    made = outputs()
    made["out"][1, 1:] = math.nan
    assert mistakes(made, [4, 5]) == ["out: 2 of 6 elements never written, the first at [1, 1]"]


def test_what_is_not_finite_is_counted_with_the_first() -> None:
    made = outputs()
    made["out"][1, 1:] = math.nan
    assert mistakes(made) == ["out: 2 of 6 elements not finite, the first at [1, 1]: expected 4, found nan"]


def test_an_error_over_its_class_is_a_ratio() -> None:
    measured = Errors(0.3, 0.1, 0.5, ulp=1.0, norm=1.0, at=(0,), expected=0.0, answer=0.3)
    class_ = Errors(0.2, 0.1, 0.4, ulp=1.0, norm=1.0, at=(0,), expected=0.0, answer=0.2)
    assert over_class(measured, class_) == pytest.approx((1.5, 1.25))


@pytest.mark.parametrize("factor", [1.0, 1.25, 0.5])
def test_the_gain_is_the_part_of_the_error_that_lies_along_the_reference(factor: float) -> None:
    reference = torch.tensor([[3.0, -4.0], [12.0, 0.0]], dtype=torch.float64)
    result = errors((reference * factor).half(), reference)
    assert result.gain == pytest.approx(factor - 1) and result.rows == 2 and result.norm == 13.0
    across = reference + torch.tensor([[4.0, 3.0], [0.0, 0.0]])  # at right angles
    assert errors(across.half(), reference).gain == pytest.approx(0)


def test_infinity_is_finite_enough_where_the_reference_has_the_same() -> None:
    reference = torch.tensor([math.inf, -math.inf, math.inf, 1.0], dtype=torch.float64)
    result = torch.tensor([math.inf, -math.inf, -math.inf, math.inf])
    assert not_finite(result, reference).tolist() == [False, False, True, True]


def test_a_number_is_wrong_where_the_reference_has_none() -> None:
    reference = torch.tensor([math.inf, math.nan, math.nan, 1.0], dtype=torch.float64)
    assert not_finite(torch.tensor([0.0, 0.0, math.nan, 1.0]), reference).tolist() == [True, True, False, False]


def test_where_a_partial_reference_has_none_any_number_is_right_and_no_number_is_not() -> None:
    reference = torch.tensor([math.inf, math.nan, math.nan, math.nan, 1.0], dtype=torch.float64)
    result = torch.tensor([0.0, 0.0, math.nan, math.inf, math.nan])
    assert not_finite(result, reference, partial=True).tolist() == [True, False, True, True, True]


@pytest.mark.parametrize(("gain", "word"), [(0.01, "large"), (-0.01, "small")])
def test_an_answer_that_is_off_as_a_whole_says_in_which_way(gain: float, word: str) -> None:
    class_ = Errors(0.1, 0.1, 1e-4, ulp=1e-5, norm=1.0, at=(0,), expected=0.0, answer=0.1, rows=100)
    measured = Errors(0.1, 0.1, 1e-4, ulp=1e-5, norm=1.0, at=(0,), expected=0.0, answer=0.1, gain=gain, rows=100)
    (message,) = beyond_tolerance(measured, class_, "class", {"max": 1.0, "mean": 1.0})
    assert message.startswith(f"the answer's scale is too {word} by 0.01 (relative)")
