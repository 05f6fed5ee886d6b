"""The tolerance class of examples/row_softmax covers what its instructions promise, whatever is drawn."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from flashcore.runner.accuracy import beyond_tolerance, errors
from flashcore.runner.problem_file import load_problem
from flashcore_judge import answers
from tests.conftest import ROOT

PROBLEM = ModuleType("mixed")  # not the module that other tests load
vars(PROBLEM).update(vars(load_problem(ROOT / "examples/row_softmax", "problem.py")))
answers.mix(PROBLEM)
WIDE, ODD = (64, 8192), (37, 129)
#: Draws with few rows of large answers, which add up almost without rounding one element after another.
DRAWN = [("normal+large", WIDE, seed) for seed in (379677611, 1359884660, 409992035)] + [
    (kind, ODD, seed) for kind in ("normal", "large", "constant_rows", "constant_rows+large") for seed in (0, 1, 2)
]


def off(exact: torch.Tensor, ulps: float, dice: torch.Generator) -> torch.Tensor:
    """fp32 values that are so many ulp above or below the correctly rounded ones, as PTX's bounds are meant."""
    rounded = exact.float()
    ulp = torch.where(rounded == 0, 0.0, torch.ldexp(torch.ones_like(rounded), torch.frexp(rounded)[1] - 24))
    return rounded + ulp * ulps * (2 * torch.randint(0, 2, exact.shape, generator=dice) - 1)


def kernel(x: torch.Tensor, dice: torch.Generator, exponential: float = 2, reciprocal: float = 1) -> torch.Tensor:
    """What warp.cu computes, with ``ex2.approx`` and ``rcp.approx`` off by so many ulp, the most that they may be."""
    scores = (x - x.amax(-1, keepdim=True)) * 1.4426950408889634
    weights = torch.where(scores == 0, 1.0, off(scores.double().exp2(), exponential, dice))
    lanes = torch.zeros(len(x), 32)
    for part in torch.nn.functional.pad(weights, (0, -x.shape[1] % 32)).reshape(len(x), -1, 32).unbind(1):
        lanes = lanes + part
    for offset in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[:, torch.arange(32) ^ offset]
    return weights * off(1 / lanes[:, :1].double(), reciprocal, dice)


@pytest.mark.parametrize(("kind", "size", "seed"), DRAWN)
def test_a_class_covers_its_instructions_on_every_draw(kind: str, size: tuple[int, int], seed: int) -> None:
    params, dice = dict(zip("RC", size, strict=True)), torch.Generator().manual_seed(0)
    inputs = PROBLEM.make_inputs(params, seed, "cpu", kind)
    answer = PROBLEM.reference(inputs, params)["out"]
    entitled = errors(PROBLEM.emulate("fp32", inputs, params)["out"], answer)
    for _ in range(8):
        assert not beyond_tolerance(errors(kernel(inputs["x"], dice), answer), entitled, "fp32", PROBLEM.FENCE)
    for wrong in [(2, 64)] + [(2**13, 1)] * ("constant" not in kind):  # such exponentials are halves
        assert beyond_tolerance(errors(kernel(inputs["x"], dice, *wrong), answer), entitled, "fp32", PROBLEM.FENCE), (
            wrong
        )
