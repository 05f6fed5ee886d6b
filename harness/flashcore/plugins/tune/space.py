"""``[space.<name>]`` of a manifest: the configs of one variant's source to search, and the conditions between axes.

A condition is an expression of integers, words and comparisons: ``ROWS // 16 * GROUPS <= 32``, ``STAGES == 1 or COPY ==
'async'``. Python parses and compiles it, after all syntax but the nodes below (calls, attributes, powers, shifts) is
refused.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Annotated, Literal, NoReturn

from pydantic import Field, TypeAdapter

from flashcore.model.suite import Suite
from flashcore.model.text import misspelled
from flashcore.suites.schema import Name, TableForm, Text

MOST_POINTS = 100_000
MOST_LETTERS = 300

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.Not, ast.And, ast.Or)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_TERMS = (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List)


@dataclass(frozen=True, slots=True)
class Space:
    """The configs of one variant's source to search.

    Args:
        variant: provides everything except the axes: source, other macros, tolerance, archs.
        axes: macro of its config → its values, in order.
        conditions: on the axes and the variant's other macros; see :func:`parse`.
        shapes: the shapes to time; the first one ranks.
        objectives: the quantities to minimize: ``time`` at each shape, ``error``, ``smem``.
        hard: static budgets that reject a candidate; the others are soft, and the candidate may still win.
        against: the variant that finalists are to beat; empty: the fastest in the space.
    """

    name: str
    variant: str
    axes: Mapping[str, tuple[int | str, ...]]
    conditions: tuple[str, ...]
    shapes: tuple[str, ...]
    objectives: tuple[str, ...] = ("time",)
    hard: tuple[str, ...] = ()
    against: str = ""


def spaces_of(suite: Suite) -> dict[str, Space]:
    """The spaces that a suite declares, by name."""
    tables = suite.tables.get("space", {})
    spaces = [{"name": name, **table, "against": table["against"] or ""} for name, table in tables.items()]
    return {space.name: space for space in TypeAdapter(list[Space]).validate_python(spaces)}


class SpaceForm(TableForm):
    """``[space.<name>]``"""

    variant: Text
    axes: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], Annotated[list[int | str], Field(min_length=1)]] = (
        Field(min_length=1)
    )
    conditions: list[Text] = Field(default=[])
    shapes: list[Name] = Field(min_length=1)
    objectives: list[Literal["time", "error", "smem"]] = Field(default=["time"], min_length=1)
    hard: list[Name] = Field(default=[])
    against: Text | None = None

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
        variants = suite.variants
        base = variants.get(self.variant)
        if base is None or not base.kind.compiler:
            compiled = [n for n, v in variants.items() if v.kind.compiler]
            expected = 'a variant with a source, or with cubins = "triton"'
            yield "variant", expected, misspelled(self.variant, compiled)
        for axis, values in self.axes.items():
            if len(set(values)) < len(values):
                yield f"axes.{axis}", "each value once", repr(values)
        if (size := math.prod(map(len, self.axes.values()))) > MOST_POINTS:
            yield "axes", f"at most {MOST_POINTS:,} points", f"{size:,}"
        for i, condition in enumerate(self.conditions):
            try:
                parse(condition, [*self.axes, *(base.config if base else ())])
            except ValueError as error:
                yield f"conditions[{i}]", str(error), repr(condition)
        for name in self.shapes:
            if (shape := suite.shapes.get(name)) is None or (base is not None and not base.runs_on(shape)):
                yield "shapes", f"shapes that {self.variant} runs on", misspelled(name, suite.shapes)
        static = [budget.name for budget in suite.budgets if budget.tier == "static"]
        for budget in self.hard:
            if budget not in static:
                yield "hard", "the name of a static budget", misspelled(budget, static)
        rival = variants.get(self.against or self.variant)
        if rival is None or rival.is_reference or (base is not None and rival.problem != base.problem):
            yield "against", "a variant of the same problem", misspelled(str(self.against), variants)


# --- conditions -------------------------------------------------------------------------------------


class Word(str):
    """A word compares as text, but is not an operand: times a number it would be a longer word."""

    __slots__ = ()

    def _refuse(self, _: object) -> NoReturn:
        raise TypeError(f"{str(self)!r} is no number")

    __add__ = __sub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __rmod__ = _refuse


def parse(text: str, names: Collection[str]) -> CodeType:
    """Compiles the condition for :func:`holds`.

    Args:
        names: the names that it may contain.

    Raises:
        ValueError: it is not a condition.
    """
    if len(text) > MOST_LETTERS:
        raise ValueError(f"at most {MOST_LETTERS} letters")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("a comparison such as 'ROWS * STAGES <= 256'") from error
    for node in ast.walk(tree.body):
        if isinstance(node, ast.Name) and node.id not in names:
            raise ValueError(f"only the names {', '.join(names)}")
        if not _is_allowed(node):
            raise ValueError("names, whole numbers, words, + - * // %, comparisons, and, or, not")
    return compile(tree, text, "eval")


def _is_allowed(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value):
            return isinstance(value, (int, str))
        case ast.BinOp(ast.Constant(str()) | ast.Tuple() | ast.List()):
            return False
        case ast.BinOp(_, _, ast.Constant(str()) | ast.Tuple() | ast.List()):
            return False
    return isinstance(node, (*_TERMS, *_OPERATORS, *_COMPARISONS))


def holds(condition: CodeType, values: Mapping[str, object]) -> bool:
    """Whether a parsed condition is true of these values.

    Raises:
        ValueError: it does arithmetic with a word, or divides by zero.
    """
    wrapped = {name: Word(value) if isinstance(value, str) else value for name, value in values.items()}
    try:
        return bool(eval(condition, {"__builtins__": {}}, wrapped))
    except (TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{condition.co_filename}: {error}") from error
