"""A variant's launches with the bytes of their arguments, from its host code alone."""

from __future__ import annotations

from flashcore.features.recorded.calls import RecordedCall, recorded_call
from flashcore.model.cause import Cause, cause_text
from tests.conftest import Built


def call(built: Built, variant: str, shape: str, **numbers: float) -> RecordedCall | Cause:
    problem = built.suite.problems[built.suite.variants[variant].problem]
    return recorded_call(built.of(variant), problem.arguments, {**built.suite.shapes[shape].params, **numbers})


def test_arguments_are_placeholder_addresses_and_numbers(toy: Built) -> None:
    found = call(toy, "two_steps", "small", factor=0.5)
    assert isinstance(found, RecordedCall) and found.workspace == 4 * 4096
    x, out, workspace = ((found.addresses[name]).to_bytes(8, "little") for name in ("x", "out", "workspace"))
    count = (4096).to_bytes(8, "little")
    assert [launch["kernel"] for launch in found.launches] == ["copy_kernel", "multiply_kernel"]
    assert found.arguments == [[x, workspace, count], [workspace, out, bytes.fromhex("0000003f"), count]]


def test_a_tensor_that_the_shape_leaves_out_has_no_address(update: Built) -> None:
    bare, biased = (call(update, "plain", shape, alpha=1.0, beta=2.0) for shape in ("bare", "biased"))
    assert isinstance(bare, RecordedCall) and isinstance(biased, RecordedCall)
    assert biased.addresses.keys() - bare.addresses.keys() == {"bias"} and bare.arguments[0][4] == bytes(8)


def test_a_refused_shape_has_a_cause(toy: Built) -> None:
    found = call(toy, "plain", "small", N=0, factor=0.5)
    assert isinstance(found, Cause) and cause_text(found)
