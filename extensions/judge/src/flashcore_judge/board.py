"""A folder of verdicts as a page that ranks accepted candidates by GPU, shape and mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from flashcore.errors import UsageError
from flashcore.model.groups import grouped
from flashcore.model.text import fixed
from flashcore.report import write_standalone
from flashcore_judge.verdict import SUFFIX, Verdict, file_name, untrusted


def write(folder: Path, file: Path) -> None:
    """Writes the page. Accepted verdicts on a candidate that was rejected, too, are left out.

    Raises:
        UsageError: a file of the folder is no verdict.
        WriteError: the page cannot be written.
    """
    verdicts = [*map(_read, sorted(folder.glob(f"*{SUFFIX}")))]
    rejected = {(one.candidate, one.suite_hash) for one, _ in verdicts if one.status == "rejected"}
    ranked = (row for one, rows in verdicts if (one.candidate, one.suite_hash) not in rejected for row in rows)
    tables = grouped(sorted(ranked, key=lambda row: (row[0], row[1]["us"])))
    others = [one for one, _ in verdicts if one.status != "accepted"]
    template = Path(__file__).with_name("board.html.j2")
    write_standalone(template, file, tables=tables, others=others, fixed=fixed, untrusted=untrusted)


def _read(path: Path) -> tuple[Verdict, list[tuple[str, dict[str, Any]]]]:
    """A verdict, and its rows: each with the title of its table."""
    try:
        one = TypeAdapter(Verdict).validate_json(path.read_bytes())
        if file_name(one) != path.name:
            raise ValueError(f"that of {file_name(one)}")
        return one, [*_rows(one)] if one.status == "accepted" else []
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: expected a verdict of format 1, found {untrusted(error)}") from None


def _rows(one: Verdict) -> Iterator[tuple[str, dict[str, Any]]]:
    """The title of a table, which says all that is equal in it, and the candidate's figures in it."""
    drawn = [shape["drawn"] for shape in one.shapes if not shape["times"]]
    counts = {"checked": len(drawn), "drawn": sum(drawn)}
    for shape in one.shapes:
        on = f"{one.suite} ({one.suite_hash[:8]}) on {one.device['name']}: {shape['shape']} {shape['params']}"
        for mode, time in shape["times"].items():
            title = f"{on}, {one.claims['tolerance']}, {one.claims['roof']}, {mode}"
            figures = {key: float(time[key]) for key in ("us", "low", "high")}
            speedup = time.get("speedup", {}).get("value")
            floor = shape["floor"].get(mode)
            yield untrusted(title, 300), {"verdict": one, **counts, **figures, "floor": floor, "speedup": speedup}
