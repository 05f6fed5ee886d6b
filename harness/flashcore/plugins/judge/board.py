"""A folder of verdicts as a page that ranks accepted candidates by GPU, shape and mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.groups import grouped
from flashcore.model.text import fixed
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import FORMAT, SUFFIX, file_name
from flashcore.report import write_standalone


def write(folder: Path, file: Path) -> None:
    """Writes the page. An accepted verdict that is older than a rejection of the candidate is left out.

    Raises:
        UsageError: a file of the folder is no verdict.
        WriteError: the page cannot be written.
    """
    others: list[dict[str, Any]] = []
    ranked: list[tuple[str, dict[str, Any]]] = []
    rejected: dict[tuple[str, str], str] = {}  # candidate and suite → the last time
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            one = json.loads(path.read_bytes())
            if (one["format"], file_name(one)) != (FORMAT, path.name):
                raise ValueError(f"format {one['format']}, {file_name(one)}")
            row = {key: str(one[key]) for key in ("candidate", "suite_hash", "status", "time")}
            row |= {"name": one["untrusted"]["name"], "reasons": "; ".join(one["reasons"][:2])}
            if one["status"] == "accepted":
                ranked += ((title, row | times) for title, times in _times(one))
                continue
            others.append(row)
            if one["status"] == "rejected":
                judged = row["candidate"], row["suite_hash"]
                rejected[judged] = max(rejected.get(judged, ""), row["time"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path}: expected a verdict of format {FORMAT}, found {untrusted(error)}") from None
    tables = grouped(
        (t, row) for t, row in ranked if row["time"] >= rejected.get((row["candidate"], row["suite_hash"]), "")
    )
    tables = {title: sorted(rows, key=lambda row: row["us"]) for title, rows in sorted(tables.items())}
    template = Path(__file__).with_name("board.html.j2")
    write_standalone(template, file, "report.js", tables=tables, others=others, fixed=fixed, untrusted=untrusted)


def _times(verdict: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The title of a table, which says all that is equal in it, and the candidate's figures in it."""
    judged = f"{verdict['suite']} ({verdict['suite_hash'][:8]}) on {verdict['device']['name']}"
    claims, checks = verdict["claims"], [one for one in verdict["shapes"] if not (one["times"] or one["first_us"])]
    claimed = {
        "checked": len(checks),
        "drawn": sum(one["drawn"] for one in checks),
        "is_deterministic": claims["deterministic"],
        "is_confined": verdict["device"].get("confined") and not verdict["device"].get("reaches_host_memory"),
    }
    return [
        (
            untrusted(
                f"{judged}: {shape['shape']} {shape['params']}, {claims['tolerance']}, {claims['roof']}, {mode}", 300
            ),
            claimed
            | {key: float(time[key]) for key in ("us", "low", "high")}
            | {"floor": shape["floor"].get(mode), "speedup": time.get("speedup", {}).get("value")},
        )
        for shape in verdict["shapes"]
        for mode, time in shape["times"].items()
    ]
