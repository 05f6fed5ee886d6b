"""Cases are measured in a process, and its answers become facts and a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import text_tables
from flashcore.errors import CapabilityError
from flashcore.features.energy import page as energy_page
from flashcore.features.energy.measure import measure
from flashcore.model.case import Case
from flashcore.model.causes import INCAPABLE, Hang
from flashcore.model.record import Facts
from flashcore.report import roofline_page
from flashcore.runner.journal import Task, TaskResult
from flashcore.runner.queue import Pool
from flashcore.stages.runnable_cases import child_cases
from tests import factory
from tests.marks import marks
from tests.support import staged
from tests.support.judged import book_of
from tests.support.power import steady

SUITE = factory.suite()
PAIRS = [(SUITE.variants[name], SUITE.shapes["mission"]) for name in ("slow", "fast")]
ANSWER = {"work": steady(400), "idle": steady(100), "us": 50.0}


class Answering(Pool):
    """Answers for the first case; the second one hangs, or the machine ``lacks`` something."""

    lacks = False

    def run(
        self, tasks: Iterable[Task], program: Any, folder: Path, on_result: Callable[[TaskResult], None] = print
    ) -> Any:
        if self.lacks:
            raise CapabilityError("no GPU", "add one")
        names = [task.name for task in tasks]
        results = [TaskResult(names[0], "ok", data=ANSWER), TaskResult(names[1], "failed", Hang(60.0))]
        for result in results:
            on_result(result)
        return results


@pytest.mark.parametrize("lacks", [False, True])
def test_every_case_has_facts_or_a_cause(lacks: bool, tmp_path: Path) -> None:
    log: list[str] = []
    workers = Answering()
    workers.lacks = lacks
    context = replace(staged.context(tmp_path, say=log.append), workers=workers)
    energy = {f.subject.case: f for f in measure(context, child_cases(context, PAIRS)) if f.name == "energy"}
    if lacks:
        assert {f.detail for f in energy.values()} == {INCAPABLE("no GPU", "add one")}
        return
    assert energy[Case("slow", "mission")].value == pytest.approx(20) and energy[
        Case("fast", "mission")
    ].detail == Hang(60.0)
    assert "slow/mission: 20 mJ, 400 W" in log[0] and "fast/mission: " in log[1]
    record = factory.record(SUITE)
    told = replace(record, facts=Facts([*record.facts, *energy.values()]))
    table = text_tables.ladder(told)
    assert "mJ" in table and " 20.000" in table and "mJ" not in text_tables.ladder(record)
    (mission, *_) = roofline_page.Roofline(book_of(told)).shapes
    assert mission.drawn is not None
    joules = {m["variant"]: m["mJ per call"] for m in marks(mission.drawn) if m["kernel"] is None}
    assert joules["slow"] == pytest.approx(20) and joules["fast"] is None, "the hover tells what was recorded"
    recorded = energy_page.page(book_of(factory.bare_record(SUITE, energy.values())))
    assert recorded is not None and recorded.below == "roofline"
    cells = [cell.text for row in recorded.view["rows"] for cell in row]
    assert "20.00" in cells and cells.count("unmeasured") >= 4


def test_a_run_without_energy_has_no_table() -> None:
    assert energy_page.page(book_of(factory.bare_record(SUITE))) is None
