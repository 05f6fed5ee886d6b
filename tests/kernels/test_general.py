"""The problem of causal and grouped attention: its reference is torch's answer, and its invariants notice mistakes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flashcore.model.suite import Argument
from flashcore.runner.guarded import Outputs
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.problem_file import load_problem
from flashcore.runner.references import References
from tests.conftest import ROOT
from tests.support.late import Late, optional

torch = optional("torch")
GENERAL = Late(lambda: load_problem(ROOT / "kernels/attention_general", "general.py"))


def params(causal: int, **given: Any) -> dict[str, Any]:
    return {"B": 2, "H": 4, "HKV": 2, "S": 67, "D": 64, "CAUSAL": causal, "DTYPE": "float16", "LSE": 1, **given}


@pytest.mark.parametrize("causal", [0, 1])
def test_the_reference_is_torchs_answer(causal: int) -> None:
    for kind in (*GENERAL.KINDS, *GENERAL.EDGE_KINDS):
        assert_torchs_answer(kind, causal)


def assert_torchs_answer(kind: str, causal: int) -> None:
    given = GENERAL.make_inputs(params(causal), 0, "cpu", kind)
    q, k, v = (given[name].double() for name in "qkv")
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, scale=given["scale"], is_causal=bool(causal), enable_gqa=True
    )
    result = GENERAL.reference(given, params(causal))
    assert torch.allclose(result["out"], wanted, rtol=0, atol=1e-12)
    scores = q @ k.repeat_interleave(2, 1).mT * given["scale"]
    if causal:
        scores = scores.masked_fill(torch.ones(67, 67, dtype=torch.bool).triu(1), float("-inf"))
    assert torch.allclose(result["lse"], scores.logsumexp(-1), rtol=0, atol=1e-12)


def test_rows_in_several_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = GENERAL.make_inputs(params(1), 0, "cpu")
    whole = GENERAL.reference(given, params(1))
    monkeypatch.setitem(GENERAL.reference.__globals__, "_CHUNK", 67 * 10)
    pieces = GENERAL.reference(given, params(1))
    assert torch.allclose(whole["out"], pieces["out"], rtol=0, atol=1e-13)


@pytest.mark.parametrize(("dtype", "least", "most"), [("float16", 1e-4, 4e-4), ("bfloat16", 1e-3, 4e-3)])
def test_an_emulation_rounds_as_its_type_does(dtype: str, least: float, most: float) -> None:
    given = GENERAL.make_inputs(params(0, DTYPE=dtype), 0, "cpu")
    exact = GENERAL.reference(given, params(0, DTYPE=dtype))
    rounded = GENERAL.emulate("fused_half_p", given, params(0, DTYPE=dtype))
    assert str(rounded["out"].dtype) == f"torch.{dtype}"
    assert least < float((rounded["out"].double() - exact["out"]).norm() / exact["out"].norm()) < most
    assert 0 < float((rounded["lse"].double() - exact["lse"]).abs().max()) <= 0.51 * GENERAL.LSE_STEP


def test_a_row_that_sees_later_keys_is_noticed() -> None:
    given = GENERAL.make_inputs(params(1), 0, "cpu")

    def right(x: dict[str, Any]) -> Any:
        return GENERAL.reference(x, params(1))

    def wrong(x: dict[str, Any]) -> Any:
        return GENERAL.reference({**x, "causal": 0}, params(1))

    assert GENERAL.invariants(right, given, params(1)) == []
    assert GENERAL.invariants(wrong, given, params(1))


def test_a_key_that_is_left_out_is_noticed() -> None:
    given = GENERAL.make_inputs(params(0), 0, "cpu")

    def wrong(x: dict[str, Any]) -> Any:
        return GENERAL.reference({**x, "k": x["k"][:, :, 1:], "v": x["v"][:, :, 1:]}, params(0))

    assert GENERAL.invariants(wrong, given, params(0))


def test_causal_counts_half() -> None:
    whole, half = GENERAL.work(params(0)), GENERAL.work(params(1))
    assert half["flop"] * 2 == whole["flop"] == 4 * 2 * 4 * 67 * 67 * 64
    assert half["bytes"] == whole["bytes"] == 2 * 2 * (4 + 2) * 67 * 64 * 2 + 4 * 2 * 4 * 67


@pytest.mark.parametrize(("seq", "depth", "heads"), [(67, 64, 2), (5800, 16, 1)])
def test_points_have_the_answers_of_some_heads(seq: int, depth: int, heads: int) -> None:
    points = load_problem(ROOT / "kernels/attention_general", "general_points.py")
    given = params(1, S=seq, D=depth, LSE=0)
    inputs = points.make_inputs(given, 0, "cpu")
    answer, rounded = points.reference(inputs, given)["out"], points.emulate("fused_half_p", inputs, given)["out"]
    computed = answer.isfinite()
    assert computed.sum() == heads * seq * depth and torch.equal(computed, rounded.isfinite())
    if heads > 1:
        assert torch.equal(answer[computed], GENERAL.reference(inputs, given)["out"][computed])


def test_points_are_judged_by_the_heads_that_are_computed() -> None:
    """Any number will do elsewhere, but no NaN."""
    points = load_problem(ROOT / "kernels/attention_general", "general_points.py")
    given = params(1, LSE=0)
    out = Argument("out", "tensor", True, ("B", "H", "S", "D"), "float16")
    case = KernelCall(
        variant="v", shape="s", suite="attention_general", root=str(ROOT / "kernels/attention_general"),
        problem_file="general_points.py", params=given, arguments=(out,),
        tolerance="fused_half_p", seeds=(0,), flop=1.0,
    )  # fmt: skip
    expected = References().get(case, points, "cpu", 0, "normal")
    right = GENERAL.reference(expected.inputs, given)["out"].half()
    computed = expected.reference["out"].isfinite()
    assert 0 < computed.sum() < right.numel()
    for mask, change, complaint in (
        (computed, 0.0, ""),
        (~computed, 1.0, ""),
        (~computed, math.nan, "elements not finite"),
        (computed, 1.0, "max error"),
    ):
        outputs = Outputs({"out": (tuple(right.shape), "float16")})
        outputs["out"].copy_(torch.where(mask, right + change, right))
        complaints = expected.complaints(outputs)
        assert complaint in " ".join(complaints) and bool(complaint) == bool(complaints)
