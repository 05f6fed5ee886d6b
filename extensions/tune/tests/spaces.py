"""A space for tests, and what a machine might have measured of it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import tomlkit

from flashcore.model.suite import Suite
from flashcore_tune.grid import Grid
from flashcore_tune.space import FILE, Space
from flashcore_tune.study import Header, Result

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


def header(sampler: str = "random", **changes: object) -> Header:
    """The header of a study of the space."""
    fields = {"suite": "toys", "space": SPACE, "sampler": sampler, "seed": 1, "closure": "c", "gpu": None}
    return Header(**{**fields, **changes})  # type: ignore[arg-type]


def result(index: int) -> Result:
    """Slow and fast in a way that the axes explain; some fall, and one is another's twin by its code."""
    point = GRID.point(index)
    rows, stages = int(point["ROWS"]), int(point["STAGES"])
    if rows == 128:
        return Result(index, "static", "cannot be launched")
    if rows == 16 and stages == 3:
        return Result(index, "check", "wrong", code=f"c{index}")
    us = abs(rows - 48) / 16 + 4 / stages + (point["COPY"] == "plain")
    code = "same" if rows in (16, 32) and stages == 1 and point["COPY"] == "plain" else f"c{index}"
    return Result(index, facts={"registers": float(rows), "smem": 10.0 * stages}, times={"small": us}, error=1e-4,
                  code=code, broken={"registers": 0.1} if rows == 64 else {})  # fmt: skip


RECORDED = [result(i) for i in GRID.feasible]
