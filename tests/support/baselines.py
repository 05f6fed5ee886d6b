"""A baseline, and records that are judged by it."""

from __future__ import annotations

from datetime import date
from typing import Any

from flashcore.gate import judge
from flashcore.gate.baseline import Baseline, save
from flashcore.gate.judge import Judgement
from flashcore.model.record import Record, Value
from flashcore.model.suite import GatePolicy, GateRule, Waiver
from tests import factory

TODAY = date(2026, 6, 1)
KERNEL: dict[str, Any] = {"arch": "sm_90a", "kernel": "fast_kernel"}


def of(*facts: Any, rules: tuple[GateRule, ...] = (), waivers: tuple[Waiver, ...] = (), **changes: Any) -> Record:
    suite = factory.suite(waivers=waivers, gate=GatePolicy(rules=rules))
    return factory.record(suite, facts, **changes)


def fact(name: str, value: Value | None) -> Any:
    return factory.fact(name, value, "fast", **KERNEL)


BEFORE = save(of(), None).baseline


def judged_by(record: Record, old: Baseline = BEFORE, **options: Any) -> Judgement:
    return judge.judge(record, today=TODAY, baseline=old, **options)


def failed(judgement: Judgement) -> list[tuple[str, str]]:
    return [(v.budget, str(v.subject)) for v in judgement.verdicts if v.status == "fail"]
