"""The report's page *Map* of a map's record: a chart of its points over two params, and its tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.plugins.map.regions import Regions, Spot
from flashcore.report.cells import six_digits
from flashcore.report.view import Book, Page

HERE = Path(__file__).parent


def page(book: Book) -> Page[dict[str, Any]] | None:
    """The page ``map``; ``None`` for other records, and for points without times."""
    try:
        regions = Regions(book.record)
    except UsageError:
        return None
    if not regions.spots:
        return None
    view = {"regions": regions, "drawn": {"kind": "map", "points": [_drawn(spot) for spot in regions.spots]}}
    return Page("map", "Map", str(HERE / "map.html.j2"), view, scripts=(str(HERE / "map.js"),))


def _drawn(spot: Spot) -> dict[str, Any]:
    """A point's data for the chart; a figure that is unknown or infinite is ``None``."""
    return {
        "name": spot.shape.name,
        "regret": spot.dispatched.text,
        **{name: getattr(spot, name) for name in ("params", "best", "times", "references")},
        **{name: six_digits(value) if value < math.inf else None for name, value in spot.figures.items()},
    }
