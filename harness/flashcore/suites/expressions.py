"""Expressions of integers, words and comparisons in manifests: ``ROWS // 16 * GROUPS <= 32``, ``STAGES == 1 or COPY ==
'async'``.

Python parses and compiles one, after all syntax but the nodes below (calls, attributes, powers, shifts) is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from types import CodeType
from typing import Any, NoReturn

MOST_LETTERS = 300

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.Not, ast.And, ast.Or)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_TERMS = (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List)


class Word(str):
    """A word compares as text, but is not an operand: times a number it would be a longer word."""

    __slots__ = ()

    def _refuse(self, _: object) -> NoReturn:
        raise TypeError(f"{str(self)!r} is no number")

    __add__ = __sub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __rmod__ = _refuse


def parse(text: str, names: Collection[str], functions: Collection[str] = ()) -> CodeType:
    """Compiles the expression for :func:`evaluated`.

    Args:
        names: the names that it may contain.
        functions: the names that it may call.

    Raises:
        ValueError: it is not one.
    """
    if len(text) > MOST_LETTERS:
        raise ValueError(f"at most {MOST_LETTERS} letters")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("an expression such as 'ROWS * STAGES <= 256'") from error
    for node in ast.walk(tree.body):
        if isinstance(node, ast.Name) and node.id not in (*names, *functions):
            raise ValueError(f"only the names {', '.join(names)}")
        if not _is_allowed(node, functions):
            raise ValueError("names, whole numbers, words, + - * // %, comparisons, and, or, not")
    return compile(tree, text, "eval")


def _is_allowed(node: ast.AST, functions: Collection[str]) -> bool:
    match node:
        case ast.Constant(value):
            return isinstance(value, (int, str))
        case ast.Call(ast.Name(name), arguments, []):
            return name in functions and all(map(_is_operand, arguments))
        case ast.BinOp(left, _, right):
            return _is_operand(left) and _is_operand(right)
    return isinstance(node, (*_TERMS, *_OPERATORS, *_COMPARISONS))


def _is_operand(node: ast.expr) -> bool:
    """Whether it can be a number. A list or text could be multiplied until memory ends."""
    return isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Name, ast.Call)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, int)
    )


def value(text: str, values: Mapping[str, object], functions: Mapping[str, object] = {}) -> Any:
    """The value of an expression of the names of ``values``, which may call ``functions``; raises as :func:`parse` and
    :func:`evaluated`."""
    return evaluated(parse(text, values, functions), {**values, **functions})


def evaluated(expression: CodeType, values: Mapping[str, object]) -> Any:
    """A parsed expression's value.

    Raises:
        ValueError: it does arithmetic with a word, divides by zero, or leaves the range of numbers.
    """
    wrapped = {name: Word(value) if isinstance(value, str) else value for name, value in values.items()}
    try:
        return eval(expression, {"__builtins__": {}}, wrapped)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"{expression.co_filename}: {error}") from error
