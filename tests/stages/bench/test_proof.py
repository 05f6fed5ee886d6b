"""Timed calls did their work: kernels that save it are found by the answer of a mode's last call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashcore.model.record import StageResult
from flashcore.runner.guarded import Outputs
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.problem_file import load_problem
from flashcore.stages.bench import case_times, proof, rotation
from flashcore.stages.bench.timing import timer_for
from flashcore.stages.settings import Bench
from tests import update_cases
from tests.host_timer import HostTimer
from tests.softmax_cases import ROOT, case
from tests.support import staged

pytestmark = pytest.mark.usefixtures("forked")

LAZY = {
    "knows_tensors": r"a timed call returned a wrong answer: out: 222 of 222 elements not .*, isolated, seed 1000",
    "stops": r"a timed call returned a wrong answer: out: 222 of 222 elements not finite",
    "keeps_answers": r"a timed call returned a wrong answer: max error .* expected",
}


def timed(folder: Path, cases: list[KernelCall]) -> StageResult:
    return case_times.run(staged.context(folder, "right", bench=Bench(samples=12, max_samples=20)), cases, folder)


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


def test_the_copies_of_what_is_written_in_place_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load_problem(update_cases.ROOT, "problem.py")
    made = rotation.Rotation(HostTimer(), update_cases.case("right"), problem, "cpu")
    assert len(made.copies) == 100 and made.restored is not None and made.restored.resident == 2
    made.copies[3]["c"].fill_(7)
    for i in range(4):
        made.restored.restore(i)
    assert made.copies[3]["c"].equal(made.inputs[1]["c"]) and not made.copies[4]["c"].equal(made.inputs[0]["c"])
    monkeypatch.setattr(rotation, "_BYTES_OF_COPIES", 5 * 7 * 4 * 30)
    assert len(rotation.Rotation(HostTimer(), update_cases.case("right"), problem, "cpu").copies) == 30
    without = rotation.Rotation(HostTimer(), case("right"), load_problem(ROOT, "problem.py"), "cpu")
    assert (without.copies, without.restored) == ([], None)


def test_sets_hold_other_values_than_before_and_know_their_seeds() -> None:
    torch = pytest.importorskip("torch")
    problem = load_problem(ROOT, "problem.py")
    sets = proof.Sets(HostTimer(), case("right"), problem, "cpu")
    outputs = Outputs({"out": ((6, 37), "float16")})
    for _ in range(3):
        before = [inputs["x"].clone() for inputs in sets.inputs]
        sets.renew()
        for i, inputs in enumerate(sets.inputs):
            assert not any(torch.equal(inputs["x"], one) for one in before)
            seed, _ = sets.complaints(case("right"), i, outputs)
            assert torch.equal(inputs["x"], problem.make_inputs({"R": 6, "C": 37}, seed, "cpu")["x"])


def test_where_numbers_change_with_the_seed_each_set_keeps_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    problem = load_problem(ROOT, "problem.py")
    make = problem.make_inputs
    monkeypatch.setattr(problem, "make_inputs", lambda p, seed, *rest: {**make(p, seed, *rest), "scale": 1.0 + seed})
    sets = proof.Sets(HostTimer(), case("right"), problem, "cpu")
    before = [inputs["x"].clone() for inputs in sets.inputs]
    sets.renew()
    assert all(torch.equal(inputs["x"], one) for inputs, one in zip(sets.inputs, before, strict=True))


def test_a_process_has_one_timer() -> None:
    assert timer_for("cpu") is timer_for("cpu")
