"""FlashAttention-4 as a reference: it needs its package, or a library whose kernels are told apart by their names."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.runner.problem_file import load_file, load_problem
from tests.conftest import ROOT
from tests.support.late import Late, optional

torch = optional("torch")
FOLDER = ROOT / "kernels/attention_general"
GENERAL = Late(lambda: load_problem(FOLDER, "general.py"))
FA4 = Late(lambda: load_file(str(FOLDER / "fa4.py")))


def inputs(**given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    params = {"B": 2, "H": 4, "HKV": 2, "S": 67, "D": 64, "CAUSAL": 0, "DTYPE": "float16", "LSE": 0, **given}
    return params, GENERAL.make_inputs(params, 0, "cpu")


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FA4_LIBRARY", raising=False)
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ModuleNotFoundError, match="flash_attn"):
        FA4.forward(**inputs()[1])


@pytest.mark.parametrize("causal", [0, 1])
def test_a_librarys_kernel_gets_rows_of_heads_and_its_output_is_returned(
    causal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(q: Any, k: Any, v: Any, out: Any, lse: None, scale: float, *rest: Any) -> None:
        assert len(rest) == 12
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        answer = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, scale=scale, is_causal=bool(causal), enable_gqa=True
        )
        out.copy_(answer.transpose(1, 2))

    name = "fa4_float16_d64_group2" + ("_causal" if causal else "")
    monkeypatch.setenv("FA4_LIBRARY", "somewhere.so")
    monkeypatch.setitem(sys.modules, "tvm_ffi", SimpleNamespace(load_module={"somewhere.so": {name: kernel}}.get))
    params, given = inputs(CAUSAL=causal)
    FA4._library.cache_clear()
    out = FA4.forward(**given)
    FA4._library.cache_clear()
    assert torch.allclose(out.double(), GENERAL.reference(given, params)["out"], rtol=0, atol=2e-3)


def test_a_name_tells_apart_what_is_compiled_apart() -> None:
    kinds = itertools.product(("float16", "bfloat16"), (64, 128), (1, 2, 4), (0, 1))
    names = set()
    for dtype, depth, heads, causal in kinds:
        _, given = inputs(DTYPE=dtype, D=depth, HKV=heads, CAUSAL=causal)
        q, k = (given[x].transpose(1, 2) for x in "qk")
        names.add(FA4.kernel_name(q, k, causal))
    assert len(names) == 2 * 2 * 3 * 2
    longer = inputs(S=130, B=1)[1]
    assert FA4.kernel_name(longer["q"].transpose(1, 2), longer["k"].transpose(1, 2), 0) in names
