"""Numbers of a candidate's launches, given as formulas of the shape: ``"=cdiv(R, 128)"``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from flashcore.errors import UsageError
from flashcore.plugins.judge.text import untrusted
from flashcore.suites import expressions

_MOST = 1 << 63
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -(-a // b),
    "pow2": lambda a: 1 << max(int(a) - 1, 0).bit_length(),
}
#: A value of an argument → its bytes.
_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "uint64": "<Q", "float32": "<f", "float64": "<d"}


def filled(part: Any, names: Mapping[str, int | float]) -> Any:
    """JSON with the values of its formulas; typed numbers become the bytes of an argument.

    Args:
        names: the shape's numbers.

    Raises:
        UsageError: a formula is wrong, or a number does not fit its type.
    """
    if isinstance(part, str):
        return _value(part[1:], names) if part.startswith("=") else part
    if isinstance(part, list):
        return [filled(one, names) for one in part]
    if not isinstance(part, dict):
        return part
    made = {key: filled(value, names) for key, value in part.items()}
    for kind in sorted(_FORMATS.keys() & made.keys()):
        number = made.pop(kind)
        try:
            made["hex"] = struct.pack(_FORMATS[kind], number).hex()
        except (struct.error, OverflowError):
            raise UsageError(f"expected a number of type {kind}, found {untrusted(number)}") from None
    return made


def _value(text: str, names: Mapping[str, int | float]) -> int | float:
    try:
        number = expressions.value(expressions.parse(text, names, _FUNCTIONS), {**names, **_FUNCTIONS})
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < _MOST:
            raise ValueError("not a number below 2**63")
        return number
    except ValueError as error:
        raise UsageError(f"expected a formula of the shape's numbers, found {untrusted(text)}: {error}") from None
