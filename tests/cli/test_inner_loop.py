"""The four answers of the inner loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.cli import inner_loop
from flashcore.model.case import Case
from flashcore.model.causes import MESSAGE
from flashcore.model.record import Record
from tests import factory
from tests.support.judged import judged

OLD = "20260101T000000Z-0000"


def answers(record: Record, previous: Record | None = None, variant: str = "fast") -> str:
    return "\n".join(inner_loop.answers(judged(record), previous, variant))


def test_four_answers_of_a_good_change() -> None:
    previous = factory.record(id=OLD, times={"fast": 50.0})
    text = answers(factory.record(times={"fast": 40.0}), previous)
    assert "1 correct?   yes, on 2 shapes; error at most 1.10 × the rounding error of its tolerance class" in text
    assert f"against run {OLD}" in text
    assert "faster" in text.split("2 faster?")[1].splitlines()[0]
    assert "faster than the parent slow" in text
    assert "× its floor" in text
    assert "waiting for the block's other warps at a barrier 4 %" in text and "no advice for waiting" in text
    assert "4 budgets?   none failed" in text


@pytest.mark.parametrize("code", ["code", "another"])
def test_a_change_of_time_without_a_change_of_code_says_so(code: str) -> None:
    record = factory.record()
    keys = {name: replace(key, code=f"{code}-x") for name, key in record.keys.items()}
    before = replace(factory.record(id=OLD), keys={name: replace(key, code="code-x") for name, key in keys.items()})
    assert ("but it is the same code" in answers(replace(record, keys=keys), before)) is (code == "code")


def test_a_wrong_answer_comes_first() -> None:
    record = factory.record()
    bad = factory.outcome("fast", "mission", "check", "failed", "max error 0.5")
    kept = tuple(o for o in record.outcomes if (o.case, o.stage) != (Case("fast", "mission"), "check"))
    text = answers(replace(record, outcomes=(*kept, bad)))
    assert "NO, wrong on 1 of 2 shapes: mission: max error 0.5" in text


def test_a_broken_promise_and_what_moved() -> None:
    suite = factory.suite(budgets=[factory.budget("registers", maximum=90)])
    old = factory.fact("registers", 88, "fast", arch="sm_89", kernel="fast_kernel")
    text = answers(factory.record(suite), factory.record(suite, [old], id=OLD))
    assert "3 FAILED" in text
    assert "failed: registers_limit on fast/fast_kernel (sm_89): registers 96, expected: ≤ 90" in text
    assert "changed: worse     registers 88 → 96  fast/fast_kernel (sm_89)" in text


def test_a_shape_that_was_not_chosen_has_not_vanished() -> None:
    work = [factory.fact("formula_flop", 1 << n, "fast", shape=s) for n, s in enumerate(("mission", "huge"))]
    plan = [factory.fact("workspace_bytes", n, "fast", arch="sm_90a", shape="huge") for n in (8, 16)]
    before = factory.record(facts=[*work, plan[0]], id=OLD)
    assert "huge" not in answers(factory.record(facts=[work[0], plan[0]]), before)
    assert "workspace_bytes 8 B → 16 B (huge)  fast (sm_90a)" in answers(
        factory.record(facts=[work[0], plan[1]]), before
    )
    more = factory.fact("formula_flop", 7, "fast", shape="mission")
    assert "changed: changed   formula_flop 1 → 7 (mission)  fast" in answers(factory.record(facts=[more]), before)


def test_nothing_measured_is_said_and_not_guessed() -> None:
    text = answers(factory.bare_record())
    assert "unmeasured: it was not checked" in text
    assert text.count("unmeasured") >= 3
    assert "yes" not in text


def test_a_run_on_another_gpu_is_no_comparison() -> None:
    previous = factory.record(id=OLD, environment=factory.environment(gpu="NVIDIA L4"), times={"fast": 80.0})
    text = answers(factory.record(), previous)
    assert "no earlier run to compare with: measured on NVIDIA L4" in text
    assert "than before" not in text


def test_a_reference_has_answers_too() -> None:
    text = answers(factory.record(), variant="cudnn")
    assert "yes, on 2 shapes" in text
    assert "none failed; 0 passed" in text


def test_a_ratio_without_an_interval_says_why() -> None:
    text = answers(replace(factory.record(), raw_samples={}), factory.record(id=OLD))
    runs = "(no interval: the times were taken in different runs) than before"
    samples = "faster than the parent slow (no interval: the samples of one of the times were not recorded)"
    assert runs in text and samples in text


def test_a_compilers_message_is_one_line_of_the_answer() -> None:
    message = "fast.cu(24): error: expected an identifier\n    const = 1;\n2 errors detected"
    record = factory.record()
    failed = tuple(replace(a, status="failed", cause=MESSAGE(message)) for a in record.artifacts if a.variant == "fast")
    text = answers(replace(record, artifacts=failed))
    assert "fast.cu(24): error: expected an identifier" in text
    assert "2 errors detected" not in text
