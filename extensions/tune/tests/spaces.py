"""A space for tests, and what a machine might have measured of it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import tomlkit

from extensions.tune.benchmarks.search import Recorded
from flashcore.model.suite import Suite
from flashcore_tune.search import Outcome
from flashcore_tune.space import FILE, Grid, Space

SPACE = Space(
    name="toy",
    variant="base",
    axes={"ROWS": (16, 32, 64, 128), "STAGES": (1, 2, 3), "COPY": ("plain", "async")},
    conditions=("ROWS * STAGES <= 192", "COPY == 'async' or STAGES == 1"),
    shapes=("small",),
)
GRID = Grid(SPACE)


def declared(suite: Suite, space: Space, folder: Path) -> Suite:
    """The suite, in a folder whose ``space.toml`` declares the space."""
    keys = {key: value for key, value in asdict(space).items() if key != "name"}
    (folder / FILE).write_text(tomlkit.dumps({space.name: json.loads(json.dumps(keys))}))
    return replace(suite, root=str(folder))


def outcome(index: int) -> Outcome:
    """Slow and fast in a way that the axes explain; some are rejected, and a wrong one would be the fastest."""
    point = GRID.point(index)
    rows, stages = int(point["ROWS"]), int(point["STAGES"])
    if rows == 128:
        return Outcome("static", "cannot be launched")
    if rows == 16 and stages == 3:
        return Outcome("check", "small: wrong", {"small": 0.1}, code=f"c{index}")
    us = abs(rows - 48) / 16 + 4 / stages + (point["COPY"] == "plain")
    missed = ("registers",) if rows == 64 else ()
    return Outcome(times={"small": us}, facts={"registers": float(rows)}, missed=missed, code=f"c{index}")


OUTCOMES = {i: outcome(i) for i in GRID.feasible}
RECORDED = Recorded(GRID, OUTCOMES, None)
