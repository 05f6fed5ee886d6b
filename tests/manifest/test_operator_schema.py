"""Operator schemas: what each says, and what a wrong one is told."""

from __future__ import annotations

import pytest

from flashcore.manifest.operator_schema import parse_schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("Tensor x, Tensor(a!) y -> ()", "the form"),
        ("(Tensor x, Tensor(a!) y) -> Tensor", "the form"),
        ("(Tensor X, Tensor(a!) y) -> ()", "and a name in 'Tensor X'"),
        ("(Tensor? x, Tensor(a!) y) -> ()", "and a name in 'Tensor\\? x'"),
        ("(Tensor x, int(a!) n) -> ()", "and a name"),
        ("() -> ()", "and a name in ''"),
        ("(Tensor x) -> ()", "at least one output"),
        ("(Tensor(a!) y, Tensor x) -> ()", "an input tensor as first argument"),
        ("(int n, Tensor(a!) y) -> ()", "an input tensor as first argument"),
        ("(Tensor x, Tensor(a!) y, Tensor(a!) z) -> ()", "another letter"),
        ("(Tensor x, Tensor(a!) x) -> ()", "each argument's name once"),
        ("(Tensor class, Tensor(a!) y) -> ()", "C\\+\\+"),
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
