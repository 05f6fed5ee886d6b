"""Cases profiled by a stand-in for ncu."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Facts, StageResult, Subject
from flashcore.model.settings import Limits, Profile
from flashcore.runner.journal import Task
from flashcore.stages.profile import profile
from tests.conftest import TESTS

STANDIN = TESTS / "standins" / "ncu"
NAMES = ("v0/mission", "v1/mission", "v2/mission", "v3/mission", "v4/mission")
RECORDED_NS = (13024, 10112, 15744, 16416, 26400)


def case(name: str) -> Task:
    return Task(name, {"case": {}})


def subject(name: str) -> Subject:
    variant, _, shape = name.partition("/")
    return CaseSubject(Case(variant, shape))


def profiling(**options: Any) -> profile.Profiling:
    """On a stand-in for ncu; options are its own, or those of its settings and limits."""
    limited = {f.name: options.pop(f.name) for f in fields(Limits) if f.name in options}
    chosen = {f.name: options.pop(f.name) for f in fields(Profile) if f.name in options}
    settings = Profile(**chosen, limits=replace(Profile().limits, **limited))
    return profile.Profiling(**{"ncu": STANDIN, "chip": "gh100", "settings": settings, **options})


def durations(result: StageResult) -> list[float | None]:
    facts = Facts(result.facts)
    return [facts.number("ncu_duration", subject(n)) for n in NAMES]
