"""Generic mutation operators: of code, of manifests and other lines of text, of JSON. None knows what it mutates."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: Comments and strings of C++ and Python, which no operator touches.
_CODE_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"""(?s:.*?)"""|"(?:\\.|[^"\\\n])*"|#include[^\n]*|^#pragma once', re.M | re.S
)
_SWAPS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
    "!=": "==",
    "&&": "||", "||": "&&", "+=": "-=", "-=": "+=", "*=": "/=", "++": "--", "&": "|", "|": "&", "^": "|", "<<": ">>",
    ">>": "<<", "true": "false", "false": "true", "max": "min", "fmaxf": "fminf",
}  # fmt: skip
_OPERATOR = re.compile(
    r"(?<=[\w\])] )(&&|\|\||<<|>>|[-+*/%<>=!]=|[-+*/%<>&|^])(?= [\w(\[-])|\+\+|--|\b(?:true|false|max|min|fmaxf)\b"
)
_NUMBER = re.compile(r"(?<![\w.])(\d+\.\d+f?|\d+)(?![\w.xX])")
_DROPPED = re.compile(
    r"__restrict__ ?|\bvolatile ?|#pragma unroll[^\n]*|__launch_bounds__\([^()]*(?:\([^()]*\))?[^()]*\)"
    r"|alignas\(\d+\) ?|__forceinline__ ?|, \"memory\"|\.L2::\w+|__syncwarp\(\);|__syncthreads\(\);|\bconst (?=\w+\*)"
    r"|inline (?=[\w:]+ \w+\()"
)
_STATEMENT = re.compile(
    r"^ +(?!return|using|const |constexpr|static_assert|break|half|float |int |unsigned )"
    r"[\w:.\[\]\->]+[^;{}\n]*;[^\n]*\n",
    re.M,
)
_ARGUMENTS = re.compile(r"\(([\w.\[\]]+), ([\w.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Edit:
    """One mutation of a text: what it is, where, and the text after it."""

    operator: str
    line: int
    before: str
    after: str
    text: str


def code(text: str, start: int = 0, end: int | None = None) -> list[Edit]:
    """Every mutation of C++ or Python between two offsets: operators swapped, numbers changed, attributes, barriers and
    statements dropped, arguments exchanged."""
    end = len(text) if end is None else end
    hidden = [m.span() for m in _CODE_HIDDEN.finditer(text)]

    def bare(pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        for match in pattern.finditer(text, start, end):
            if not any(a <= match.start() < b for a, b in hidden):
                yield match

    edits = [_edit(text, "swap operator", m, _SWAPS.get(m[0], m[0])) for m in bare(_OPERATOR)]
    edits += [_edit(text, "change number", m, _other_number(m[0])) for m in bare(_NUMBER)]
    edits += [_edit(text, "drop attribute", m, "") for m in bare(_DROPPED)]
    edits += [_edit(text, "drop statement", m, "") for m in bare(_STATEMENT)]
    edits += [_edit(text, "exchange arguments", m, f"({m[2]}, {m[1]}") for m in bare(_ARGUMENTS)]
    return [e for e in edits if e.text != text]


def _other_number(number: str) -> str:
    if "." in number:
        return f"{float(number.rstrip('f')) * 1.001 or 1.0}{'f' if number.endswith('f') else ''}"
    return {"0": "1", "1": "2"}.get(number, str(int(number) + 1))


def _edit(text: str, operator: str, match: re.Match[str], new: str) -> Edit:
    whole = text[: match.start()] + new + text[match.end() :]
    line = text.count("\n", 0, match.start())
    old, now = text.split("\n"), whole.split("\n")
    return Edit(operator, line + 1, old[line].strip(), now[line].strip() if line < len(now) else "", whole)


def lines(text: str, wanted: Callable[[int, str], bool]) -> list[Edit]:
    """Mutations of the lines of a manifest or table that are ``wanted`` (by index and text): numbers raised, lowered
    and doubled, letters lost from words, lines dropped and doubled, elements dropped from lists."""
    whole = text.split("\n")
    edits: list[Edit] = []
    for i, line in enumerate(whole):
        if not line.strip() or line.lstrip().startswith("#") or not wanted(i, line):
            continue
        for operator, new in _changed(line):
            replaced = [*whole[:i], *new, *whole[i + 1 :]]
            edits.append(Edit(operator, i + 1, line.strip(), " ⏎ ".join(new).strip(), "\n".join(replaced)))
    return [e for e in edits if e.text != text]


def _changed(line: str) -> Iterator[tuple[str, list[str]]]:
    yield "drop line", []
    yield "double line", [line, line]
    for match in re.finditer(r"(?<![\w.])\d+(\.\d+)?(?![\w.])", line):
        a, b = match.span()
        value = float(match[0]) if match[1] else int(match[0])
        for operator, new in (
            ("raise number", value + 1),
            ("lower number", value - 1),
            ("double number", 2 * value or 1),
        ):
            yield operator, [line[:a] + str(new) + line[b:]]
    for match in re.finditer(r"[A-Za-z_]{3,}", line):
        a, b = match.span()
        yield "lose a letter", [line[: b - 1] + line[b:]]
    for match in re.finditer(r"\btrue\b|\bfalse\b", line):
        yield (
            "swap boolean",
            [line[: match.start()] + ("false" if match[0] == "true" else "true") + line[match.end() :]],
        )
    for match in re.finditer(r'(?<=\[)("[^"]*"), |, "[^"]*"(?=\])', line):
        yield "drop element", [line[: match.start()] + line[match.end() :]]


def leaves(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in JSON."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        yield at
        return
    for key, value in items:
        yield from leaves(value, (*at, key))


def changed_leaf(data: Any, at: Sequence[Any], chance: random.Random) -> tuple[str, Any, Any]:
    """Changes the value at a path in place, or drops it; what was done, the value before and after."""
    *way, last = at
    for key in way:
        data = data[key]
    old = data[last]
    ways: list[tuple[str, Any]] = [("drop value", None), ("null", None)]
    if isinstance(old, bool):
        ways += [("swap boolean", not old)]
    elif isinstance(old, int | float):
        ways += [
            ("double number", 2 * old),
            ("negate number", -old),
            ("number as text", str(old)),
            ("raise number", old + 1),
        ]
    elif isinstance(old, str) and old:
        ways += [("lose a letter", old[:-1]), ("double text", old + old), ("empty text", "")]
    operator, new = chance.choice(ways)
    if operator == "drop value":
        del data[last]
    else:
        data[last] = new
    return operator, old, new
