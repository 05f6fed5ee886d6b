"""Conditions between the axes of a space: whole numbers, words and comparisons, parsed and never run as Python.

``ROWS // 16 * GROUPS <= 32``, ``STAGES == 1 or COPY == 'async'``: what Python's grammar reads as one of the nodes
below. Anything else (calls, attributes, powers, shifts) is refused where it is parsed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

MOST_LETTERS = 300

_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def parse(text: str, names: Collection[str]) -> ast.expr:
    """The condition as a tree of nodes that :func:`holds` knows.

    Args:
        names: of the values that it may speak of.

    Raises:
        ValueError: it is none; says what was expected.
    """
    if len(text) > MOST_LETTERS:
        raise ValueError(f"at most {MOST_LETTERS} letters")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("a comparison such as 'ROWS * STAGES <= 256'") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in names:
            raise ValueError(f"only the names {', '.join(names)}")
        if not _known(node):
            raise ValueError("names, whole numbers, words, + - * // %, comparisons, and, or, not")
    return tree


def _known(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, str))
    if isinstance(node, (ast.operator, ast.cmpop)):
        return type(node) in _ARITHMETIC or type(node) in _COMPARISONS
    plain = (ast.BoolOp, ast.boolop, ast.BinOp, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Name, ast.Load)
    return isinstance(node, (*plain, ast.Tuple, ast.List))


def holds(condition: ast.expr, values: Mapping[str, object]) -> bool:
    """Whether a parsed condition is true of these values.

    Raises:
        ValueError: it does arithmetic with a word, or divides by zero.
    """
    try:
        return bool(_value(condition, values))
    except (TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{ast.unparse(condition)}: {error}") from error


def _value(node: ast.expr, values: Mapping[str, object]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.Tuple() | ast.List():
            return [_value(e, values) for e in node.elts]
        case ast.BoolOp(op=ast.And()):
            return all(_value(v, values) for v in node.values)
        case ast.BoolOp():
            return any(_value(v, values) for v in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, values)
        case ast.UnaryOp():
            return -_number(_value(node.operand, values))
        case ast.BinOp():
            left, right = (_number(_value(side, values)) for side in (node.left, node.right))
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.Compare():
            terms = [_value(e, values) for e in (node.left, *node.comparators)]
            pairs = zip(node.ops, terms, terms[1:], strict=False)
            return all(_COMPARISONS[type(op)](a, b) for op, a, b in pairs)
    raise TypeError(f"{type(node).__name__} is no part of a condition")


def _number(value: object) -> int:
    """Arithmetic is only for numbers: a word times a number would be a longer word."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value
