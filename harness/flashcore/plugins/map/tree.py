"""Fits a dispatcher to a map: a small decision tree per problem, over the features that the suite names.

A split is the one whose two parts lose least if each runs one variant. Regret is estimated by cross-validation: each
point is chosen for by a tree that was fitted without it.
"""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flashcore.errors import UsageError
from flashcore.model.intervals import Ratio
from flashcore.plugins.map.regions import Regions, Spot
from flashcore.suites.expressions import parse, value

_DEPTH, _LEAST, _FOLDS = 6, 2, 10
#: A split must save this mean regret over all points. A variant without a time has this regret in choosing a part's.
_GAIN, _REFUSED = 0.0005, 10.0


@dataclass(frozen=True, slots=True)
class Leaf:
    """The variants of a part by what they lose there; the first one that runs at a point is chosen."""

    variants: Sequence[str]
    spots: Sequence[Spot]

    def choice(self, spot: Spot) -> str:
        return next(v for v in (*self.variants, spot.best) if v in spot.times)


@dataclass(frozen=True, slots=True)
class Split:
    """The parts where a feature is at most, and above, a number."""

    feature: str
    most: int
    low: Tree
    high: Tree

    def choice(self, spot: Spot) -> str:
        return (self.low if _feature(spot, self.feature) <= self.most else self.high).choice(spot)


Tree = Leaf | Split


def _feature(spot: Spot, text: str) -> int:
    values = {"problem": spot.shape.problem, **spot.shape.params}
    return int(value(parse(text, values), values))


def fitted(spots: Sequence[Spot], features: Sequence[str], without: Sequence[str]) -> Tree:
    """The tree that loses least at these points, over all variants but those in ``without``."""
    import numpy as np

    variants = [v for v in dict.fromkeys(v for spot in spots for v in spot.times) if v not in without]
    total = sum(spot.weight for spot in spots)
    losses = np.array([[s.weight / total * min(s.regret(v) - 1, _REFUSED) for v in variants] for s in spots])
    at = np.array([[_feature(s, f) for f in features] for s in spots])

    def grown(rows: list[int], depth: int) -> Tree:
        loss = losses[rows].sum(axis=0)
        least, split = loss.min() - _GAIN, None
        for i in range(len(features) if depth else 0):
            order = sorted(rows, key=lambda row: at[row, i])
            below = losses[order].cumsum(axis=0)
            for cut in range(_LEAST, len(rows) - _LEAST + 1):
                lost = below[cut - 1].min() + (below[-1] - below[cut - 1]).min()
                low, high = at[order[cut - 1], i], at[order[cut], i]
                if lost < least and low < high:
                    middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
                    least, split = lost, (features[i], math.floor(middle), order[:cut], order[cut:])
        if split is None:
            return Leaf([variants[v] for v in loss.argsort(kind="stable")], [spots[row] for row in rows])
        feature, most, low_rows, high_rows = split
        return Split(feature, most, grown(low_rows, depth - 1), grown(high_rows, depth - 1))

    return grown([*range(len(spots))], _DEPTH)


class Dispatcher:
    """A fitted dispatcher: a tree per problem, and the cross-validated quantiles of its regret over all points.

    Raises:
        UsageError: the map names no features, or has fewer than two points of a problem.
    """

    def __init__(self, regions: Regions) -> None:
        fit = functools.partial(fitted, features=regions.table["features"], without=regions.table["dispatchers"])
        self.regions = regions
        self.trees: dict[str, Tree] = {}
        choices: dict[str, str] = {}
        for problem in dict.fromkeys(spot.shape.problem for spot in regions.spots):
            spots = [spot for spot in regions.spots if spot.shape.problem == problem]
            if len(spots) < 2 or not regions.table["features"]:
                expected = f"map.{regions.name}: expected features and two points of {problem} or more"
                raise UsageError(f"{expected}, found {regions.table['features']} and {len(spots)}")
            self.trees[problem] = fit(spots)
            order = random.Random(regions.table["seed"]).sample(spots, len(spots))
            for fold in (order[i::_FOLDS] for i in range(min(_FOLDS, len(spots)))):
                tree = fit([spot for spot in spots if spot not in fold])
                choices |= {spot.shape.name: tree.choice(spot) for spot in fold}
        self.regret: Mapping[str, Ratio] = regions.quantiles(lambda spot: spot.regret(choices[spot.shape.name]))

    @property
    def source(self) -> str:
        """The dispatcher as a C++ header: a line is a part, with its number of points and its largest regret."""
        record, regret = self.regions.record, ", ".join(f"{name} {r.text}" for name, r in self.regret.items())
        lines = [
            f"// Which variant where on {record.gpu}, from {len(self.regions.spots)} points of the map {record.id}.",
            f"// Cross-validated regret, with 95 % intervals: {regret}.",
        ]
        for problem, tree in self.trees.items():
            lines += ["", "template <typename Shape>", f"constexpr const char* choose_{problem}(const Shape& s) {{"]
            for conditions, leaf in _leaves(tree, {}):
                most = max(spot.regret(leaf.choice(spot)) for spot in leaf.spots)
                text = " && ".join(f"{feature} {limit}" for feature, limit in conditions.items())
                test = re.sub(r"\b[A-Za-z_]\w*", r"s.\g<0>", text).replace("//", "/")
                remark = f"{len(leaf.spots)} points, regret at most {most:.3f}"
                lines.append(f'  if ({test or "true"}) return "{leaf.variants[0]}";  // {remark}')
            lines[-1] = re.sub(r"if \(.*?\) return", "return", lines[-1])  # the rest
            lines.append("}")
        return "\n".join(lines)


def _leaves(tree: Tree, conditions: Mapping[str, int]) -> Iterator[tuple[Mapping[str, int], Leaf]]:
    if isinstance(tree, Leaf):
        yield conditions, tree
    else:
        for part, sign in ((tree.low, "<="), (tree.high, ">")):
            yield from _leaves(part, {**conditions, f"{tree.feature} {sign}": tree.most})
