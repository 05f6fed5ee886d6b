"""The sets of tensors that timed calls rotate through: bounded copies, and other values, known by their seeds."""

from __future__ import annotations

import pytest

from flashcore.runner.guarded import Outputs
from flashcore.runner.problem_file import load_problem
from flashcore.stages.bench import sets
from flashcore.stages.bench.sets import Sets
from tests import update_cases
from tests.host_timer import HostTimer
from tests.softmax_cases import ROOT, case


def test_the_copies_of_what_is_written_in_place_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load_problem(update_cases.ROOT, "problem.py")
    made = Sets(HostTimer(), update_cases.case("right"), problem, "cpu")
    assert len(made.copies) == 100 and made.restored is not None and made.restored.resident == 2
    made.copies[3]["c"].fill_(7)
    for i in range(4):
        made.restored.restore(i)
    assert made.copies[3]["c"].equal(made.inputs[1]["c"]) and not made.copies[4]["c"].equal(made.inputs[0]["c"])
    monkeypatch.setattr(sets, "_BYTES_OF_COPIES", 5 * 7 * 4 * 30)
    assert len(Sets(HostTimer(), update_cases.case("right"), problem, "cpu").copies) == 30
    without = Sets(HostTimer(), case("right"), load_problem(ROOT, "problem.py"), "cpu")
    assert (without.copies, without.restored) == ([], None)


def test_sets_hold_other_values_than_before_and_know_their_seeds() -> None:
    torch = pytest.importorskip("torch")
    problem = load_problem(ROOT, "problem.py")
    sets = Sets(HostTimer(), case("right"), problem, "cpu")
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
    sets = Sets(HostTimer(), case("right"), problem, "cpu")
    before = [inputs["x"].clone() for inputs in sets.inputs]
    sets.renew()
    assert all(torch.equal(inputs["x"], one) for inputs, one in zip(sets.inputs, before, strict=True))
