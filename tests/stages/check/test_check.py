"""Check finds what is planted: each fault of the stand-in suite, run in real child processes on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.machine.isolated import isolated
from flashcore.model.case import Case
from flashcore.model.cause import as_json, from_json
from flashcore.model.causes import MESSAGE, NOT_FINITE, WrongAnswer, WrongElements
from flashcore.model.record import CaseOutcome, CaseSubject, Facts, StageResult
from flashcore.model.settings import Check, Limits
from flashcore.runner.journal import Journal, Task, TaskResult
from flashcore.runner.kernel_call import KernelCall, Operator
from flashcore.runner.queue import Pool
from flashcore.stages.check import check, child
from tests import update_cases
from tests.softmax_cases import case
from tests.support import staged

pytestmark = pytest.mark.usefixtures("forked")

FAULTS = {
    "wrong_scale": "(2 × the emulation of fp16_out + 1 ulp), at [",
    "far_off": "is beyond the problem's fence of 0.06",
    "no_maximum": "expected 0.00586792, found nan, on seed 0, kind shifted",
    "nan": "out: 1 of 222 elements not finite, the first at [1, 2]: expected",
    "unwritten": "out: 37 of 222 elements never written, the first at [5, 0]",
    "past_the_end": "out-of-bounds write: 16 bytes written past its last element",
    "far_past_the_end": "out-of-bounds write: 2 bytes written past its last element, the nearest 16383 bytes away",
    "writes_beside_input": "x: out-of-bounds write next to an input: 4 bytes written past its last element",
    "before_the_start": "out-of-bounds write: 2 bytes written before its first element, the nearest 1 bytes away",
    "reads_beyond": "not finite",
    "writes_input": "x: an input was written to",
    "random_bits": "differ in 1 of 222 elements: a race",
    "refuses_mutely": "out, strided: expected an answer, or an error naming it: RuntimeError: cannot",
    "takes_anything": "x, strided: accepted, but the answer is wrong: out: 222 of 222 elements not finite",
    "raises": "RuntimeError: invalid configuration argument",
    "poisons": "an illegal memory access was encountered",
    "exits": "exit code 9: ",
    "hangs": "hang?",
    "silent": "torch.library.opcheck: ",
    "absent": "expected the operator flashcore_softmax::absent, found none",
}
REFERENCE_FAULTS = {
    "rough": "(2 × the emulation of fp16_out + 1 ulp), at [",
    "wrong": "is beyond the problem's fence",
    "misshapen": "expected shape [6, 37], found [222]",
    "none_such": "expected a function none_such, found None",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageResult, list[str]]:
    """One stage with everything in it: the faults among the sound, so that each can do its worst."""
    cases = [case("right"), *(case(name) for name in FAULTS), case("also_right"), case("refuses")]
    cases += [case(name, reference=True) for name in ("library", "overflows", *REFERENCE_FAULTS)]
    cases += [case(name, "wide", columns=300) for name in ("right", "hangs")]
    cases = [c if c.is_reference or c.variant == "right" else replace(c, repeats=300) for c in cases]
    lines: list[str] = []
    folder = tmp_path_factory.mktemp("check")
    chosen = Check(repeats=200, children=1, limits=Limits(time_limit=15.0, batch=1024))
    context = staged.context(folder, check=chosen, say=lines.append)
    result = check.run(context, cases)
    again = check.run(context, cases)
    assert again == result, "what is answered is not run again"
    assert [f"{o.variant}/{o.shape}" for o in result.outcomes] == [c.name for c in cases]
    return result, lines


def outcome(result: StageResult, name: str) -> CaseOutcome:
    return next(o for o in result.outcomes if str(o.case) == name)


@pytest.mark.parametrize(
    "name", ["right/small", "also_right/small", "refuses/small", "library/small", "overflows/small", "right/wide"]
)
def test_what_is_right_passes(result: tuple[StageResult, list[str]], name: str) -> None:
    actual = outcome(result[0], name)
    assert (actual.status, actual.reason) == ("ok", "")


@pytest.mark.parametrize(("name", "reason"), [*FAULTS.items(), *REFERENCE_FAULTS.items()])
def test_what_is_wrong_fails_and_says_why(result: tuple[StageResult, list[str]], name: str, reason: str) -> None:
    actual = outcome(result[0], f"{name}/small")
    assert actual.status == "failed"
    assert reason in actual.reason


def test_reason_names_seed_and_kind(result: tuple[StageResult, list[str]]) -> None:
    reason = outcome(result[0], "wrong_scale/small").reason
    assert "on seed 0, kind normal" in reason
    assert "expected 0." in reason and "found 0." in reason


def test_a_kernel_that_writes_out_of_bounds_is_not_called_again(result: tuple[StageResult, list[str]]) -> None:
    for name in ("past_the_end", "far_past_the_end", "before_the_start", "writes_beside_input"):
        reason = outcome(result[0], f"{name}/small").reason
        assert "on seed 0, kind normal" in reason and "kind large" not in reason and "seed 1" not in reason


@pytest.mark.parametrize(
    ("name", "first", "pattern"),
    [("unwritten", (5, 0), "last_tile"), ("nan", (1, 2), "one_element"), ("far_off", (0, 0), "all")],
)
def test_the_wrong_elements_are_recorded(
    result: tuple[StageResult, list[str]], name: str, first: tuple[int, int], pattern: str
) -> None:
    cause = outcome(result[0], f"{name}/small").cause
    assert isinstance(cause, WrongAnswer)
    elements = cause.elements
    assert isinstance(elements, WrongElements) and (elements.output, elements.total) == ("out", 222)
    assert (elements.first, elements.pattern) == (first, pattern)
    assert from_json(json.loads(json.dumps(as_json(cause)))) == cause


def test_a_race_has_no_wrong_element(result: tuple[StageResult, list[str]]) -> None:
    cause = outcome(result[0], "random_bits/small").cause
    assert isinstance(cause, WrongAnswer) and cause.elements is None


def test_a_variant_that_hung_is_skipped_on_its_other_shapes(result: tuple[StageResult, list[str]]) -> None:
    actual = outcome(result[0], "hangs/wide")
    assert actual.status == "skipped"
    assert actual.reason.startswith("skipped: hung on small: no answer within 15 s")


def test_facts(result: tuple[StageResult, list[str]]) -> None:
    facts = Facts(result[0].facts)

    def value(name: str, variant: str) -> float | None:
        return facts.number(name, CaseSubject(Case(variant, "small")))

    # What is rounded as the class rounds has its error exactly.
    assert value("max_error_over_class", "also_right") == 1.0
    assert value("frobenius_over_class", "also_right") == 1.0
    error = value("max_error", "right")
    assert error is not None and 0 < error < 1e-3
    # Goals about typical inputs are judged on those alone; a worst case may be of another kind.
    normal, worst = value("normal_max_error", "also_right"), value("max_error", "also_right")
    assert normal is not None and worst is not None and 0 < normal < worst
    assert facts.get("max_error", CaseSubject(Case("also_right", "small"))).note.endswith("kind large")  # type: ignore[union-attr]
    # Kinds at the edges are judged, but no fact about errors is of them.
    assert {f.note.rpartition(" ")[2] for f in result[0].facts if f.value is not None and "over" not in f.name} <= {
        "normal",
        "large",
    }
    # A failing case keeps its errors; 2 % off is far beyond the class while well within the fence.
    wrong = value("frobenius_error", "wrong_scale")
    assert wrong == pytest.approx(0.02, rel=0.05)
    ratio = value("frobenius_over_class", "rough")
    assert ratio is not None and ratio > 10
    for name in ("nan", "exits", "hangs"):
        fact = facts.get("max_error", CaseSubject(Case(name, "small")))
        assert fact is not None and fact.value is None and fact.note
    infinite = facts.get("max_error", CaseSubject(Case("nan", "small")))
    assert infinite and infinite.cause and infinite.cause.code == NOT_FINITE.code


def test_progress_is_a_line_a_case(result: tuple[StageResult, list[str]]) -> None:
    actual, lines = result
    listed = [line.split(" ", 2)[2] for line in lines]  # after "check 3/28"
    assert sorted(line.partition(":")[0] for line in listed) == sorted(str(o.case) for o in actual.outcomes)
    assert any(line.startswith("right/small: right") for line in listed)


def test_an_operator_that_was_found_right_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []
    wrong: list[str] = []

    def ran(_: Pool, tasks: list[Task], *__: object) -> list[TaskResult]:
        requested.extend(t.name for t in tasks if t.payload["opcheck"])
        return [
            TaskResult(t.name, "ok", None, {"complaints": wrong, "out_of_bounds": False, "worst": {}}) for t in tasks
        ]

    monkeypatch.setattr(Pool, "run", ran)
    cases = [replace(case("right", s), target=Operator("r.so", "same code")) for s in ("small", "wide")]

    def seen(cases: list[KernelCall], opcheck: bool = True, device: str = "cpu") -> list[str]:
        requested.clear()
        context = staged.context(tmp_path, check=Check(opcheck=opcheck), device=device)
        check.run(context, cases)
        return requested

    wrong.append("no answer")
    assert seen(cases) == seen(cases) == ["right/small"], "what was found wrong is asked again"
    wrong.clear()
    assert seen(cases) == ["right/small"]
    assert seen(cases) == []
    assert seen([replace(c, target=Operator("r.so", "other code")) for c in cases], opcheck=False) == []
    assert seen([replace(c, target=Operator("r.so", "other code")) for c in cases]) == ["right/small"]
    assert seen([replace(c, target=Operator("r.so")) for c in cases]) == ["right/small"], "no other operator's"
    assert seen([replace(c, target=Operator("r.so")) for c in cases]) == ["right/small"]
    assert seen(cases, device="cuda") == ["right/small"]
    others = [replace(c, variant=v, target=Operator(None, v)) for v in ("one", "two") for c in cases]
    assert seen(others) == ["one/small"], "both are generated from one schema"
    others[2:] = [replace(c, arguments=c.arguments[::-1]) for c in others[2:]]
    assert seen(others) == ["two/small"], "the first is remembered"
    assert seen([replace(c, target=Operator("r.so")) for c in others]) == ["one/small", "two/small"]
    monkeypatch.setattr(check, "version_of", lambda _: "another")
    assert seen(cases) == ["right/small"]


@pytest.mark.parametrize("status", ["ok", "failed", "skipped"])
def test_where_the_first_of_a_schema_is_wrong_the_right_ones_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: Any
) -> None:
    wrong = {"one/small": "max error", "three/small": "max error", "four/small~opcheck": "torch.library.opcheck: no"}
    requested: list[str] = []

    def ran(_: Pool, tasks: list[Task], *__: object) -> list[TaskResult]:
        requested.extend(t.name for t in tasks if t.payload["opcheck"])
        bad = [
            TaskResult(
                t.name, status, MESSAGE("why"), {"complaints": [wrong[t.name]], "out_of_bounds": False, "worst": {}}
            )
            for t in tasks
            if t.name in wrong
        ]
        by_name = {r.name: r for r in bad}
        return [
            by_name.get(t.name)
            or TaskResult(t.name, "ok", None, {"complaints": [], "out_of_bounds": False, "worst": {}})
            for t in tasks
        ]

    monkeypatch.setattr(Pool, "run", ran)
    made = [replace(case("right"), variant=v, target=Operator(None, v)) for v in ("one", "two", "three", "four")]
    context = staged.context(tmp_path)
    result = check.run(context, made)
    assert requested == ["one/small", "two/small~opcheck", "four/small~opcheck"]
    assert [o.status == "ok" for o in result.outcomes] == [False, True, False, False]
    requested.clear()
    check.run(context, made)
    assert requested == [], "two is remembered"
    assert check.run(context, made[:1]).outcomes[0].status != "ok" and requested == ["one/small"]


def test_unknown_kind(tmp_path: Path) -> None:
    payload = {"case": case("right").to_json(), "device": "cpu", "kinds": ["odd"], "repeats": 1, "opcheck": False}
    journal = Journal(tmp_path / "journal.jsonl")
    # Isolated, since a check records what its process opens.
    ended = isolated(60, lambda: child.perform(Task("right/small", payload), journal))
    assert "kinds: expected some of normal, large, shifted, found odd" in ended.output


#: Of the suite with a tensor that is input and output, one with strides, one that may be absent.
UPDATE_FAULTS = {
    "ignores_beta/small": "expected -5.70062, found 0.0775058, on seed 0",
    "first_call_only/small": "max error",
    "knows_tensors/small": "max error",
    "writes_input/small": "b: an input was written to",
    "writes_strided_input/small": "a: an input was written to",
    "writes_between/small": "a: out-of-bounds write next to an input: 1 elements written in its gaps",
    "past_the_end/small": "c: out-of-bounds write: 4 bytes written past its last element",
    "ignores_strides/small": "c: 21 of 35 elements not finite",
    "ignores_bias/biased": "max error",
    "no_beta/small": "max error",
}
UPDATE_RIGHT = ("right/small", "strict/small", "ignores_bias/small", "right/biased", "in_place/biased", "apart/small")


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> StageResult:
    def made(name: str) -> KernelCall:
        variant, _, shape = name.partition("/")
        return update_cases.case(
            variant, shape, bias=shape == "biased", reference=variant in ("in_place", "apart", "no_beta")
        )

    context = staged.context(tmp_path_factory.mktemp("c"), check=Check(children=1))
    return check.run(context, [made(name) for name in (*UPDATE_RIGHT, *UPDATE_FAULTS)])


@pytest.mark.parametrize("name", UPDATE_RIGHT)
def test_each_call_starts_from_the_inputs_content(updates: StageResult, name: str) -> None:
    result = outcome(updates, name)
    assert (result.status, result.reason) == ("ok", "")


@pytest.mark.parametrize(("name", "reason"), UPDATE_FAULTS.items())
def test_what_is_wrong_with_a_tensor_written_in_place_is_told(updates: StageResult, name: str, reason: str) -> None:
    result = outcome(updates, name)
    assert result.status == "failed" and reason in result.reason, result.reason


class Asked(Pool):
    """Runs nothing, and keeps the tasks."""

    def run(self, tasks: Iterable[Task], *_: object, **__: object) -> list[TaskResult]:
        self.tasks = list(tasks)
        return [TaskResult(task.name, "failed", MESSAGE("not run")) for task in self.tasks]


@pytest.mark.parametrize(("shapes", "groups"), [(1, 2), (6, 6)])
def test_a_shapes_cases_stay_together_if_there_are_enough_others(tmp_path: Path, shapes: int, groups: int) -> None:
    workers = Asked()
    context = staged.context(tmp_path, check=Check(children=4, opcheck=False), workers=workers)
    check.run(context, [case(f"v{i}", f"s{s}") for s in range(shapes) for i in range(30)])
    assert len({task.group for task in workers.tasks}) == groups
    assert all(len({t.shape for t in workers.tasks if t.group == task.group}) == 1 for task in workers.tasks)
