"""Check finds what is planted: each fault of the stand-in suite, run in real child processes on the CPU."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from flashcore.errors import UsageError
from flashcore.model.record import CaseOutcome, Facts, StageResult, Subject
from flashcore.stages.check import check
from flashcore.stages.check.accuracy import Errors, differing, errors, judge, over_class, ulp
from flashcore.worker.kernel_call import GUARD_BYTES, Case, Guarded, guard_inputs, load_problem
from flashcore.worker.supervisor import Journal, Task
from tests.softmax_cases import case

FAULTS = {
    "wrong_scale": "(2 × the emulation of fp16_out + 1 ulp), at [",
    "far_off": "is beyond the problem's fence of 0.06",
    "nan": "out: 1 of 222 elements not finite, the first at [1, 2]: expected",
    "unwritten": "out: 37 of 222 elements never written, the first at [5, 0]",
    "past_the_end": "out-of-bounds write: 16 bytes written past its last element",
    "before_the_start": "out-of-bounds write: 2 bytes written before its first element, the nearest 1 bytes off",
    "reads_beyond": "not finite",
    "writes_input": "x: an input was written to",
    "random_bits": "of 200 differs from the first in 1 of 222 elements",
    "raises": "RuntimeError: invalid configuration argument",
    "poisons": "an illegal memory access was encountered",
    "exits": "exit code 9: ",
    "hangs": "hang?",
    "silent": "torch.library.opcheck: ",
    "absent": "expected the operator flashcore_softmax::absent, found none",
}
PEER_FAULTS = {
    "wrong": "is beyond the problem's fence",
    "misshapen": "expected shape [6, 37], found [222]",
    "none_such": "expected a function none_such, found None",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageResult, list[str]]:
    """One stage with everything in it: the faults among the sound, so that each can do its worst."""
    cases = [case("right"), *(case(name) for name in FAULTS), case("also_right")]
    cases += [case(name, peer=True) for name in ("library", "rough", *PEER_FAULTS)]
    cases.append(case("right", "wide", columns=300))
    lines: list[str] = []
    folder = tmp_path_factory.mktemp("check")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        found = check.run(cases, folder, time_limit=6.0, device="cpu", repeats=200, progress=lines.append)
    again = check.run(cases, folder, time_limit=6.0, device="cpu", repeats=200, progress=lines.append)
    assert again == found, "what is answered is not run again"
    assert [f"{o.variant}/{o.shape}" for o in found.outcomes] == [c.name for c in cases]
    return found, lines


def outcome(result: StageResult, name: str) -> CaseOutcome:
    return next(o for o in result.outcomes if o.case == name)


@pytest.mark.parametrize("name", ["right/small", "also_right/small", "library/small", "rough/small", "right/wide"])
def test_what_is_right_passes(result: tuple[StageResult, list[str]], name: str) -> None:
    found = outcome(result[0], name)
    assert (found.status, found.reason) == ("ok", "")


@pytest.mark.parametrize(("name", "reason"), [*FAULTS.items(), *PEER_FAULTS.items()])
def test_what_is_wrong_fails_and_says_why(result: tuple[StageResult, list[str]], name: str, reason: str) -> None:
    found = outcome(result[0], f"{name}/small")
    assert found.status == "failed"
    assert reason in found.reason


def test_reason_names_seed_and_kind(result: tuple[StageResult, list[str]]) -> None:
    reason = outcome(result[0], "wrong_scale/small").reason
    assert "on seed 0, kind normal" in reason
    assert "expected 0." in reason and "found 0." in reason


def test_facts(result: tuple[StageResult, list[str]]) -> None:
    facts = Facts(result[0].facts)

    def value(name: str, variant: str) -> float | None:
        return facts.number(name, Subject(variant, shape="small"))

    # What is rounded as the class rounds has its error exactly.
    assert value("max_error_over_class", "also_right") == 1.0
    assert value("frobenius_over_class", "also_right") == 1.0
    error = value("max_error", "right")
    assert error is not None and 0 < error < 1e-3
    # A failing case keeps its errors; 2 % off is far beyond the class while well within the fence.
    wrong = value("frobenius_error", "wrong_scale")
    assert wrong == pytest.approx(0.02, rel=0.05)
    ratio = value("frobenius_over_class", "rough")
    assert ratio is not None and ratio > 10
    for name in ("nan", "exits", "hangs"):
        fact = facts.get("max_error", Subject(name, shape="small"))
        assert fact is not None and fact.value is None and fact.note
    assert "found nan on seed" in str(facts.get("max_error", Subject("nan", shape="small")))


def test_progress_is_a_line_a_case(result: tuple[StageResult, list[str]]) -> None:
    found, lines = result
    assert len(lines) == len(found.outcomes)
    assert "right/small: right" in lines


def test_unknown_kind(tmp_path: Path) -> None:
    payload = {"case": case("right").to_json(), "device": "cpu", "kinds": ["odd"], "repeats": 1, "opcheck": False}
    with pytest.raises(UsageError, match="expected some of normal, large, found odd"):
        check._perform(Task("right/small", payload), Journal(tmp_path / "journal.jsonl"))


# --- the parts ----------------------------------------------------------------------------------


def test_case_survives_json() -> None:
    one = case("right")
    assert Case.from_json(one.to_json()) == one


def test_ulp() -> None:
    assert ulp(1.0, torch.float16) == 2**-10
    assert ulp(1.99, torch.float16) == 2**-10
    assert ulp(2.0, torch.float16) == 2**-9
    assert ulp(0.0, torch.float16) == 2**-24  # the smallest subnormal
    assert ulp(1.0, torch.bfloat16) == 2**-7
    assert ulp(100.0, torch.int32) == 1.0


def test_errors_are_those_of_the_finite_part() -> None:
    reference = torch.tensor([1.0, -2.0, math.inf], dtype=torch.float64)
    found = errors(torch.tensor([1.0, -2.5, math.inf], dtype=torch.float16), reference)
    assert (found.max, found.mean, found.at) == (0.5, 0.25, (1,))
    assert found.frobenius == pytest.approx(0.5 / math.sqrt(5))
    assert (found.expected, found.found) == (-2.0, -2.5)


def test_nan_is_never_within_a_limit() -> None:
    reference = torch.zeros(4, dtype=torch.float64)
    own = errors(torch.tensor([0, math.nan, 0, 0], dtype=torch.float16), reference)
    sound = errors(torch.zeros(4, dtype=torch.float16), reference)
    assert math.isnan(own.max)
    assert len(judge(own, sound, "class", {"max": 1.0, "mean": 1.0}, peer=False)) == 4


def test_an_emulation_without_error_is_no_division_by_zero() -> None:
    exact = Errors(0.0, 0.0, 0.0, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, found=1.0)
    assert over_class(exact, exact) == (0.0, 0.0)
    off = Errors(2**-10, 2**-10, 2**-10, ulp=2**-10, norm=1.0, at=(0,), expected=1.0, found=1.0)
    assert over_class(off, exact) == (2.0, 2.0)
    assert judge(off, exact, "class", {"max": 1.0, "mean": 1.0}, peer=False) == []


def test_differing_compares_bits() -> None:
    a = torch.tensor([0.0, math.nan, 1.0])
    assert differing(a, torch.tensor([-0.0, math.nan, 1.0])).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_poison_is_nan_of_every_type(dtype: str) -> None:
    guard = Guarded((3, 5), dtype, "cpu")
    assert guard.tensor.double().isnan().all()
    assert guard.unwritten().all()
    assert guard.tensor.data_ptr() % 16 == 0
    assert guard.damage() == ""
    guard.tensor.zero_()
    assert not guard.unwritten().any()


def test_inputs_lie_between_nan() -> None:
    x = torch.ones(2, 3)
    copy = guard_inputs({"x": x, "scale": 2.0})
    assert copy["scale"] == 2.0
    assert torch.equal(copy["x"], x)
    beside = copy["x"].as_strided((GUARD_BYTES // 4,), (1,), copy["x"].storage_offset() + 6)
    assert beside.isnan().all()


def test_a_problem_that_lacks_parts(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text("KINDS = ()\ndef work(params): return {}\n")
    with pytest.raises(UsageError, match="found no make_inputs, reference, emulate, TOLERANCES, FENCE"):
        load_problem(tmp_path, "problem.py")
    with pytest.raises(UsageError, match="expected a Python file"):
        load_problem(tmp_path, "other.py")
