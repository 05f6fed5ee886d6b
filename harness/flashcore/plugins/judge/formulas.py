"""Numbers of a candidate's launches, given as formulas of the shape: ``"=cdiv(R, 128)"``."""

from __future__ import annotations

import ast
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any

from flashcore.errors import UsageError
from flashcore.plugins.judge.text import untrusted

Number = int | float
_MOST_LETTERS, _MOST = 200, 1 << 63
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -(-a // b),
    "pow2": lambda a: 1 << max(int(a) - 1, 0).bit_length(),
}
#: A value of an argument → its bytes.
_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "uint64": "<Q", "float32": "<f", "float64": "<d"}


def value_of(text: str, names: Mapping[str, Any]) -> Number:
    """A formula's value. ``names``: the shape's numbers.

    Raises:
        UsageError: it is not a formula, or names what the shape lacks.
    """
    try:
        if len(text) > _MOST_LETTERS:
            raise ValueError(f"more than {_MOST_LETTERS} letters")
        return _value(ast.parse(text, mode="eval").body, names)
    except (ValueError, SyntaxError, ArithmeticError, LookupError, TypeError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"expected a formula of the shape's numbers, found {untrusted(text)}: {untrusted(error)}"
        ) from None


def _value(node: ast.expr, names: Mapping[str, Any]) -> Number:
    made: Any
    if isinstance(node, ast.Constant):
        made = node.value
    elif isinstance(node, ast.Name):
        made = names[node.id]
    elif isinstance(node, ast.BinOp):
        made = _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        made = -_value(node.operand, names)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        made = _FUNCTIONS[node.func.id](*(_value(part, names) for part in node.args))
    else:
        raise ValueError(f"no {type(node).__name__}")
    if isinstance(made, bool) or not isinstance(made, int | float) or not abs(made) < _MOST:
        raise ValueError("not a number below 2**63")
    return made


def filled(part: Any, names: Mapping[str, Any]) -> Any:
    """JSON with the values of its formulas; typed numbers become the bytes of an argument.

    Raises:
        UsageError: a formula is wrong, or a number does not fit its type.
    """
    if isinstance(part, str):
        return value_of(part[1:], names) if part.startswith("=") else part
    if isinstance(part, list):
        return [filled(one, names) for one in part]
    if not isinstance(part, dict):
        return part
    made = {key: filled(value, names) for key, value in part.items()}
    for kind in _FORMATS.keys() & made.keys():
        number = made.pop(kind)
        try:
            made["hex"] = struct.pack(_FORMATS[kind], number).hex()
        except (struct.error, OverflowError):
            raise UsageError(f"expected a number of type {kind}, found {untrusted(number)}") from None
    return made
