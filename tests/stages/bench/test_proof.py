"""Timed calls did their work: kernels that save it are found by the answer of a mode's last call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashcore.model.record import StageResult
from flashcore.model.settings import Bench
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.bench import bench
from flashcore.stages.bench.timing import timer_for
from tests import update_cases
from tests.softmax_cases import case
from tests.support import staged

pytestmark = pytest.mark.usefixtures("forked")

LAZY = {
    "knows_tensors": r"a timed call returned a wrong answer: out: 222 of 222 elements not .*, isolated, seed 1000",
    "stops": r"a timed call returned a wrong answer: out: 222 of 222 elements not finite",
    "keeps_answers": r"a timed call returned a wrong answer: max error .* expected",
}


def timed(folder: Path, cases: list[KernelCall]) -> StageResult:
    return bench.run(staged.context(folder, "right", bench=Bench(samples=12, max_samples=20)), cases)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> StageResult:
    cases = [case(v) for v in ("right", *LAZY)] + [case("library", reference=True)]
    return timed(tmp_path_factory.mktemp("bench"), cases)


def test_honest_calls_are_timed(stage: StageResult) -> None:
    outcomes = {o.variant: o for o in stage.outcomes}
    assert {v for v, o in outcomes.items() if o.status == "ok"} == {"right", "library"}
    notes = {f.name: f.note for f in stage.facts if f.subject.variant == "right"}
    for mode in ("isolated", "back_to_back", "cold", "eager"):
        assert "the last answer is right" in notes[f"{mode}_p50"]


@pytest.mark.parametrize(("variant", "reason"), LAZY.items())
def test_a_kernel_that_saves_its_work_is_a_failure_and_never_a_rank(
    stage: StageResult, variant: str, reason: str
) -> None:
    (outcome,) = [o for o in stage.outcomes if o.variant == variant]
    assert outcome.status == "failed" and re.search(f"^void: .*{reason}", outcome.reason), outcome.reason
    assert not [f for f in stage.facts if f.subject.variant == variant]


#: Of kernels that write what they read; `strict` and `in_place` fail on what an earlier call left.
UPDATES = {
    "right": "",
    "strict": "",
    "ignores_beta": "a timed call returned a wrong answer: max error .* expected",
    "stops": "a timed call returned a wrong answer: max error .* expected",
    "knows_tensors": "a timed call returned a wrong answer: max error .* expected",
    "keeps_answers": "a timed call returned a wrong answer: max error .* expected",
    "in_place": "",
    "apart": "",
    "no_beta": "a timed call returned a wrong answer",
}


def test_every_timed_call_of_a_kernel_that_writes_what_it_reads_starts_from_known_content(tmp_path: Path) -> None:
    cases = [update_cases.case(v, reference=v in ("in_place", "apart", "no_beta")) for v in UPDATES]
    stage = timed(tmp_path, cases)
    for outcome in stage.outcomes:
        reason = UPDATES[outcome.variant]
        assert (outcome.status == "ok") is (reason == ""), outcome
        assert re.search(reason, outcome.reason), outcome


def test_a_process_has_one_timer() -> None:
    assert timer_for("cpu") is timer_for("cpu")
