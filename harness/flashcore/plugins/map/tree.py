"""Fits a dispatcher to a map: a small decision tree per problem, over the features that the suite names.

A split is the one whose two parts lose least if each runs one variant. Regret is estimated by cross-validation: each
point is chosen for by a tree that was fitted without it.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flashcore.errors import UsageError
from flashcore.model.intervals import Ratio
from flashcore.plugins.map.regions import Regions, Spot, quantiles
from flashcore.suites.expressions import parse, value

_DEPTH, _LEAST, _FOLDS = 6, 2, 10
#: A split must save this mean regret, over all points.
_GAIN = 0.0005
_REFUSED = 10.0  # the regret of a variant without a time, for choosing a leaf's
_CPP = {"//": "/", "and": "&&", "or": "||", "not": "!"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """The variants of a part by what they lose there; the first one that runs is chosen."""

    variants: Sequence[str]
    spots: Sequence[Spot]


@dataclass(frozen=True, slots=True)
class Split:
    feature: str
    most: int
    low: Tree
    high: Tree


Tree = Leaf | Split


def chosen(tree: Tree, spot: Spot) -> str:
    """The tree's choice at a point."""
    while isinstance(tree, Split):
        tree = tree.low if _feature(spot, tree.feature) <= tree.most else tree.high
    return next((v for v in tree.variants if v in spot.times), tree.variants[0])


def _feature(spot: Spot, text: str) -> int:
    values = {"problem": spot.shape.problem, **spot.shape.params}
    return int(value(parse(text, values), values))


def fitted(spots: Sequence[Spot], variants: Sequence[str], features: Sequence[str]) -> Tree:
    """The tree that loses least at these points."""
    import numpy as np

    total = sum(spot.weight for spot in spots)
    losses = np.array([[s.weight * min(s.regret(v) - 1, _REFUSED) / total for v in variants] for s in spots])
    at = np.array([[_feature(s, f) for f in features] for s in spots], dtype=float).reshape(len(spots), len(features))

    def grown(rows: np.ndarray, depth: int) -> Tree:
        loss = losses[rows].sum(axis=0)
        best, split = loss.min() - _GAIN, None
        for i in range(len(features) if depth else 0):
            order = rows[np.argsort(at[rows, i], kind="stable")]
            below = np.cumsum(losses[order], axis=0)
            cuts = np.flatnonzero(np.diff(at[order, i]))
            cuts = cuts[(cuts >= _LEAST - 1) & (cuts < len(rows) - _LEAST)]
            if len(cuts):
                lost = below[cuts].min(axis=1) + (below[-1] - below[cuts]).min(axis=1)
                if lost.min() < best:
                    best, split = lost.min(), (i, order, int(cuts[lost.argmin()]))
        if split is None:
            return Leaf([variants[v] for v in np.argsort(loss, kind="stable")], [spots[r] for r in rows])
        i, order, cut = split
        low, high = at[order[cut], i], at[order[cut + 1], i]
        most = math.floor(math.sqrt(low * high)) if low > 0 else math.floor((low + high) / 2)
        return Split(features[i], most, grown(order[: cut + 1], depth - 1), grown(order[cut + 1 :], depth - 1))

    return grown(np.arange(len(spots)), _DEPTH)


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """A tree per problem, and the cross-validated quantiles of its regret over all points."""

    trees: dict[str, Tree]
    regret: dict[str, Ratio]


def dispatcher(regions: Regions) -> Dispatcher:
    """Fits and cross-validates.

    Raises:
        UsageError: the map names no features, or has fewer than two points of a problem.
    """
    features, names = regions.table["features"], regions.table["dispatchers"]
    if not features:
        raise UsageError(f"map.{regions.name}: expected features to choose by, found none\n  hint: features = ['S']")
    trees: dict[str, Tree] = {}
    choices: dict[str, str] = {}
    for problem in dict.fromkeys(spot.shape.problem for spot in regions.spots):
        spots = [spot for spot in regions.spots if spot.shape.problem == problem]
        variants = [v for v in dict.fromkeys(v for spot in spots for v in spot.times) if v not in names]
        if len(spots) < 2 or not variants:
            raise UsageError(f"map.{regions.name}: expected two points of {problem} or more to fit, found {len(spots)}")
        trees[problem] = fitted(spots, variants, features)
        order = random.Random(regions.table["seed"]).sample(spots, len(spots))
        for fold in (order[i::_FOLDS] for i in range(min(_FOLDS, len(spots)))):
            tree = fitted([s for s in spots if s not in fold], variants, features)
            choices |= {s.shape.name: chosen(tree, s) for s in fold}
    return Dispatcher(trees, quantiles(regions.spots, lambda s: s.regret(choices[s.shape.name])))


def source(regions: Regions, fit: Dispatcher) -> str:
    """The dispatcher as a C++ header, with its regret and its table in comments."""
    parts = [f"// Which variant where, on {regions.record.gpu}: fitted to {len(regions.spots)} points of map run"]
    return "\n".join([*parts, *(line for item in fit.trees.items() for line in _function(*item))]) + "\n"


def _function(problem: str, tree: Tree) -> Iterator[str]:
    yield from ("", "template <typename Shape>", f"constexpr const char* choose_{problem}(const Shape& s) {{")
    yield from _branches(tree, "  ")
    yield "}"


def _branches(tree: Tree, indent: str) -> Iterator[str]:
    if isinstance(tree, Leaf):
        worst = max(spot.regret(chosen(tree, spot)) for spot in tree.spots)
        yield f'{indent}return "{tree.variants[0]}";  // {len(tree.spots)} points, regret at most {worst:.3f}'
        return
    names = re.sub(r"\b[A-Za-z_]\w*\b|//", lambda m: _CPP.get(m[0], f"s.{m[0]}"), tree.feature)
    yield f"{indent}if ({names} <= {tree.most}) {{"
    yield from _branches(tree.low, indent + "  ")
    yield f"{indent}}}"
    yield from _branches(tree.high, indent)


_Choice = Callable[[Spot], str]
