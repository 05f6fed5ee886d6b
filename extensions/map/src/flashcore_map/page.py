"""The report's page *Map* of a map's record: a chart of its points over two params, and its tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.groups import picked
from flashcore.model.text import six_digits
from flashcore.report.view import CHARTS, Book, Page
from flashcore_map.regions import Regions

HERE = Path(__file__).parent


def page(book: Book) -> Page[dict[str, Any]] | None:
    """The page ``map``; ``None`` for other records, and for points without times."""
    try:
        regions = Regions(book.record)
    except UsageError:
        return None
    points = [
        {
            "regret": spot.dispatched.text,
            **picked(spot, "name", "params", "best", "times", "references"),
            # unknown or infinite: None
            **{name: six_digits(value) if value < math.inf else None for name, value in spot.figures.items()},
        }
        for spot in regions.spots
    ]
    view = {"regions": regions, "drawn": {"kind": "map", "points": points}}
    scripts = (*CHARTS, str(HERE / "map.js"))
    return Page("map", "Map", str(HERE / "map.html.j2"), view, scripts=scripts) if points else None
