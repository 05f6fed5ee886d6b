"""A folder of verdicts as a page that ranks accepted candidates by GPU, shape and mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.text import fixed
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import FORMAT, SUFFIX
from flashcore.report import write_standalone

_Tables = dict[str, list[tuple[float, list[str]]]]


def write(folder: Path, file: Path) -> None:
    """Writes the page.

    Raises:
        UsageError: a file of the folder is no verdict.
        WriteError: the page cannot be written.
    """
    tables: _Tables = {}
    others: list[list[str]] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            _add(json.loads(path.read_bytes()), tables, others)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path}: expected a verdict of format {FORMAT}, found {untrusted(error)}") from None
    ranked = {title: [row for _, row in sorted(rows)] for title, rows in sorted(tables.items())}
    write_standalone(Path(__file__).with_name("board.html.j2"), file, "report.js", tables=ranked, others=others)


def _add(verdict: dict[str, Any], tables: _Tables, others: list[list[str]]) -> None:
    if verdict["format"] != FORMAT:
        raise ValueError(f"format {verdict['format']}")
    names = [untrusted(verdict["candidate"][:16]), untrusted(verdict["untrusted"]["name"])]
    if verdict["status"] != "accepted":
        others.append([untrusted(verdict["status"]), *names, untrusted("; ".join(verdict["reasons"][:2]), 300)])
        return
    for shape in verdict["shapes"]:
        for mode, time in shape["times"].items():
            interval = f"{time['low']:.2f} to {time['high']:.2f}"
            speedup = time["speedup"]["value"] if "speedup" in time else None
            row = [f"{time['us']:.2f}", interval, fixed(shape["floor"].get(mode), 2), fixed(speedup, 2), *names]
            title = f"{verdict['suite']} on {verdict['device']['name']}: {shape['shape']}, {mode}"
            tables.setdefault(untrusted(title), []).append((time["us"], row))
