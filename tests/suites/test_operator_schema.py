"""Operator schemas: what each says, and what a wrong one is told."""

from __future__ import annotations

import pytest

from flashcore.suites.operator_schema import parse_schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("Tensor x, Tensor(a!) y -> ()", "the form"),
        ("(Tensor x, Tensor(a!) y) -> Tensor", "the form"),
        ("(Tensor X, Tensor(a!) y) -> ()", "and a name in 'Tensor X'"),
        ("(Tensor? x, Tensor(a!) y) -> ()", "an input tensor as first argument, not optional"),
        ("(Tensor x, Tensor(a!)? y) -> ()", "only inputs to be optional, not 'Tensor\\(a!\\)\\? y'"),
        ("(Tensor x, Tensor(a!) y, Tensor? b=0) -> ()", "a default that fits Tensor"),
        ("(Tensor x, Tensor(a!) y, Tensor? b=None, int n) -> ()", "after those without"),
        ("(Tensor x, Tensor(a!) y, int? n) -> ()", "'Tensor\\?', .* and a name in 'int\\? n'"),
        ("(Tensor x, Tensor(a) y) -> ()", "and a name in 'Tensor\\(a\\) y'"),
        ("(Tensor[] x, Tensor(a!) y) -> ()", "and a name in 'Tensor\\[\\] x'"),
        ("(Tensor x, int(a!) n) -> ()", "and a name"),
        ("() -> ()", "and a name in ''"),
        ("(Tensor x) -> ()", "at least one output"),
        ("(Tensor(a!) y, Tensor x) -> ()", "an input tensor as first argument"),
        ("(int n, Tensor(a!) y) -> ()", "an input tensor as first argument"),
        ("(Tensor x, Tensor(a!) y, Tensor(a!) z) -> ()", "a different letter"),
        ("(Tensor x, Tensor(a!) x) -> ()", "unique argument names"),
        ("(Tensor x, Tensor(a!) y, bool b=1) -> ()", "a default that fits bool"),
        ("(Tensor x, Tensor(a!) y, int n=1.5) -> ()", "a default that fits int"),
        ("(Tensor x, Tensor(a!) y, float f=inf) -> ()", "a default that fits float"),
        ("(Tensor x, Tensor(a!) y=None) -> ()", "a default that fits Tensor"),
        ("(Tensor x, Tensor(a!) y, int n=1, int m) -> ()", "after those without"),
        ("(Tensor class, Tensor(a!) y) -> ()", "C\\+\\+"),
        ("(Tensor x, Tensor(a!) y, int mode) -> ()", r"torch.compile .* unlike mode \(rename to a_mode\)"),
        ("(Tensor x, Tensor(a!) y, int dispatch_key) -> ()", "unlike dispatch_key"),
    ],
)
def test_a_bad_schema_says_what_was_expected(schema: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse_schema(schema)


def test_a_schema_with_two_outputs() -> None:
    parsed = parse_schema("(Tensor x, int n, float f, Tensor(a!) y, Tensor(b!) z) -> ()")
    assert [(a.name, a.kind, a.mutable) for a in parsed] == [
        ("x", "tensor", False), ("n", "int", False), ("f", "float", False),
        ("y", "tensor", True), ("z", "tensor", True),
    ]  # fmt: skip


def test_numbers_may_have_defaults() -> None:
    parsed = parse_schema("(Tensor x, Tensor(a!) y, int m, bool b=True, int n=-3, float f=1e-5) -> ()")
    assert [(a.kind, a.default) for a in parsed[2:]] == [("int", None), ("bool", True), ("int", -3), ("float", 1e-5)]


def test_a_tensor_may_be_absent_and_one_may_be_input_and_output() -> None:
    parsed = parse_schema("(Tensor(a!) c, Tensor? bias, Tensor(b!) out, Tensor? mask=None, int n=1) -> ()", ["c"])
    assert [(a.name, a.mutable, a.inout, a.optional, a.default) for a in parsed] == [
        ("c", True, True, False, None), ("bias", False, False, True, None), ("out", True, False, False, None),
        ("mask", False, False, True, None), ("n", False, False, False, 1),
    ]  # fmt: skip
    assert parsed[1].absent({"bias": False}) and not parsed[1].absent({"bias": True}) and not parsed[1].absent({})
