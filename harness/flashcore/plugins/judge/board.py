"""A folder of verdicts as a page that ranks accepted candidates by GPU, shape and mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.groups import grouped
from flashcore.model.text import fixed
from flashcore.plugins.judge.verdict import FORMAT, SUFFIX, file_name, untrusted
from flashcore.report import write_standalone


def write(folder: Path, file: Path) -> None:
    """Writes the page. An accepted verdict that is older than a rejection of the candidate is left out.

    Raises:
        UsageError: a file of the folder is no verdict.
        WriteError: the page cannot be written.
    """
    verdicts = sorted(map(_read, folder.glob(f"*{SUFFIX}")), key=lambda one: one["time"])
    rejected = {one["judged"]: one["time"] for one in verdicts if one["status"] == "rejected"}  # the last time
    current = [one for one in verdicts if one["time"] >= rejected.get(one["judged"], "")]
    ranked = grouped((title, one | times) for one in current for title, times in one["times"])
    tables = {title: sorted(rows, key=lambda row: row["us"]) for title, rows in sorted(ranked.items())}
    others = [one for one in verdicts if one["status"] != "accepted"]
    template = Path(__file__).with_name("board.html.j2")
    write_standalone(template, file, "report.js", tables=tables, others=others, fixed=fixed, untrusted=untrusted)


def _read(path: Path) -> dict[str, Any]:
    try:
        one = json.loads(path.read_bytes())
        if (one["format"], file_name(one)) != (FORMAT, path.name):
            raise ValueError(f"format {one['format']}, {file_name(one)}")
        return {key: str(one[key]) for key in ("candidate", "status", "time")} | {
            "name": one["untrusted"]["name"],
            "reasons": "; ".join(one["reasons"][:2]),
            "judged": f"{one['candidate']} {one['suite_hash']}",
            "times": _times(one) if one["status"] == "accepted" else [],
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: expected a verdict of format {FORMAT}, found {untrusted(error)}") from None


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
    rows = []
    for shape in verdict["shapes"]:
        question = f"{judged}: {shape['shape']} {shape['params']}, {claims['tolerance']}, {claims['roof']}"
        for mode, time in shape["times"].items():
            figures = {key: float(time[key]) for key in ("us", "low", "high")}
            compared = {"floor": shape["floor"].get(mode), "speedup": time.get("speedup", {}).get("value")}
            rows.append((untrusted(f"{question}, {mode}", 300), {**claimed, **figures, **compared}))
    return rows
