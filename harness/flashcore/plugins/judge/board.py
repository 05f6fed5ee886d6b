"""A folder of verdicts as a page that ranks accepted candidates by GPU, shape and mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.groups import grouped
from flashcore.model.text import fixed
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import FORMAT, SUFFIX
from flashcore.report import write_standalone


def write(folder: Path, file: Path) -> None:
    """Writes the page.

    Raises:
        UsageError: a file of the folder is no verdict.
        WriteError: the page cannot be written.
    """
    rows: list[tuple[str, dict[str, Any]]] = []
    others: list[dict[str, Any]] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            one = json.loads(path.read_bytes())
            if one["format"] != FORMAT:
                raise ValueError(f"format {one['format']}")
            row = {"digest": one["candidate"][:16], "name": one["untrusted"]["name"]}
            if one["status"] == "accepted":
                rows += [
                    (untrusted(f"{one['suite']} on {one['device']['name']}: {shape['shape']}, {mode}"),
                     row | {key: float(time[key]) for key in ("us", "low", "high")}
                     | {"floor": shape["floor"].get(mode), "speedup": time.get("speedup", {}).get("value")})
                    for shape in one["shapes"] for mode, time in shape["times"].items()
                ]  # fmt: skip
            else:
                others.append(row | {"status": one["status"], "reasons": "; ".join(one["reasons"][:2])})
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path}: expected a verdict of format {FORMAT}, found {untrusted(error)}") from None
    tables = {title: sorted(each, key=lambda row: row["us"]) for title, each in sorted(grouped(rows).items())}
    template = Path(__file__).with_name("board.html.j2")
    write_standalone(template, file, "report.js", tables=tables, others=others, fixed=fixed, untrusted=untrusted)
