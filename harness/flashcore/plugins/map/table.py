"""``[map.<name>]`` of a manifest: the distribution of a family's shapes, or a CSV file of traffic, as weighted points.

A point is named by its problem and params, so the same computation has the same name in every map.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from flashcore.errors import UsageError
from flashcore.model.suite import Params, Regime, Shape, Suite
from flashcore.model.text import matches_any, misspelled
from flashcore.suites.expressions import holds, parse, value
from flashcore.suites.schema import Form, Name, Scalar, TableForm, Text

#: The names in conditions and CSV files that are no params.
PROBLEM, WEIGHT = "problem", "weight"
_MOST_DRAWS = 1000  # for each point


class RangeForm(Form):
    """Whole numbers ``from`` to ``to`` in multiples of ``step``; ``log``: each factor of two is equally likely."""

    low: Annotated[int, Field(alias="from", ge=1)]
    high: Annotated[int, Field(alias="to")]
    step: Annotated[int, Field(ge=1)] = 1
    log: bool = False


_Values = Annotated[list[Scalar], Field(min_length=1)]
_Weights = Annotated[list[Annotated[float | int, Field(ge=0)]], Field(min_length=1)]
_Quantile = Literal["p50", "p90", "p99", "p100"]


class MapForm(TableForm):
    """``[map.<name>]``"""

    problems: list[Name] = Field(default=[])  # by default all
    params: dict[Name | Text, Scalar | _Values | RangeForm] = Field(
        default={}
    )  # a constant, values to choose from, or a range
    weights: dict[Text, _Weights] = Field(default={})  # of a param's values, or of `problem`
    derived: dict[Text, Text] = Field(default={})  # params computed from others, in order
    conditions: list[Text] = Field(default=[])
    csv: Text | None = None
    seed: int = 0
    rank_by: Regime = "back_to_back"
    variants: list[Text] = Field(default=["*"], min_length=1)
    dispatchers: list[Name] = Field(default=[])  # the variants that choose a kernel by the shape
    features: list[Text] = Field(default=[])  # expressions that a fitted dispatcher may compare
    regret: dict[_Quantile, Annotated[float | int, Field(ge=1)]] = Field(default={})  # the most that a quantile may be

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
        problems = self.problems or list(suite.problems)
        for problem in self.problems:
            if problem not in suite.problems:
                yield "problems", "a problem of the suite", misspelled(problem, suite.problems)
        for name in self.dispatchers:
            if name not in suite.variants or suite.variants[name].problem not in problems:
                yield "dispatchers", "a variant of its problems", misspelled(name, suite.variants)
        for glob in self.variants:
            if not any(matches_any(v.name, (glob,)) for v in suite.variants.values() if v.problem in problems):
                yield "variants", "a glob that matches a variant of its problems", repr(glob)
        for name, given in self.params.items():
            if isinstance(given, RangeForm) and given.high < max(given.low, given.step):
                yield f"params.{name}", f"to >= {max(given.low, given.step)}", str(given.high)
        for name, weights in self.weights.items():
            values = problems if name == PROBLEM else self.params.get(name)
            if not isinstance(values, list) or len(values) != len(weights) or not sum(weights):
                yield f"weights.{name}", "a weight for each value of a param that lists values", repr(weights)
        if self.csv is None:
            for problem in problems:
                dims = suite.problems[problem].dims if problem in suite.problems else ()
                for dim in (d for d in dims if d not in self.params and d not in self.derived):
                    yield "params", f"every dimension of {problem}", f"no {dim}"
            names = [PROBLEM, *self.params, *self.derived]
            for key in ("derived", "conditions", "features"):
                given = getattr(self, key)
                for text in given.values() if key == "derived" else given:
                    try:
                        parse(text, names)
                    except ValueError as error:
                        yield key, str(error), repr(text)


@dataclass(frozen=True, slots=True)
class Point:
    """A weighted point of a map."""

    problem: str
    params: Params
    weight: float = 1.0

    @property
    def name(self) -> str:
        text = json.dumps([self.problem, dict(self.params)], sort_keys=True)
        return f"p{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def shape(self, rank_by: Regime) -> Shape:
        """The point as a timed shape of its problem."""
        return Shape(self.name, self.problem, self.params, ("bench",), rank_by)


def points(suite: Suite, name: str, count: int, seed: int | None) -> list[Point]:
    """The first ``count`` different points: drawn with the seed, or the most frequent of the CSV file.

    Raises:
        UsageError: no such map, a CSV file that does not fit it, or conditions that too few draws meet.
    """
    table = suite.tables["map"][name]
    problems = table["problems"] or list(suite.problems)
    draws = (
        _traffic(Path(suite.root, table["csv"]), problems)
        if table["csv"]
        else _drawn(table, problems, random.Random(table["seed"] if seed is None else seed), count)
    )
    constants = {k: v for k, v in table["params"].items() if table["csv"] and not isinstance(v, (list, dict))}
    chosen: dict[str, Point] = {}
    tried = 0
    for drawn, weight in draws:
        tried += 1
        if (point := _point(table, suite, constants | drawn, weight)) is not None:
            chosen.setdefault(point.name, point)
        if len(chosen) == count:
            break
    if not chosen or (table["csv"] is None and len(chosen) < count):
        raise UsageError(
            f"map.{name}: expected {count} points that meet the conditions, found {len(chosen)} in {tried:,} draws\n"
            "  hint: loosen the conditions, widen the ranges, or ask for fewer with --points"
        )
    return list(chosen.values())


def _drawn(
    table: Mapping[str, Any], problems: Sequence[str], rng: random.Random, count: int
) -> Iterator[tuple[dict[str, Any], float]]:
    for _ in range(_MOST_DRAWS * count):
        drawn: dict[str, Any] = {}
        for name, given in {PROBLEM: problems, **table["params"]}.items():
            if isinstance(given, dict):
                low, high, step = given["low"], given["high"], given["step"]
                at = math.exp(rng.uniform(math.log(low), math.log(high))) if given["log"] else rng.uniform(low, high)
                drawn[name] = min(high // step, max(math.ceil(low / step), round(at / step))) * step
            elif isinstance(given, list):
                drawn[name] = rng.choices(given, table["weights"].get(name))[0]
            else:
                drawn[name] = given
        yield drawn, 1.0


def _traffic(file: Path, problems: Sequence[str]) -> Iterator[tuple[dict[str, Any], float]]:
    """The rows of a CSV file by falling weight; the column ``weight`` counts a row several times."""
    try:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file}: expected a CSV file of shapes, found: {error}") from error
    total: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for number, row in enumerate(rows, 2):
        try:
            weight = float(row.pop(WEIGHT, None) or 1)
            if None in row or None in row.values() or not 0 <= weight < math.inf:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"{file}:{number}: expected a value for each column, and a weight of at least 0; found {row}"
            ) from None
        values = {k.strip(): _number(v.strip()) for k, v in row.items()}
        if values.setdefault(PROBLEM, problems[0]) not in problems:
            raise UsageError(f"{file}:{number}: {PROBLEM}: expected {' or '.join(problems)}, found {values[PROBLEM]}")
        total[tuple(values.items())] += weight  # type: ignore[assignment]
    yield from ((dict(values), weight) for values, weight in total.most_common() if weight)


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _point(table: Mapping[str, Any], suite: Suite, drawn: dict[str, Any], weight: float) -> Point | None:
    """The point of a draw; ``None`` if it does not meet the conditions."""
    try:
        for name, text in table["derived"].items():
            drawn[name] = value(parse(text, drawn), drawn)
        if not all(holds(parse(text, drawn), drawn) for text in table["conditions"]):
            return None
    except ValueError as error:
        raise UsageError(f"map: {error}; found {drawn}") from error
    problem = drawn.pop(PROBLEM)
    if missing := [d for d in suite.problems[problem].dims if not isinstance(drawn.get(d), int)]:
        raise UsageError(
            f"map: expected a number for every dimension of {problem}, found none for {missing} in {drawn}"
        )
    return Point(problem, drawn, weight)
