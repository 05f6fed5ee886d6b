"""The report's figures: those that are committed hold, and what does not hold is said."""

from __future__ import annotations

import copy
from pathlib import Path

from benchmarks import raw, report

COMMITTED = Path(report.__file__).parent / "results" / "report.json"


def test_the_committed_figures_hold_and_all_were_measured() -> None:
    result = raw.read(COMMITTED, "report")
    made = report.figures(result)
    assert set(made) == set(report.LIMITS)
    assert {what for what, value in made.items() if value is None or value > report.LIMITS[what]} == set()
    assert not any("DOES NOT HOLD" in line for line in report.table(result))


def test_what_does_not_hold_is_said() -> None:
    result = copy.deepcopy(raw.read(COMMITTED, "report"))
    (overview,) = (p for p in result["pages"] if p["page"] == "index")
    overview["first screen"]["390"]["limiter"] = False
    overview["labels"]["390"].append(["figure", "one", "another"])
    overview["axe"] = {}
    for page in result["pages"]:
        page["axe"] = {}
    result["axe"] = False
    lines = [line for line in report.table(result) if "DOES NOT HOLD" in line or "unmeasured" in line]
    assert [line.split("  ")[1].strip() for line in lines] == [
        "labels covered or cut off", "parts of the answer off the first screen", "axe-core: serious or critical",
    ]  # fmt: skip
