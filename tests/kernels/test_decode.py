"""The problem of decoding: its reference is torch's answer, and its invariant notices a lost key."""

from __future__ import annotations

from typing import Any

import pytest

from flashcore.runner.problem_file import load_problem
from tests.conftest import ROOT
from tests.support.late import Late, optional

torch = optional("torch")
DECODE = Late(lambda: load_problem(ROOT / "examples/decode", "problem.py"))
PARAMS = {"B": 2, "H": 6, "HKV": 2, "R": 3, "S": 67, "D": 64, "DTYPE": "float16"}


def test_the_reference_is_torchs_answer() -> None:
    for kind in (*DECODE.KINDS, *DECODE.EDGE_KINDS):
        given = DECODE.make_inputs(PARAMS, 0, "cpu", kind)
        q, k, v = (given[name].double() for name in "qkv")
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=given["scale"], enable_gqa=True)
        assert torch.allclose(DECODE.reference(given, PARAMS)["out"], wanted, rtol=0, atol=1e-12), kind


@pytest.mark.parametrize(("dtype", "least", "most"), [("float16", 1e-4, 4e-4), ("bfloat16", 1e-3, 4e-3)])
def test_an_emulation_rounds_as_its_type_does(dtype: str, least: float, most: float) -> None:
    given = DECODE.make_inputs({**PARAMS, "DTYPE": dtype}, 0, "cpu")
    exact = DECODE.reference(given, PARAMS)["out"]
    rounded = DECODE.emulate("fused_half_p", given, PARAMS)["out"]
    assert str(rounded.dtype) == f"torch.{dtype}"
    assert least < float((rounded.double() - exact).norm() / exact.norm()) < most


def test_a_lost_key_is_noticed() -> None:
    given = DECODE.make_inputs(PARAMS, 0, "cpu")

    def without_the_last_key(x: dict[str, Any]) -> Any:
        return DECODE.reference({**x, "k": x["k"][:, :, :-1], "v": x["v"][:, :, :-1]}, PARAMS)

    assert DECODE.invariants(lambda x: DECODE.emulate("fused_half_p", x, PARAMS), given, PARAMS) == []
    assert "left out" in DECODE.invariants(without_the_last_key, given, PARAMS)[0]
