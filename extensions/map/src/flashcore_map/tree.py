"""Fits a dispatcher to a map: a small decision tree per problem, over the features that the suite names.

A split is the one whose two parts lose least if each runs one variant. Regret is estimated by cross-validation: each
point is chosen for by a tree that was fitted without it.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flashcore.errors import UsageError
from flashcore.suites.expressions import value
from flashcore_map.regions import Regions, Spot

_DEPTH, _LEAST, _FOLDS = 6, 2, 10
#: A split must save this mean regret over all points. Where a variant has no time, choosing it costs this regret: the
#: part's next variant runs.
_GAIN, _REFUSED = 0.0005, 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """A leaf of a tree: its conditions, and the variants of which the first that runs is chosen. The last one runs at
    every point, if any does."""

    tests: Sequence[str]
    variants: Sequence[str]
    spots: Sequence[Spot]

    def regret(self, spot: Spot) -> float:
        """The regret of its choice; infinite if no variant runs."""
        return next((spot.regret(v) for v in self.variants if v in spot.times), math.inf)


def fitted(spots: Sequence[Spot], features: Sequence[str]) -> list[Part]:
    """The parts of the tree that loses least at these points, over all choices."""
    import numpy as np

    variants = [*dict.fromkeys(v for spot in spots for v in spot.choices)]
    losses = np.array([[s.weight * min(s.regret(v) - 1, _REFUSED) for v in variants] for s in spots])
    gain = _GAIN * sum(spot.weight for spot in spots)
    at = np.array([[int(value(f, s.params)) for f in features] for s in spots])

    def grown(rows: Sequence[int], tests: Mapping[str, int], depth: int) -> Iterator[Part]:
        loss = losses[rows].sum(axis=0)
        least, split = loss.min() - gain, dict[str, Sequence[int]]()
        for i, feature in enumerate(features if depth else ()):
            order = sorted(rows, key=lambda row: at[row, i])
            below, values = losses[order].cumsum(axis=0), at[order, i]
            lost = below.min(axis=1) + (loss - below).min(axis=1)
            for cut in range(_LEAST, len(rows) - _LEAST + 1):
                low, high = values[cut - 1 : cut + 1]
                if lost[cut - 1] < least and low < high:
                    least, most = lost[cut - 1], math.isqrt(low * high) if low > 0 else low
                    split = {f"{feature} <=": order[:cut], f"{feature} >": order[cut:]}
        for test, part in split.items():
            yield from grown(part, {**tests, test: most}, depth - 1)
        if not split:
            ranked = [variants[v] for v in loss.argsort(kind="stable")]
            last = next((n for n, v in enumerate(ranked) if all(v in s.times for s in spots)), len(ranked))
            yield Part([f"{f} {most}" for f, most in tests.items()], ranked[: last + 1], [spots[row] for row in rows])

    return [*grown(range(len(spots)), {}, _DEPTH)]


def dispatcher(regions: Regions) -> str:
    """A fitted dispatcher as a C++ header: a part's variants, with its number of points and its largest regret.

    Raises:
        UsageError: the map names no features, or has fewer than two points of a problem.
    """
    features, lines, regrets = regions.table["features"], list[str](), dict[Spot, float]()
    for problem in regions.table["problems"]:
        spots = [spot for spot in regions.spots if spot.shape.problem == problem]
        if len(spots) < 2 or not features:
            raise UsageError(
                f"map.{regions.name}: expected features and at least two points of {problem}, "
                f"found {features} and {len(spots)}"
            )
        order = random.Random(0).sample(spots, len(spots))
        for i in range(_FOLDS):
            fold = order[i::_FOLDS]
            parts = fitted([spot for spot in spots if spot not in fold], features)
            for spot in fold:
                part = next(part for part in parts if all(value(test, spot.params) for test in part.tests))
                regrets[spot] = part.regret(spot)
        lines.append(
            "\ntemplate <typename Shape, typename Runs>\n"
            f"constexpr const char* choose_{problem}(const Shape& s, Runs runs) {{"
        )
        parts = fitted(spots, features)
        for part in parts:
            where = re.sub(r"\b[A-Za-z_]", r"s.\g<0>", " && ".join(part.tests)).replace("//", "/")
            condition = f"if ({where}) " if part != parts[-1] else ""
            *others, last = part.variants
            choice = "".join(f'runs("{name}") ? "{name}" : ' for name in others)
            remark = f"{len(part.spots)} points, regret at most {max(map(part.regret, part.spots)):.3f}"
            lines.append(f'  {condition}return {choice}"{last}";  // {remark}')
        lines.append("}")
    quantiles = regions.quantiles(regrets[spot] for spot in regions.spots).items()
    return "\n".join(
        [
            f"// Which variant where on {regions.record.gpu}: "
            f"{len(regions.spots)} points of the map {regions.record.id}.",
            "// `runs(variant)`: whether a variant runs on the shape.",
            f"// Cross-validated regret, with 95 % intervals: {', '.join(f'{p} {r.text}' for p, r in quantiles)}.",
            *lines,
        ]
    )
