"""Writes include/attention/choice.h from recorded maps, or from the points that it was written from:
``python make_choice.py RUN... > include/attention/choice.h``, or ``python make_choice.py choice_points.json > ...``.

Each variant's time is a sum of the work of the fullest SM, of the mean SM, and of the longest tile, with factors of at
least 0 that are fitted to the times at the maps' points, for each D, causal or not. The least sum is chosen. A point's
times share a factor that is fitted with them: at the power limit all variants slow down alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flashcore.pipeline import plugins
from flashcore.plugins.map.regions import Regions
from flashcore.records import store

SMS = 132
#: Rows per tile at D = 64 and 128. A block of the last two starts as soon as there is room for it.
ROWS = {
    "between_even": (256, 192),
    "between_even_dynamic": (256, 192),
    "between_narrow": (192, 128),
    "between_narrow_dynamic": (192, 128),
    "between_wide": (192, 128),
    "wgmma_persistent": (256, 192),
    "wgmma_key_groups_2": (128, 64),
}
Point = tuple[Mapping[str, Any], Mapping[str, float]]


def points(sources: list[str]) -> Iterator[Point]:
    """Params, and us by variant without the suffix of its type, where `choice.h` predicts."""
    for source in map(Path, sources):
        if source.suffix == ".json":
            yield from json.loads(source.read_text())
            continue
        for spot in Regions(store.read(source)).spots:
            params = spot.shape.params
            times = {name.removesuffix("_bf16"): us for name, us in spot.times.items()}
            predicts = {name: us for name, us in times.items() if name in ROWS}
            if len(predicts) > 1 and not by_hand(params):
                yield params, predicts


def by_hand(params: Mapping[str, Any]) -> bool:
    """Whether `choice.h` does not predict, as in its ``choose``."""
    s, heads, half = int(params["S"]), int(params["B"] * params["H"]), params["DTYPE"] == "float16"
    tiles = {rows: -(-s // rows) * heads for rows in (64, 128, 192)}
    if params["D"] == 128:
        short = (s <= 512 and tiles[64] <= 66) or (s <= 64 and tiles[64] > 132)
        return short or (bool(params["CAUSAL"]) and s > 512 and 132 < tiles[192] <= 200)
    short = s <= 64 or (s <= 512 and tiles[64] <= 132) or (s <= 1024 and tiles[128] <= 66)
    return short or (half and s > 256 and tiles[128] <= 132 and tiles[64] <= 210)


def features(params: Mapping[str, Any], rows: int) -> Any:
    """What a variant's time is a sum of; `choice.h` computes the same."""
    tiles = -(-params["S"] // rows) * params["B"] * params["H"]
    keys = -(-params["S"] // 64)
    mean = (keys + rows / 64) / 2 if params["CAUSAL"] else keys
    waves, share = -(-tiles // SMS), tiles / SMS
    return np.array([1, waves, waves * mean, share, share * mean, keys, max(keys, share * mean)])


def nonnegative(a: Any, b: Any) -> Any:
    """The x of at least 0 with the least ``|ax - b|``, by coordinate descent."""
    scale = np.linalg.norm(a, axis=0)
    a = a / scale
    gram, target, x = a.T @ a, a.T @ b, np.zeros(a.shape[1])
    for _ in range(300):
        for j in range(len(x)):
            x[j] = max(0, x[j] + target[j] - gram[j] @ x)
    return x / scale


def fitted(chosen: list[Point]) -> dict[tuple[str, int, int], Any]:
    """By variant, D, and causal or not, the factors in us."""
    model: dict[tuple[str, int, int], Any] = {}
    common = [1.0] * len(chosen)
    for _ in range(6):
        for name, rows in ROWS.items():
            for depth in (64, 128):
                for causal in (0, 1):
                    a, b = [], []
                    for (params, times), factor in zip(chosen, common, strict=True):
                        if (params["D"], params["CAUSAL"]) == (depth, causal) and name in times:
                            over = times[name] / min(times.values())
                            if over < 1.6:  # a variant that is slower need only be predicted to be slow
                                a.append(features(params, rows[depth // 128]) * factor / times[name] / over**2)
                                b.append(1 / over**2)
                    model[name, depth, causal] = nonnegative(np.array(a), np.array(b))
        for i, (params, times) in enumerate(chosen):
            ratios = [us / predicted(model, name, params) for name, us in times.items()]
            common[i] = float(np.exp(np.mean(np.log(ratios))))
    return model


def predicted(model: Mapping[tuple[str, int, int], Any], name: str, params: Mapping[str, Any]) -> float:
    """us of a variant, at the clock of most points."""
    factors = model[name, params["D"], params["CAUSAL"]]
    return float(features(params, ROWS[name][params["D"] // 128]) @ factors)


HEAD = """// Which variant where on an H100 or H200 (132 SMs): by make_choice.py, from {count} points of the map.
//
// Short rows whose blocks run at once go to clusters. For other shapes the least predicted time decides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

// A variant's rows per tile at D = 64 and 128, and us by D, causal or not: of a launch; of each wave of tiles, and of
// 64 keys in it; of a tile per SM, and of 64 keys in it; of 64 keys of the longest tile; and of 64 keys of the longest
// tile or of all tiles of an SM, if these are more.
struct Cost {{
  std::string_view variant;
  std::int64_t rows[2];
  double us[2][2][7];
}};

inline constexpr Cost kCosts[] = {{
{costs}
}};

template <typename Shape>
constexpr double predicted_us(const Cost& cost, const Shape& s, bool causal) {{
  const std::int64_t rows = cost.rows[s.D / 128];
  const std::int64_t tiles = (s.S + rows - 1) / rows * s.B * s.H;
  const double waves = static_cast<double>((tiles + 131) / 132), share = static_cast<double>(tiles) / 132;
  const double keys = static_cast<double>((s.S + 63) / 64);
  const double mean = causal ? (keys + static_cast<double>(rows) / 64) / 2 : keys;
  const double terms[] = {{1, waves, waves * mean, share, share * mean, keys, std::max(keys, share * mean)}};
  double us = 0;
  for (int i = 0; i < 7; ++i) us += cost.us[s.D / 128][causal][i] * terms[i];
  return us;
}}

template <typename Shape>
constexpr std::string_view choose(const Shape& s, bool causal, bool has_key_groups_4) {{
  const std::int64_t tiles64 = (s.S + 63) / 64 * s.B * s.H, tiles128 = (s.S + 127) / 128 * s.B * s.H;
  const std::int64_t tiles192 = (s.S + 191) / 192 * s.B * s.H;
  if (s.D == 128 && s.S <= 512 && tiles64 <= 66) return "cluster_wide_keys";
  if (s.D == 128 && s.S <= 64 && tiles64 > 132) return "wgmma_persistent";
  // The tiles of a second wave are short ones, beside which the longest still run.
  if (s.D == 128 && causal && s.S > 512 && tiles192 > 132 && tiles192 <= 200) return "between_even";
  if (s.D == 64) {{
    if (s.S <= 64 || (s.S <= 512 && tiles64 <= 132)) return "cluster_keys";
    if (s.S <= 1024 && tiles128 <= 66) return "cluster_rows";
    if (has_key_groups_4 && s.S > 256 && tiles128 <= 132 && tiles64 <= 210) return "wgmma_key_groups_4";
  }}
  const Cost* least = kCosts;
  for (const Cost& cost : kCosts) {{
    if (predicted_us(cost, s, causal) < predicted_us(*least, s, causal)) least = &cost;
  }}
  return least->variant;
}}
"""


def main(sources: list[str]) -> None:
    plugins.load()
    chosen = [*points(sources)]
    model = fitted(chosen)
    costs = []
    for name, rows in ROWS.items():
        factors = [
            "{" + ", ".join(f"{x:.4g}" for x in model[name, depth, causal]) + "}"
            for depth in (64, 128)
            for causal in (0, 1)
        ]
        costs.append(
            f'    {{"{name}",\n     {{{rows[0]}, {rows[1]}}},\n     {{{{{factors[0]},\n       {factors[1]}}},\n'
            f"      {{{factors[2]},\n       {factors[3]}}}}}}},"
        )
    print(HEAD.format(count=len(chosen), costs="\n".join(costs)), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
