"""``map.toml`` beside a suite's manifest: distributions of a family's shapes, or files of traffic, as weighted points.

A point's name is a hash of its problem and params, so the same computation has the same name in every map.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from flashcore.errors import ManifestError, UsageError
from flashcore.model.suite import Shape, Suite, TimingMode
from flashcore.model.text import matches_any
from flashcore.suites import lines, schema
from flashcore.suites.expressions import value
from flashcore.suites.schema import Form, Name, Scalar, Text

FILE = "map.toml"
_MOST_DRAWS = 1000  # for each point


class RangeForm(Form):
    """A range of whole numbers."""

    model_config = ConfigDict(populate_by_name=True)
    low: int = Field(alias="from", ge=1)
    """Least number."""
    high: int = Field(alias="to")
    """Largest number."""
    step: int = Field(default=1, ge=1)
    """Every number is a multiple of it."""
    log: bool = False
    """Whether each factor of two is equally likely."""


class MapForm(Form):
    """``[map.<name>]``: a family of kernels at the points of a distribution"""

    problems: list[Name] = Field(min_length=1)
    """Problems that are mapped."""
    params: Mapping[Text, Scalar | Annotated[list[Scalar], Field(min_length=1)] | RangeForm] = {}
    """Parameter → a constant, a list to choose from, in which a value may be repeated, or a range."""
    derived: Mapping[Text, Text] = {}
    """Parameter → expression of those before it."""
    conditions: Sequence[Text] = []
    """Expressions that a point must fulfil."""
    csv: Text | None = None
    """File with a point of traffic a row, in place of drawn points."""
    file: Text | None = None
    """Problem file in place of the problems' own, for example to make inputs on the GPU."""
    seed: int = 0
    """Seed of the draw."""
    rank_by: TimingMode = "back_to_back"
    """Timing mode that ranks variants."""
    variants: Sequence[Text] = ["*"]
    """Globs of the mapped variants."""
    dispatchers: Sequence[Name] = []
    """Variants that choose a kernel by the shape, one for each problem."""
    features: Sequence[Text] = []
    """Expressions that a fitted dispatcher may compare."""
    regret: Mapping[Literal["p50", "p90", "p99", "p100"], Annotated[float | int, Field(ge=1)]] = {}
    """Quantile → largest allowed regret of the dispatchers."""

    def mistakes(self, suite: Suite) -> Iterator[tuple[str, str, str]]:
        """Each mistake in a map of this suite: the key, the expected and the actual value."""
        of_problems = {name: v.problem for name, v in suite.variants.items() if matches_any(name, self.variants)}
        problems = {*self.problems}
        if lacking := problems - {*of_problems.values()}:
            yield "problems", f"problems with variants that match {self.variants}", repr(sorted(lacking))
        if not Counter(of_problems.get(name) for name in self.dispatchers) <= Counter(problems):
            yield "dispatchers", "at most one of its variants for each problem", repr(self.dispatchers)
        for name, given in self.params.items():
            if isinstance(given, RangeForm) and given.high // given.step * given.step < given.low:
                yield f"params.{name}", "a range that has a multiple of its step", repr(given)
        for text in self.features:
            if re.search(r"[^\w +*/%()-]|\b(and|or|not|in)\b", text):
                yield "features", "arithmetic, which is the same in C++", repr(text)


class MapsForm(Form):
    """``map.toml``"""

    maps: Mapping[Name, MapForm] = Field(alias="map", min_length=1)
    """Maps by name."""


def maps_of(suite: Suite) -> Mapping[str, MapForm]:
    """The maps of the suite, from the file ``map.toml`` in its folder.

    Raises:
        UsageError: there is no such file.
        ManifestError: the file is wrong; lists every mistake.
    """
    file = Path(suite.root, FILE)
    if not file.is_file():
        raise UsageError(
            f"{file}: expected the maps of the suite, found no such file\n"
            "  hint: write one with a table [map.NAME]: extensions/map/README.md"
        )
    text = file.read_bytes()
    try:
        data = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ManifestError(str(file), [lines.invalid(FILE, error)]) from error
    try:
        maps = MapsForm.model_validate(data).maps
    except ValidationError as error:
        mistakes = schema.mistakes(error.errors(), data, MapsForm)
    else:
        mistakes = [
            (f"map.{name}.{key}", f"expected {expected}, found {actual}")
            for name, form in maps.items()
            for key, expected, actual in form.mistakes(suite)
        ]
        if not mistakes:
            return maps
    raise ManifestError(str(file), [lines.located(FILE, text, *mistake) for mistake in mistakes])


def mapped(suite: Suite, maps: Mapping[str, MapForm], name: str | None, count: int, seed: int | None) -> Suite:
    """The suite of a map's variants and of its first ``count`` different points: drawn with the seed, or the most
    frequent in the CSV file, which may have fewer. Without budgets, which are on the suite's shapes. ``name``: by
    default the first map's.

    Raises:
        UsageError: no such map, a CSV file that does not fit the map, or conditions that too few draws meet.
    """
    name = name or next(iter(maps))
    if name not in maps or count < 1:
        raise UsageError(
            f"{suite.root}: expected a map and a number above 0, found {name!r} and {count}\n"
            f"  hint: give one of the tables [map.NAME] of {FILE}: {', '.join(maps)}"
        )
    table = maps[name]
    draws = _traffic(Path(suite.root, table.csv), table) if table.csv else _drawn(table, seed)
    shapes, weights = dict[str, Shape](), dict[str, float]()
    for drawn, weight in islice(draws, _MOST_DRAWS * count):
        try:
            for param, text in table.derived.items():
                drawn[param] = value(text, drawn)
            dims = suite.problems[drawn["problem"]].dims
            if missing := [d for d in dims if not isinstance(drawn.get(d), int)]:
                raise ValueError(f"a number for each of {', '.join(dims)}, found none for {', '.join(missing)}")
            if not all(value(text, drawn) for text in table.conditions):
                continue
            for text in table.features:
                value(text, drawn)
        except ValueError as error:
            raise UsageError(
                f"map.{name}: expected {error}, found {drawn}\n  hint: correct the map or its CSV file"
            ) from error
        digest = hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()
        shape = Shape(f"p{digest[:8]}", drawn.pop("problem"), drawn, ("bench",), table.rank_by)
        shapes.setdefault(shape.name, shape)
        weights.setdefault(shape.name, weight)
        if len(shapes) == count:
            break
    if len(shapes) < (1 if table.csv else count):
        raise UsageError(
            f"map.{name}: expected {count} points, {len(shapes)} meet the conditions\n"
            "  hint: loosen the conditions, widen the ranges, or ask for fewer points"
        )
    variants = {
        n: replace(v, where=replace(v.where, shapes=("*",)), parent=None, predictions=())
        for n, v in suite.variants.items()
        if v.problem in table.problems and matches_any(n, table.variants)
    }
    return replace(
        suite,
        problems={n: replace(p, file=table.file or p.file) for n, p in suite.problems.items()},
        shapes=shapes,
        variants=variants,
        baseline=suite.baseline if suite.baseline in variants else next(iter(variants)),
        budgets=(),
        waivers=(),
        tables={"map": {name: {**table.model_dump(), "points": weights}}},
    )


Draws = Iterator[tuple[dict[str, Any], float]]


def _drawn(table: MapForm, seed: int | None) -> Draws:
    rng = random.Random(table.seed if seed is None else seed)
    while True:
        drawn = dict[str, Any]()
        for name, given in {"problem": table.problems, **table.params}.items():
            drawn[name] = given
            match given:
                case RangeForm(low=low, high=high, step=step, log=log):
                    at = low * (high / low) ** rng.random() if log else rng.uniform(low, high)
                    drawn[name] = min(high // step, max(math.ceil(low / step), round(at / step))) * step
                case list():
                    drawn[name] = rng.choice(given)
        yield drawn, 1.0


def _traffic(file: Path, table: MapForm) -> Draws:
    """The rows of a CSV file by falling weight; a ``weight`` counts a row several times."""
    same = {k: v for k, v in table.params.items() if isinstance(v, Scalar)}
    weights = defaultdict[str, float](float)
    try:
        reader = csv.DictReader(file.read_text("utf-8").splitlines(), restval="")
        for row in reader:
            weight = row.pop("weight", "1")
            if None in row or "" in row.values() or not re.fullmatch(r"\d+(\.\d*)?", weight):
                raise ValueError(f"in line {reader.line_num} {row | {'weight': weight}}")
            numbers = {k: int(v) if v.isdigit() else v for k, v in row.items()}
            drawn = {"problem": table.problems[0], **same, **numbers}
            if drawn["problem"] not in table.problems:
                raise ValueError(f"in line {reader.line_num} the problem {drawn['problem']!r}")
            weights[json.dumps(drawn)] += float(weight)
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(
            f"{file}: expected a line that names params, then lines with a value for each, and a weight of 0 or more, "
            f"found {error}\n  hint: write such a file, or correct `csv` in the manifest"
        ) from error
    for text, weight in sorted(weights.items(), key=lambda item: -item[1]):
        if weight:
            yield json.loads(text), weight
