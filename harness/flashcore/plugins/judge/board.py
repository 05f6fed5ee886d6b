"""A folder of verdicts as a page, without scripts, that ranks accepted candidates on each shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import FORMAT, SUFFIX

_STYLE = "body{font:16px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left}"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_HEADS = ("mode", "µs", "95 % interval", "floor", "candidate", "name (untrusted)")


def page(folder: Path) -> str:
    """The HTML.

    Raises:
        UsageError: a file is no verdict.
    """
    verdicts = [_read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    shapes: dict[tuple[str, str], list[list[str]]] = {}
    ranked = sorted(_times(verdicts), key=lambda time: (time[2]["mode"], time[2]["us"]))
    for verdict, shape, time in ranked:
        floor = shape["floor"].get(time["mode"])
        interval = f"{time['low']:.2f} to {time['high']:.2f}"
        cells = [time["mode"], f"{time['us']:.2f}", interval, f"{floor:.2f}" if floor else ""]
        row = [*cells, verdict["candidate"][:16], verdict["untrusted"]["name"]]
        shapes.setdefault((verdict["suite"], shape["shape"]), []).append(row)
    tables = [_table(f"{suite}: {shape}", _HEADS, rows) for (suite, shape), rows in sorted(shapes.items())]
    others = [
        [v["status"], v["candidate"][:16], v["untrusted"]["name"], "; ".join(v["reasons"][:2])]
        for v in verdicts
        if v["status"] != "accepted"
    ]
    tables.append(
        _table("Not accepted", ("status", "candidate", "name (untrusted)", "reasons"), others) if others else ""
    )
    head = f'<meta charset=utf-8><meta http-equiv=Content-Security-Policy content="{_POLICY}"><title>Verdicts</title>'
    return f"<!doctype html>{head}<style>{_STYLE}</style><h1>Verdicts</h1>{''.join(tables)}\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        verdict: dict[str, Any] = json.loads(path.read_bytes())
        if verdict["format"] != FORMAT:
            raise ValueError(f"format {verdict['format']}")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: expected a verdict of format {FORMAT}, found {untrusted(error)}") from None
    return verdict


def _times(verdicts: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    for verdict in verdicts:
        for shape in verdict["shapes"] if verdict["status"] == "accepted" else ():
            for mode, time in shape["times"].items():
                yield verdict, shape, {**time, "mode": mode}


def _table(title: str, heads: tuple[str, ...], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name)}" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(untrusted(cell, 300))}" for cell in row) for row in rows)
    return f"<h2>{escape(untrusted(title))}</h2><table><tr>{head}{body}</table>"
