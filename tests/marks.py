"""The marks of a roofline figure, as the page embeds it and as Python returns it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.support.pages import data


def marks(figure: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each mark's data by column, with its coordinates ``x`` and ``y``."""
    columns = figure["layout"]["meta"]["columns"]
    return [
        {**dict(zip(columns, row, strict=True)), "x": x, "y": y}
        for trace in figure["data"]
        if trace.get("customdata") is not None
        for row, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=True)
    ]


def embedded(html: str, name: str) -> dict[str, Any]:
    """The figure of that name that a page embeds."""
    figure = data(html, name)
    assert figure
    return figure


def labels(figure: Mapping[str, Any]) -> dict[str, str]:
    """Variant → the label that the figure opens with."""
    texts = (a["text"] for a in figure["layout"]["annotations"] if a.get("showarrow", True))
    found = (re.match(r"<b>(.*?)</b> (.*?)<br>", text) for text in texts)
    return {match[1]: match[2] for match in found if match}
