"""Timed calls did their work: kernels that save it are found by their answers or by their time on new data."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

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
    "knows_tensors": r"a timed call returned a wrong answer: out: \d+ of 222 elements not finite.*, turn -?\d+, seed",
    "stops": r"a timed call returned a wrong answer: out: 222 of 222 elements not finite",
    "knows_values": r"µs on new data.*reuses results",
}


def timed(folder: Path, cases: list[KernelCall]) -> StageResult:
    return case_times.run(staged.context(folder, "right", bench=Bench(samples=12, max_samples=20)), cases, folder)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> StageResult:
    cases = [case(v) for v in ("right", *LAZY)] + [case("library", peer=True)]
    return timed(tmp_path_factory.mktemp("bench"), cases)


def test_honest_calls_are_timed(stage: StageResult) -> None:
    outcomes = {o.variant: o for o in stage.outcomes}
    assert {v for v, o in outcomes.items() if o.status == "ok"} == {"right", "library"}
    notes = {f.name: f.note for f in stage.facts if f.subject.variant == "right"}
    for mode in ("isolated", "back_to_back", "cold", "eager"):
        assert "2 timed answers right" in notes[f"{mode}_p50"]


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
    "knows_values": "µs on new data.*reuses results",
    "in_place": "",
    "apart": "",
    "no_beta": "a timed call returned a wrong answer",
}


def test_every_timed_call_of_a_kernel_that_writes_what_it_reads_starts_from_known_content(tmp_path: Path) -> None:
    cases = [update_cases.case(v, peer=v in ("in_place", "apart", "no_beta")) for v in UPDATES]
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
    for i in (0, 1, 1, 0):
        before = sets.inputs[i]["x"].clone()
        sets.renew(i)
        assert not torch.equal(sets.inputs[i]["x"], before)
    sets.restage(used=False)
    sets.take(1)
    assert torch.equal(sets.inputs[1]["x"], problem.make_inputs({"R": 6, "C": 37}, 1001, "cpu")["x"])


@pytest.mark.parametrize("judged", [0, 1])
def test_answers_on_new_data_are_judged_on_the_values_that_samples_get(judged: int) -> None:
    """Each other seed would need a reference answer of its own."""
    torch = pytest.importorskip("torch")
    sets = proof.Sets(HostTimer(), case("right"), load_problem(ROOT, "problem.py"), "cpu")
    sets.judged = judged
    sets.renew(0)
    renewed = sets.inputs[0]["x"].clone()
    sets.restage(used=False)
    sets.take(judged)
    assert torch.equal(sets.inputs[judged]["x"], renewed)


@pytest.mark.parametrize("large", [False, True])
def test_where_numbers_change_with_the_seed_each_set_keeps_its_values(
    monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    torch = pytest.importorskip("torch")
    problem = load_problem(ROOT, "problem.py")
    make = problem.make_inputs
    if large:
        monkeypatch.setattr(proof, "_MOST_BYTES", 100)
    else:
        monkeypatch.setattr(
            problem, "make_inputs", lambda p, seed, *rest: {**make(p, seed, *rest), "scale": 1.0 + seed}
        )
    sets = proof.Sets(HostTimer(), case("right"), problem, "cpu")
    before = sets.inputs[1]["x"].clone()
    sets.restage(used=False)
    sets.take(1)
    sets.renew(1)
    assert torch.equal(sets.inputs[1]["x"], before)


@pytest.mark.parametrize(
    ("looks", "void"),
    [
        ([(100.0, 100.0)], False),
        ([(118.0, 118.0)], False),
        ([(118.0, 101.0)] * 3, True),
        ([(300.0, 100.0)] * 3, True),
        ([(300.0, 100.0), (100.0, 100.0)], False),
        ([(300.0, 100.0), (300.0, 100.0), (100.0, 100.0)], False),
        ([(127.0, 110.0), (112.0, 100.0)], False),  # two speeds; each look alone is slow
        ([(150.0, 100.0), (130.0, 105.0), (120.0, 101.0)], True),
    ],
)
def test_a_call_that_writes_or_a_disturbance_make_slower_is_no_saved_work(
    looks: list[tuple[float, float]], void: bool
) -> None:
    """At the power limit, a call after large writes is slower on new and on seen data alike. A disturbance does not
    repeat, and every look is at data that no call has read."""
    torch = pytest.importorskip("torch")
    times = iter([time for look in looks for time in look])
    unchanged: list[list[bool]] = []
    contents: list[bytes] = []
    sets = proof.Sets(HostTimer(), case("right"), load_problem(ROOT, "problem.py"), "cpu")
    recorded = sets._values[sets._first]["x"]

    class Calls:
        outputs: ClassVar[list[Outputs]] = [Outputs({}) for _ in sets.inputs]

        def anew(self, take: Any, restage: Any, count: int) -> list[float]:
            restage()
            for i in range(count):
                take(i)
            unchanged.append([torch.equal(copy["x"], recorded) for copy in sets.inputs])
            contents.extend(copy["x"].numpy().tobytes() for copy in sets.inputs)
            return [next(times)]

        def each(self, regime: str, *, calls: bool = True) -> list[float]:
            return [0.0]

    caller = SimpleNamespace(outputs=lambda: Outputs({}), case=case("library", peer=True))
    one = proof.Proof(caller, sets, Calls())  # type: ignore[arg-type]
    one.meet_new_data()
    assert (one.void(0.5) is not None) is void
    assert next(times, None) is None
    assert not any(map(any, unchanged[::2])) and all(map(all, unchanged[1::2])), "first on new data, then on seen data"
    assert len(set(contents)) == len(looks) * len(sets.inputs) + 1, "each look is at other data"


def test_a_process_has_one_timer() -> None:
    assert timer_for("cpu") is timer_for("cpu")
