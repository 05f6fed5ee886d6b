"""References are computed once for each shape, on the inputs that a tolerance class is entitled to."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.errors import UsageError
from flashcore.model.suite import Argument
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.references import References
from tests.support.late import optional

torch = optional("torch")
OUT = Argument("out", "tensor", True, ("N",), "float16")
CASE = KernelCall(
    variant="v", shape="s", suite="toy", root="root", problem_file="problem.py", params={"N": 2}, arguments=(OUT,),
    tolerance="exact", seeds=(0,), flop=1.0,
)  # fmt: skip


def problem(**more: Any) -> Any:
    """Doubles its input; notes what it computes."""
    made = SimpleNamespace(log=[], FENCE={"max": 1.0, "mean": 1.0}, **more)

    def make_inputs(params: Any, seed: int, device: str, kind: str) -> Any:
        made.log.append(("inputs", seed, kind, device))
        return {"x": torch.full((params["N"],), 1.0 + seed)}

    def reference(inputs: Any, params: Any) -> Any:
        made.log.append("reference")
        return {"out": 2 * inputs["x"]}

    made.make_inputs, made.reference = make_inputs, reference
    made.emulate = lambda tolerance, inputs, params: {"out": 2 * inputs["x"] + 1e-6}
    return made


def test_inputs_and_answers_are_computed_once_for_a_shape_seed_and_kind() -> None:
    references, ours = References(), problem()
    first = references.get(CASE, ours, "cpu", 0, "normal")
    assert references.get(replace(CASE, variant="w"), ours, "cpu", 0, "normal") is first
    assert ours.log == [("inputs", 0, "normal", "cpu"), "reference"] and first.cost == {}
    other = references.get(replace(CASE, tolerance="fused"), ours, "cpu", 0, "normal")
    assert other is not first and other.inputs is first.inputs and other.tolerance == "fused" and len(ours.log) == 2
    references.get(CASE, ours, "cpu", 1, "normal")
    assert references.get(CASE, ours, "cpu", 0, "zeros") is not first and len(ours.log) == 6
    references.get(replace(CASE, shape="t"), ours, "cpu", 0, "normal")
    assert len(ours.log) == 8


def test_references_of_earlier_shapes_are_kept_up_to_so_many_bytes() -> None:
    """A shape has 16 bytes here: 8 of input and 8 of answer."""
    references, ours = References(), problem()
    references.most = 2 * 16 + 1
    for name, computed in (("s", 2), ("t", 4), ("s", 4), ("u", 6), ("s", 6), ("t", 6), ("v", 8), ("u", 10), ("v", 10)):
        references.get(replace(CASE, shape=name), ours, "cpu", 0, "normal")
        assert len(ours.log) == computed, name


def test_an_emulation_has_the_type_of_its_output() -> None:
    assert References().get(CASE, problem(), "cpu", 0, "normal").entitled["out"].max == 0
    unnamed = replace(CASE, arguments=())
    assert References().get(unnamed, problem(), "cpu", 0, "normal").entitled["out"].max > 0


def test_a_class_that_quantizes_its_inputs_is_compared_on_the_quantized_ones() -> None:
    ours = problem(basis=lambda tolerance, inputs, params: {"x": inputs["x"] + 0.5} if tolerance == "fp8" else inputs)
    plain = References().get(CASE, ours, "cpu", 0, "normal")
    coarse = References().get(replace(CASE, tolerance="fp8"), ours, "cpu", 0, "normal")
    assert plain.cost == {} and plain.reference["out"].tolist() == [2, 2]
    assert coarse.reference["out"].tolist() == [3, 3] and coarse.cost["out"].max == 1


def test_an_output_without_a_reference_answer_is_the_problems_mistake() -> None:
    second = replace(CASE.arguments[-1], name="lse", mutable=True)
    case = replace(CASE, arguments=(*CASE.arguments, second))
    with pytest.raises(UsageError, match=r"reference answer for every output; \['lse'\] have none"):
        References().get(case, problem(), "cpu", 0, "normal")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_partial_reference_without_any_answer_is_the_problems_mistake(value: float) -> None:
    """It would call every number right."""
    ours = problem(PARTIAL=True)
    ours.reference = lambda inputs, params: {"out": torch.full((2,), value).double()}
    with pytest.raises(UsageError, match=r"answers of some elements, although it is PARTIAL; \['out'\] have none"):
        References().get(CASE, ours, "cpu", 0, "normal")
    ours.reference = lambda inputs, params: {"out": torch.tensor([2.0, value]).double()}
    assert References().get(CASE, ours, "cpu", 0, "normal").partial
