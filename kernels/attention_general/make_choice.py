"""Writes include/attention/choice.h from recorded maps, or from the points that it was written from:
``python make_choice.py RUN... > include/attention/choice.h``, or ``python make_choice.py choice_points.json.xz > ...``.
With ``--points`` first it prints the points instead, for ``xz``. Of a point that several sources have, the last one's
times count. Recorded maps are read by ``extensions/map``.

Each variant's time is a sum of the work of the fullest SM, of the mean SM, and of the longest row, with factors of at
least 0 that are fitted to the times at the maps' points, for each D and class of shapes, times what a tree of two
questions corrects it by. The least is chosen. A point's times share a factor that is fitted with them: at the power
limit all variants slow down alike. A time that is far from its sum counts less: a look can be disturbed.

What matters is not each time but which is least. So all factors are then tuned together, for the mean regret of a
choice that takes a variant with a probability, which falls by e with each 0.6 % of predicted time. Of points that were
left out, a fifth at a time, 1.2 to 1.3 % had a regret above 1.05 without this, and 0.9 to 1.2 % with it (attempt 32 in
NOTES.md; 0.7 % with the points and kernels of attempt 33).
"""

from __future__ import annotations

import heapq
import json
import lzma
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from flashcore.pipeline import plugins
from flashcore.records import store

SMS = 132
#: Tiles of more waves than this are even: their order is not followed.
MOST_WAVES = 64


class Tile(NamedTuple):
    """A variant's tiles at one D (no rows: it does not run there), with what its times fit best: the share of a tile's
    keys that its time has anyway, while the rest falls with the 64 rows that a tile lacks at the end, and the time
    beside its keys, in that of 64 keys.
    """

    rows: int
    blocks: int = 1
    anyway: float = 1
    beside: float = 4


NONE = Tile(0)
#: How tiles come to SMs: each has a block (`kFree`, or with even groups of heads `kEven`), a block that is done takes
#: the next one (`kNext`, even groups), SMs go back and forth (`kWalk`), or clusters of two share the keys of one
#: (`kPairs`); tiles at D = 64 and 128.
VARIANTS: dict[str, tuple[str, Tile, Tile]] = {
    "between_even": ("kEven", Tile(256, anyway=0.9), Tile(192, anyway=0.55)),
    "between_even_dynamic": ("kNext", Tile(256, beside=1), Tile(192, anyway=0.35)),
    "between_narrow": ("kEven", Tile(192, anyway=0.55), Tile(128, anyway=0.75, beside=2.5)),
    "between_narrow_dynamic": ("kNext", Tile(192, anyway=0.55, beside=1), Tile(128, anyway=0.9, beside=2.5)),
    "between_wide": ("kEven", Tile(192, anyway=0.35), Tile(128, beside=7)),
    "between_wide_dynamic": ("kNext", Tile(128, beside=1), Tile(128, beside=1)),
    "short_in_step": ("kFree", Tile(64, blocks=5, beside=1), Tile(64, blocks=4, beside=1)),
    "short_overlap": ("kFree", Tile(64, blocks=3, beside=7), Tile(64, blocks=2, beside=7)),
    "wgmma_persistent": ("kWalk", Tile(256, beside=2.5), Tile(192, anyway=0.35)),
    "wgmma_key_groups_2": ("kFree", Tile(128, anyway=0.75, beside=7), Tile(64)),
    "wgmma_key_groups_4": ("kFree", Tile(64, beside=7), NONE),
    "cluster_keys": ("kPairs", Tile(64, blocks=2), NONE),
    "cluster_rows": ("kPairs", Tile(128), NONE),
    "cluster_wide_keys": ("kPairs", NONE, Tile(64)),
}
#: Keys of a step, where it is not 64.
STEPS = {"between_wide": 128, "between_wide_dynamic": 128}
#: The most keys, where there is a limit.
MOST_KEYS = {"cluster_keys": 512, "cluster_rows": 1024, "cluster_wide_keys": 512}
CLASSES, FACTORS = 8, 10
#: A variant that is slower than this many times the fastest at a point need not be predicted there.
_FAR = 1.8
#: A time counts half if its logarithm is so far from that of its sum.
_TRUSTED = 0.2
#: A part of a tree has at least so many points; so much weight more is without error; larger errors count as these.
_PART, _EXACT, _MOST_ERROR = 12, 4.0, 0.15
#: Tuning: the difference of logarithms by which a choice is e times less likely, steps, the first one's size, what the
#: mean square of the changes costs beside the mean regret, and the largest loss, of logarithms.
_LIKELY, _STEPS, _RATE, _CHANGE, _MOST_LOSS = 0.006, 300, 0.01, 2e-2, 0.3
Params = Mapping[str, Any]
Point = tuple[Params, Mapping[str, float]]


def points(sources: list[str]) -> list[Point]:
    """Params, and us by variant without the suffix of its type."""
    results: dict[str, Point] = {}
    for source in map(Path, sources):
        if source.suffix == ".xz":
            earlier = json.loads(lzma.decompress(source.read_bytes()))
            results |= {json.dumps(params): (params, times) for params, times in earlier}
            continue
        from flashcore_map.regions import Regions

        for spot in Regions(store.read(source)).spots:
            params = {name: spot.shape.params[name] for name in ("B", "H", "HKV", "S", "D", "CAUSAL", "DTYPE")}
            times = {name.removesuffix("_bf16"): float(f"{us:.5g}") for name, us in spot.times.items()}
            if times := {name: us for name, us in times.items() if name in VARIANTS and runs(name, params)}:
                results[json.dumps(params)] = params, times
    return [*results.values()]


def tile_of(name: str, params: Params) -> Tile:
    return VARIANTS[name][1:][params["D"] // 128]


def runs(name: str, params: Params) -> bool:
    """Whether a variant takes a shape, and is no other one's kernel there."""
    return bool(tile_of(name, params).rows) and params["S"] <= MOST_KEYS.get(name, params["S"])


def class_of(name: str, params: Params) -> int:
    """The class of a shape, each with factors of its own; clusters, for short rows, have no longest one."""
    s, is_pair = params["S"], VARIANTS[name][0] == "kPairs"
    length = 0 if s <= 128 else 1 if s <= 256 else 2 if s <= 1024 or is_pair else 3
    return 2 * length + int(params["CAUSAL"])


@cache  # of many heads and long rows, it takes milliseconds
def load(name: str, s: int, heads: int, sharing: int, depth: int, causal: int, places: int) -> tuple[float, float, int]:
    """64 keys of the fullest SM (or place for a block) and of the mean one, with what a tile takes beside them, and the
    fullest one's tiles; `choice.h` computes the same. `sharing` heads share K and V."""
    order, (rows, _, anyway, beside), step = VARIANTS[name][0], VARIANTS[name][1:][depth // 128], STEPS.get(name, 64)
    tiles = -(-s // rows)
    count = tiles * heads
    seen = [-(-(min(s, (i + 1) * rows) if causal else s) // step) * step // 64 for i in range(tiles)]
    shares = [min(1.0, -(-(s - i * rows) // 64) * 64 / rows) for i in range(tiles)]
    costs = [n * (anyway + (1 - anyway) * share) + beside for n, share in zip(seen, shares, strict=True)]
    mean = heads * sum(costs) / places
    if count > MOST_WAVES * SMS:
        return mean, mean, -(-count // places)
    group = min(heads, max(1, (24 << 20) // (4 * s * depth // sharing))) if causal else 1
    if order in ("kEven", "kNext"):
        group = -(-heads // -(-heads // group))
    loads, at = [(0.0, 0)] * places, 0
    for first in range(0, heads, group):
        for cost in reversed(costs):
            for _ in range(min(group, heads - first)):
                if order == "kWalk":
                    turn, place = divmod(at, places)
                    place = places - 1 - place if turn % 2 else place
                    loads[place] = loads[place][0] + cost, loads[place][1] + 1
                else:
                    least = loads[0]
                    heapq.heapreplace(loads, (least[0] + cost, least[1] + 1))
                at += 1
    most, number = max(loads)
    return most, mean, number


def features(params: Params, name: str) -> Any:
    """What a variant's time is a sum of; `choice.h` computes the same."""
    rows, fit, *_ = tile_of(name, params)
    heads, keys = params["B"] * params["H"], -(-params["S"] // 64)
    seen = (keys + 1) / 2 if params["CAUSAL"] else keys
    if VARIANTS[name][0] == "kPairs":
        blocks = -(-params["S"] // rows) * heads * 2
        waves = -(-blocks // (SMS * fit))
        mean = (keys + rows / 64) / 2 if params["CAUSAL"] else keys
        terms = [1, waves * keys, blocks / SMS * mean, waves, blocks / SMS, keys, keys * heads / SMS]
    else:
        shape = params["S"], heads, params["H"] // params["HKV"], params["D"], params["CAUSAL"]
        fullest, mean, waves = load(name, *shape, SMS)
        last = load(name, *shape, SMS * fit)[0] if fit > 1 else waves
        terms = [1, fullest, mean, last, keys * heads * seen / SMS, keys, keys * heads / SMS]
    tiles = -(-params["S"] // rows) * heads
    filled, counts = min(1, tiles / (SMS * fit)), VARIANTS[name][0] == "kNext" and tiles > SMS
    return np.array([*terms, keys * heads * seen / SMS * params["HKV"] / params["H"], filled, counts])


def nonnegative(gram: Any, target: Any) -> Any:
    """The x of at least 0 with the least ``x @ gram @ x / 2 - target @ x``, by coordinate descent."""
    scale = np.sqrt(np.maximum(gram.diagonal(), 1e-18))
    gram, target, x = gram / np.outer(scale, scale), target / scale, np.zeros(len(target))
    for _ in range(200):
        for j in range(len(x)):
            x[j] = max(0, x[j] + target[j] - gram[j] @ x)
    return x / scale


class Tree(NamedTuple):
    """Two questions, whether a feature of :func:`traits` is at most a number, of which the second depends on the answer
    to the first; and the factors for yes and yes, yes and no, no and yes, no and no."""

    features: Sequence[int]
    most: Sequence[float]
    factors: Sequence[float]

    def leaf(self, values: Sequence[float]) -> int:
        first = int(values[self.features[0]] > self.most[0])
        return 2 * first + int(values[self.features[1 + first]] > self.most[1 + first])


def traits(params: Params, name: str, terms: Any) -> list[float]:
    """The features that a tree asks for: keys, heads, causality, how full the fullest SM is beside the mean one, and
    how full the tiles are; `choice.h` computes the same."""
    rows, s = tile_of(name, params).rows, params["S"]
    return [s, params["B"] * params["H"], params["CAUSAL"], terms[1] / terms[2], s / (-(-s // rows) * rows)]


def question(x: Any, errors: Any, weights: Any) -> tuple[int, float]:
    """The feature and number that part these errors best; if none tells enough, causality and 1, which parts none."""

    def told(error: float, weight: float) -> float:
        return error**2 / (weight + _EXACT)

    total, weight = errors @ weights, weights.sum()
    most, best = told(total, weight) + 1e-4, (2, 1.0)
    for feature, values in enumerate(x.T):
        order = values.argsort(kind="stable")
        below = (errors * weights)[order].cumsum(), weights[order].cumsum()
        for last in range(_PART - 1, len(values) - _PART):
            low, high = values[order[last : last + 2]]
            error, part = (sums[last] for sums in below)
            if low < high and told(error, part) + told(total - error, weight - part) > most:
                most = told(error, part) + told(total - error, weight - part)
                best = feature, (low + high) / 2
    return best


def tree(x: Any, errors: Any, weights: Any) -> Tree:
    """The tree that corrects these errors, of logarithms."""
    parts, questions, factors = [np.full(len(x), True)], [], []
    for part in parts:
        if len(parts) < 7:
            feature, most = question(x[part], errors[part], weights[part])
            questions.append((feature, most))
            parts += [part & (x[:, feature] <= most), part & (x[:, feature] > most)]
        else:
            factors.append(float(np.exp(errors[part] @ weights[part] / (weights[part].sum() + _EXACT))))
    features, limits = zip(*questions, strict=True)
    return Tree(features, limits, factors)


def fitted(chosen: list[Point]) -> tuple[dict[tuple[str, int, int], Any], dict[tuple[str, int], Tree]]:
    """By variant, D and class, the factors in us. They are drawn to those of all the variant's classes together, as if
    by one point more. By variant and D, the tree of what they err by."""
    model: dict[tuple[str, int, int], Any] = {}
    best = np.array([min(times.values()) for _, times in chosen])
    common = np.ones(len(chosen))
    near: dict[tuple[str, int, int], list[int]] = {}
    for i, (params, times) in enumerate(chosen):
        for name, time in times.items():
            if time < _FAR * best[i]:
                near.setdefault((name, params["D"], class_of(name, params)), []).append(i)
    groups = []
    for key, at in near.items():
        a = np.array([features(chosen[i][0], key[0]) for i in at])
        us = np.array([chosen[i][1][key[0]] for i in at])
        if len(at) > 3:
            groups.append((key, at, a, us, np.ones(len(at))))
    for _ in range(8):
        sums, weights = np.zeros(len(chosen)), np.full(len(chosen), 1e-9)
        squares: dict[tuple[str, int, int], tuple[Any, Any]] = {}
        together: dict[tuple[str, int], list[tuple[Any, Any]]] = {}
        for key, at, a, us, trust in groups:
            weight = trust * best[at] / us
            scaled = a * (common[at] / us * weight)[:, None]
            squares[key] = scaled.T @ scaled, scaled.T @ weight
            together.setdefault(key[:2], []).append(squares[key])
        shared = {key: nonnegative(*map(sum, zip(*each, strict=True))) for key, each in together.items()}
        for key, at, a, us, trust in groups:
            gram, target = squares[key]
            one = gram.diagonal() / len(at)
            x = model[key] = nonnegative(gram + np.diag(one), target + one * shared[key[:2]])
            ratio = np.log(us / np.maximum(a @ x, 1e-3))
            trust[:] = 1 / (1 + ((ratio - np.log(common[at])) / _TRUSTED) ** 2)
            np.add.at(sums, at, trust * best[at] / us * ratio)
            np.add.at(weights, at, trust * best[at] / us)
        common = np.exp(sums / weights)
    sums, weights = np.zeros(len(chosen)), np.zeros(len(chosen))
    for key, at, a, us, _ in groups:  # beside the fastest, whose order matters
        np.add.at(sums, at, (best[at] / us) ** 8 * np.log(us / (a @ model[key])))
        np.add.at(weights, at, (best[at] / us) ** 8)
    left: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for key, at, a, us, _ in groups:
        errors = (np.log(us / (a @ model[key])) - (sums / weights)[at]).clip(-_MOST_ERROR, _MOST_ERROR)
        x = [traits(chosen[i][0], key[0], terms) for i, terms in zip(at, a, strict=True)]
        left.setdefault(key[:2], []).append((x, errors, (best[at] / us) ** 4))
    return model, {key: tree(*map(np.concatenate, zip(*each, strict=True))) for key, each in left.items()}


def tuned(chosen: list[Point], model: dict[tuple[str, int, int], Any], trees: dict[tuple[str, int], Tree]) -> None:
    """Changes these factors so that the mean regret of a choice by chance is least. Where a variant has no time, its
    loss is that of its predicted one."""
    of_sum, of_leaf = {key: i for i, key in enumerate(model)}, {key: 4 * i for i, key in enumerate(trees)}
    factors, corrections = np.array([*model.values()]), np.log([x for one in trees.values() for x in one.factors])
    shape = len(chosen), len(VARIANTS)
    terms, sums, leaves = np.zeros((*shape, FACTORS)), np.zeros(shape, int), np.zeros(shape, int)
    us, predicted = np.full(shape, np.inf), np.full(shape, np.inf)
    for i, (params, times) in enumerate(chosen):
        for j, name in enumerate(VARIANTS):
            key = name, params["D"], class_of(name, params)
            is_missing = name == "wgmma_key_groups_4" and params["DTYPE"] != "float16"
            if is_missing or not runs(name, params) or not np.any(model.get(key, 0)):
                continue
            terms[i, j], sums[i, j] = features(params, name), of_sum[key]
            leaves[i, j] = of_leaf[key[:2]] + trees[key[:2]].leaf(traits(params, name, terms[i, j]))
            predicted[i, j] = terms[i, j] @ model[key] * np.exp(corrections[leaves[i, j]])
            us[i, j] = times.get(name, np.inf)
    least = us.min(axis=1, keepdims=True)
    ratios = np.divide(us, predicted, where=us < 1.3 * least, out=np.full(shape, np.nan))
    common = np.nanmedian(ratios, axis=1, keepdims=True)  # of the point's clock
    losses = np.log(np.where(us < np.inf, us, predicted * common) / least).clip(0, _MOST_LOSS)

    work, runs_there, lost = torch.tensor(terms), torch.tensor(predicted < np.inf), torch.tensor(losses)
    change, shift = (torch.zeros(x.shape, dtype=torch.float64, requires_grad=True) for x in (factors, corrections))
    optimizer = torch.optim.Adam([change, shift], lr=_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, _STEPS)
    for _ in range(_STEPS):
        summed = (work * (torch.tensor(factors) * change.exp())[sums]).sum(dim=2).clamp(min=1e-6)
        logarithms = summed.log() + (torch.tensor(corrections) + shift)[leaves]
        chances = torch.softmax(-logarithms.where(runs_there, torch.tensor(torch.inf)) / _LIKELY, dim=1)
        cost = _CHANGE * (FACTORS * change.square().mean() + 40 * shift.square().mean())
        torch.autograd.backward((chances * lost).sum(dim=1).mean() + cost)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    with torch.no_grad():
        model |= zip(model, factors * change.exp().numpy(), strict=True)
        each = np.exp(corrections + shift.numpy()).reshape(-1, 4)
    trees |= {key: one._replace(factors=row) for (key, one), row in zip(trees.items(), each, strict=True)}


HEAD = """// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from {count} points of the map.
//
// The least predicted time decides: a sum of factors times what the shape's work is, corrected by a tree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

// How tiles come to SMs: each has a block of its own, with groups of heads that are even or not; a block that is done
// takes the next one, by a counter; SMs go back and forth; or clusters of two share the keys of one.
enum class Tiles {{ kFree, kEven, kNext, kWalk, kPairs }};

// A variant's tiles at D = 64 and 128: rows (0: does not run), blocks per SM, the share of the keys' time that a tile
// of fewer rows takes anyway, and the time beside its keys, in that of 64 keys.
struct Tile {{
  std::int64_t rows, blocks;
  double anyway, beside;
}};

// Two questions, whether a feature is at most a number; which is the second, the answer to the first tells. And the
// factors for yes and yes, yes and no, no and yes, no and no. The features are: keys, heads, causality, how full the
// fullest SM is beside the mean one, and how full the tiles are.
struct Tree {{
  int features[3];
  double most[3], factors[4];
}};

// A variant's tiles, keys per step, most keys (0: no limit), and by D and class of shapes the factors, us, of: a
// launch; 64 keys of the fullest SM, with what tiles take beside them; the same of the mean SM; a tile of the fullest
// SM, or with several blocks per SM the keys of the fullest place for one; 64 keys of all rows per SM; 64 keys of the
// longest row; 64 rows per SM; 64 keys of all rows per SM over the heads that share K and V; the share of places for
// blocks that have a tile; clearing the counter, with more tiles than SMs. Without factors it was never near the
// fastest. By D, the tree that corrects the sum.
struct Cost {{
  std::string_view variant;
  Tiles order;
  Tile tiles[2];
  std::int64_t step, most_keys;
  double us[2][{classes}][{factors}];
  Tree trees[2];
}};

inline constexpr Cost kCosts[] = {{
{costs}
}};

struct Load {{
  double fullest, mean, waves;
}};

template <typename Shape>
Load load_of(const Cost& cost, const Shape& s, bool causal, std::int64_t places) {{
  constexpr std::int64_t kMost = {waves} * {sms};
  const Tile& tile = cost.tiles[s.D / 128];
  const std::int64_t rows = tile.rows, tiles = (s.S + rows - 1) / rows, heads = s.B * s.H, step = cost.step;
  const auto each = [&](std::int64_t i) {{  // a last tile of fewer rows takes less time
    const std::int64_t steps = ((causal ? std::min(s.S, (i + 1) * rows) : s.S) + step - 1) / step;
    const std::int64_t left = std::min(rows, (s.S - i * rows + 63) / 64 * 64);
    const double share = static_cast<double>(left) / static_cast<double>(rows);
    return static_cast<double>(steps * step / 64) * (tile.anyway + (1 - tile.anyway) * share) + tile.beside;
  }};
  const auto waves = static_cast<double>((tiles * heads + places - 1) / places);
  double mean = 0;
  for (std::int64_t i = 0; i < tiles; ++i) mean += each(i) * static_cast<double>(heads) / static_cast<double>(places);
  if (tiles * heads > kMost) return {{mean, mean, waves}};
  std::int64_t group = causal ? std::clamp<std::int64_t>((24 << 20) / (4 * s.S * s.D * s.HKV / s.H), 1, heads) : 1;
  if (cost.order == Tiles::kEven || cost.order == Tiles::kNext) group = (heads + (heads + group - 1) / group - 1) / ((heads + group - 1) / group);
  using Sm = std::pair<double, double>;  // keys, tiles
  std::vector<Sm> walked(places);
  std::priority_queue<Sm, std::vector<Sm>, std::greater<Sm>> free{{std::greater<Sm>(), std::vector<Sm>(places)}};
  std::int64_t at = 0;
  for (std::int64_t first = 0; first < heads; first += group) {{
    for (std::int64_t i = tiles; i-- > 0;) {{
      for (std::int64_t head = first; head < std::min(first + group, heads); ++head, ++at) {{
        if (cost.order == Tiles::kWalk) {{
          Sm& sm = walked[at / places % 2 ? places - 1 - at % places : at % places];
          sm = {{sm.first + each(i), sm.second + 1}};
        }} else {{
          const Sm sm = free.top();
          free.pop();
          free.emplace(sm.first + each(i), sm.second + 1);
        }}
      }}
    }}
  }}
  Sm most = *std::max_element(walked.begin(), walked.end());
  for (; !free.empty(); free.pop()) most = std::max(most, free.top());
  return {{most.first, mean, most.second}};
}}

template <typename Shape>
double predicted_us(const Cost& cost, const Shape& s, bool causal) {{
  const bool is_pair = cost.order == Tiles::kPairs;
  const int kind = 2 * (s.S <= 128 ? 0 : s.S <= 256 ? 1 : s.S <= 1024 || is_pair ? 2 : 3) + causal;
  const double* factors = cost.us[s.D / 128][kind];
  const std::int64_t rows = cost.tiles[s.D / 128].rows, fit = cost.tiles[s.D / 128].blocks * {sms};
  const bool is_near = std::any_of(factors, factors + {factors}, [](double us) {{ return us > 0; }});
  if (!is_near || !rows || (cost.most_keys && s.S > cost.most_keys)) return 1e300;
  const std::int64_t heads = s.B * s.H;
  const double keys = static_cast<double>((s.S + 63) / 64), each = keys * static_cast<double>(heads) / {sms};
  const double all = each * (causal ? (keys + 1) / 2 : keys);
  const double filled = std::min(1.0, static_cast<double>((s.S + rows - 1) / rows * heads) / static_cast<double>(fit));
  const double shared = all * static_cast<double>(s.HKV) / static_cast<double>(s.H);
  const bool counts = cost.order == Tiles::kNext && (s.S + rows - 1) / rows * heads > {sms};
  double terms[] = {{1, 0, 0, 0, all, keys, each, shared, filled, counts ? 1. : 0.}};
  if (is_pair) {{
    const std::int64_t blocks = (s.S + rows - 1) / rows * heads * 2;
    const double waves = static_cast<double>((blocks + fit - 1) / fit), share = static_cast<double>(blocks) / {sms};
    terms[1] = waves * keys;
    terms[2] = share * (causal ? (keys + static_cast<double>(rows) / 64) / 2 : keys);
    terms[3] = waves;
    terms[4] = share;
  }} else {{
    const Load load = load_of(cost, s, causal, {sms});
    terms[1] = load.fullest;
    terms[2] = load.mean;
    terms[3] = fit > {sms} ? load_of(cost, s, causal, fit).fullest : load.waves;
  }}
  double us = 0;
  for (int i = 0; i < {factors}; ++i) us += factors[i] * terms[i];
  const auto length = static_cast<double>(s.S), tiled = static_cast<double>((s.S + rows - 1) / rows * rows);
  const double traits[] = {{length, static_cast<double>(heads), causal ? 1. : 0., terms[1] / terms[2], length / tiled}};
  const Tree& tree = cost.trees[s.D / 128];
  const int first = traits[tree.features[0]] > tree.most[0];
  const int second = traits[tree.features[1 + first]] > tree.most[1 + first];
  return us * tree.factors[2 * first + second];
}}

template <typename Shape>
std::string_view choose(const Shape& s, bool causal, bool has_key_groups_4) {{
  std::string_view choice;
  double least = 0;
  for (const Cost& cost : kCosts) {{
    if (cost.variant == "wgmma_key_groups_4" && !has_key_groups_4) continue;
    const double us = predicted_us(cost, s, causal);
    if (choice.empty() || us < least) choice = cost.variant, least = us;
  }}
  return choice;
}}
"""  # noqa: E501


def header(chosen: list[Point]) -> str:
    """The text of `choice.h`."""
    model, trees = fitted(chosen)
    tuned(chosen, model, trees)
    costs = []
    for name, (order, *tiles) in VARIANTS.items():
        factors = [
            "{" + ", ".join(f"{x:.4g}" for x in model.get((name, depth, kind), np.zeros(FACTORS))) + "}"
            for depth in (64, 128)
            for kind in range(CLASSES)
        ]
        each = (",\n       ".join(factors[:CLASSES]), ",\n       ".join(factors[CLASSES:]))
        shapes = ", ".join("{" + ", ".join(f"{x:g}" for x in tile) + "}" for tile in tiles)
        corrections = ",\n      ".join(
            "{"
            + ", ".join("{" + ", ".join(f"{x:.5g}" for x in row) + "}" for row in trees.get((name, depth), ()))
            + "}"
            for depth in (64, 128)
        )
        costs.append(
            f'    {{"{name}", Tiles::{order}, {{{shapes}}}, {STEPS.get(name, 64)}, {MOST_KEYS.get(name, 0)},\n'
            f"     {{{{{each[0]}}},\n      {{{each[1]}}}}},\n     {{{corrections}}}}},"
        )
    return HEAD.format(
        count=len(chosen),
        costs="\n".join(costs),
        classes=CLASSES,
        factors=FACTORS,
        sms=SMS,
        waves=MOST_WAVES,
    )


def main(sources: list[str]) -> None:
    plugins.load()
    if sources[0] == "--points":
        lines = ",\n".join(json.dumps(point, separators=(",", ":")) for point in points(sources[1:]))
        print(f"[\n{lines}\n]")
    else:
        print(header(points(sources)), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
