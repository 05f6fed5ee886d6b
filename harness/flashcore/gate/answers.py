"""The answers for a record's cases, with the results of its judgement."""

from __future__ import annotations

from functools import cache
from math import inf

from flashcore.explain.answer import Answer, BudgetResult, Duration, answer, duration
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.gate.expand import headroom
from flashcore.gate.judge import Judgement
from flashcore.model.case import Case
from flashcore.model.groups import grouped


class Answers:
    """The answers for each case, made once: :mod:`flashcore.explain.answer` says what they are."""

    def __init__(self, readings: Readings, judgement: Judgement) -> None:
        self.readings = readings
        self._limits = {budget.name: budget for budget in readings.record.suite.budgets}
        self._verdicts = grouped((v.subject.variant, v) for v in judgement.verdicts)
        self._row = cache(self._make_row)
        self.time = cache(self._time)
        self.of = cache(self._answer)

    def _time(self, case: Case) -> Duration:
        return duration(self._row(case.shape), case)

    def _answer(self, case: Case) -> Answer:
        return answer(self.readings, case, self.time(case), self._budgets(case))

    def _make_row(self, shape: str) -> Row:
        return Row(self.readings, self.readings.alike[shape])

    def _budgets(self, case: Case) -> tuple[BudgetResult, ...]:
        """Each budget where the case is nearest to its limit, failed ones first. Limits that need no budget are there
        only if they failed."""
        rows = []
        for v in self._verdicts.get(case.variant, ()):
            if v.subject.shape in (None, case.shape) and (v.budget in self._limits or v.status == "fail"):
                room = headroom(self._limits.get(v.budget), v.value)
                result = BudgetResult(
                    v.budget, v.subject, v.status, v.severity, v.value, v.unit, v.limit, v.fact_source, v.reason, room
                )
                rows.append(((v.status != "fail", v.severity != "limit", inf if room is None else room), result))
        nearest: dict[str, BudgetResult] = {}
        for _, result in sorted(rows, key=lambda row: row[0]):
            nearest.setdefault(result.budget, result)
        return tuple(nearest.values())
