"""A folder of verdicts as a page that ranks accepted candidates by GPU, shape and mode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.groups import grouped
from flashcore.model.text import fixed
from flashcore.plugins.judge.verdict import FORMAT, SUFFIX, file_name, untrusted
from flashcore.report import write_standalone


def write(folder: Path, file: Path) -> None:
    """Writes the page. Accepted verdicts on a candidate that was rejected, too, are left out.

    Raises:
        UsageError: a file of the folder is no verdict.
        WriteError: the page cannot be written.
    """
    verdicts = [*map(_read, sorted(folder.glob(f"*{SUFFIX}")))]
    rejected = {one["judged"] for one in verdicts if one["status"] == "rejected"}
    rows = (row for one in verdicts if one["judged"] not in rejected for row in one["rows"])
    tables = grouped(sorted(rows, key=lambda row: (row[0], row[1]["us"])))
    others = [one for one in verdicts if one["status"] != "accepted"]
    template = Path(__file__).with_name("board.html.j2")
    write_standalone(template, file, "report.js", tables=tables, others=others, fixed=fixed, untrusted=untrusted)


def _read(path: Path) -> dict[str, Any]:
    try:
        one = json.loads(path.read_bytes())
        if (one["format"], file_name(one)) != (FORMAT, path.name):
            raise ValueError(f"format {one['format']}, {file_name(one)}")
        shown = {"name": one["untrusted"]["name"], "candidate": str(one["candidate"]), "status": str(one["status"])}
        return shown | {
            "reasons": "; ".join(one["reasons"][:2]),
            "judged": f"{one['candidate']} {one['suite_hash']}",
            "rows": [(title, row | shown) for title, row in _rows(one)] if one["status"] == "accepted" else [],
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: expected a verdict of format {FORMAT}, found {untrusted(error)}") from None


def _rows(verdict: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The title of a table, which says all that is equal in it, and the candidate's figures in it."""
    device, claims = verdict["device"], verdict["claims"]
    checks = [one["drawn"] for one in verdict["shapes"] if not one["times"]]
    notes = {
        "not deterministic": not claims["deterministic"],
        "reaches the host's memory": not device.get("confined") or device.get("reaches_host_memory"),
    }
    claimed = {"checked": len(checks), "drawn": sum(checks), "notes": [text for text, holds in notes.items() if holds]}
    for shape in verdict["shapes"]:
        judged = (
            f"{verdict['suite']} ({verdict['suite_hash'][:8]}) on {device['name']}: {shape['shape']} {shape['params']}"
        )
        for mode, time in shape["times"].items():
            title = untrusted(f"{judged}, {claims['tolerance']}, {claims['roof']}, {mode}", 300)
            figures = {key: float(time[key]) for key in ("us", "low", "high")}
            speedup = time.get("speedup", {}).get("value")
            yield title, {**claimed, **figures, "floor": shape["floor"].get(mode), "speedup": speedup}
