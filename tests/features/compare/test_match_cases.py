"""The cases of two revisions that have the same code."""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path

import pytest

from flashcore.explain.comparison import Difference
from flashcore.features.compare import match_cases
from flashcore.model.case import Case
from flashcore.model.cause import Cause
from flashcore.model.causes import PLAN_CRASHED, PlanRefused
from flashcore.model.record import Built, CaseSubject, Launch, Plan
from flashcore.model.suite import PythonCallable
from tests import factory

SUITE = factory.record().suite
VARIANT, SHAPE = SUITE.variants["fast"], SUITE.shapes["mission"]


def side(host: str = "host", **launched: object) -> match_cases.BuiltSuite:
    """One revision's build of one variant."""
    artifact = factory.artifact("fast", "sm_90a", host=host, cxx="g++")
    launch = dataclasses.replace(Launch("k", (1, 1, 1), (64, 1, 1), (1, 1, 1), 0), **launched)  # type: ignore[arg-type]
    built = Built("13.0.88", (artifact,), (Plan("fast", "mission", (launch,), 0),))
    return match_cases.BuiltSuite(None, built)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "same"),
    [
        (side(), True),
        (side(host="another"), False),  # a doubled scale in the launcher
        (side(programmatic=True), False),
        (side(cooperative=True), False),
        (side(cluster=(2, 1, 1)), False),
        (side(dynamic_smem=16), False),
    ],
)
def test_the_same_code_has_the_same_host_code_and_launch(after: match_cases.BuiltSuite, same: bool) -> None:
    assert match_cases._same_code(side(), after, VARIANT, VARIANT, SHAPE) is same


def built(*artifacts: object, cause: Cause | None = None) -> match_cases.BuiltSuite:
    plan = Plan("fast", "mission", (), 0, cause)
    job = types.SimpleNamespace(gpu_arch="sm_90a", suite=SUITE)
    return match_cases.BuiltSuite(job, Built("13.0.88", tuple(artifacts), (plan,)))  # type: ignore[arg-type]


OK = factory.artifact("fast", "sm_90a", host="host", cxx="g++")
BROKEN = factory.artifact("fast", "sm_90a", "failed", "fast.cu(3): error")
ABSENT = factory.artifact("fast", "sm_90a", "unsupported", "no TMA")


@pytest.mark.parametrize(
    ("after", "outcome", "reason"),
    [
        (built(BROKEN), "failed", "does not compile for sm_90a: fast.cu(3): error"),
        (built(ABSENT), "unsupported", "no TMA"),
        (built(), "unsupported", "not declared for sm_90a"),
        (built(factory.artifact("fast", "sm_80", "failed", "x")), "unsupported", "not declared for sm_90a"),
        (built(OK, cause=PlanRefused("too long")), "unsupported", "too long"),
        (built(OK, cause=PLAN_CRASHED(-6)), "failed", "the launch plan was killed by signal 6"),
    ],
)
def test_what_cannot_run_today(after: match_cases.BuiltSuite, outcome: str, reason: str) -> None:
    result = match_cases._pair(built(OK), after, VARIANT, [SHAPE], "main")
    assert result == Difference(CaseSubject(Case("fast", "mission")), outcome, reason=reason, shapes=("mission",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "outcome", "reason"),
    [
        (built(BROKEN), "undecided", "main: does not compile for sm_90a: fast.cu(3): error"),
        (built(ABSENT), "nothing to compare with", "main: no TMA"),
        (built(OK, cause=PlanRefused("too long")), "nothing to compare with", "main: too long"),
        (built(OK), "same code", ""),
    ],
)
def test_what_could_not_run_then(before: match_cases.BuiltSuite, outcome: str, reason: str) -> None:
    result = match_cases._pair(before, built(OK), VARIANT, [SHAPE], "main")
    assert result == Difference(CaseSubject(Case("fast", "mission")), outcome, reason=reason, shapes=("mission",))  # type: ignore[arg-type]


def test_a_reference_is_the_same_while_it_and_the_suites_python_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = {name: built() for name in ("a", "b")}
    python = {"peers.py": "old"}
    monkeypatch.setattr(match_cases, "python_of", lambda job: python if job is sides["a"].job else {"peers.py": "new"})
    one, other = factory.reference("cudnn"), factory.reference("cudnn", kind=PythonCallable("peers.py:other"))
    assert match_cases._same_code(sides["a"], sides["a"], one, one, SHAPE)
    assert not match_cases._same_code(sides["a"], sides["b"], one, one, SHAPE)
    assert not match_cases._same_code(sides["a"], sides["a"], one, other, SHAPE)
    assert not match_cases._same_code(sides["a"], sides["a"], VARIANT, one, SHAPE)


def test_builds_of_other_variants_and_without_code_say_nothing_of_the_same_code() -> None:
    def beside(*others: object) -> match_cases.BuiltSuite:
        one = side()
        return one._replace(
            built=dataclasses.replace(one.built, artifacts=(*one.built.artifacts, *others)),  # type: ignore[arg-type]
        )

    stranger = beside(factory.artifact("slow", "sm_90a"), factory.artifact("fast", "sm_80", "failed", code=""))
    assert match_cases._same_code(stranger, side(), VARIANT, VARIANT, SHAPE)


def test_the_python_of_a_suite_is_its_own_and_without_comments(tmp_path: Path) -> None:
    job = types.SimpleNamespace(suite=types.SimpleNamespace(root=str(tmp_path)))
    (tmp_path / "inner").mkdir()
    (tmp_path / ".venv").mkdir()
    for name, text in (("a.py", "x = 1  # one"), ("inner/b.py", "x = 2"), (".venv/c.py", "x = 3"), ("d.txt", "")):
        (tmp_path / name).write_text(text)
    result = match_cases.python_of(job)  # type: ignore[arg-type]
    assert sorted(result) == ["a.py", "inner/b.py"]
    (tmp_path / "a.py").write_text("# another\nx = 1")
    assert match_cases.python_of(job) == result  # type: ignore[arg-type]
    (tmp_path / "a.py").write_text("x = 4")
    assert match_cases.python_of(job) != result  # type: ignore[arg-type]
