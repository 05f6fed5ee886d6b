"""Bench: its statistics as properties, its stage in real child processes on the CPU, its facts' honesty."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.causes import NOT_RANKED, OTHER_PROCESSES, OTHER_ROUNDS, FirstRound
from flashcore.model.record import CaseOutcome, CaseSubject, Facts, Source, StageResult
from flashcore.model.settings import Bench, Limits
from flashcore.model.suite import TIMING_MODES, TimingMode
from flashcore.runner import journal
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.queue import Pool
from flashcore.stages.bench import bench
from flashcore.stages.bench.message import CaseTimes, Series, ShapeTimes
from flashcore.stages.bench.statistics import StopRule
from tests.softmax_cases import case
from tests.support import staged

pytestmark = pytest.mark.usefixtures("forked")

# --- when to stop -------------------------------------------------------------------------------


@pytest.mark.parametrize(("cases", "milliseconds", "samples"), [(5, 9, 100), (5, 36, 84), (45, 36, 15), (45, 5, 100)])
def test_slow_calls_get_less_time_among_many(cases: int, milliseconds: float, samples: int) -> None:
    rule = bench._shared(StopRule(least=100, seconds=1.5), cases)
    taken: list[float] = []
    while not rule.enough(taken, len(taken) * milliseconds / 1e3, 1e3):
        taken.append(milliseconds * 1e3)
    assert len(taken) == samples


# --- the stage ----------------------------------------------------------------------------------

VARIANTS = ("right", "slower", "raises", "exits", "hangs_late")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageResult, list[str]]:
    """Two shapes; on the small one a variant raises, one takes the process along, one hangs while timed."""
    cases = [case(v) for v in VARIANTS] + [case("library", reference=True)]
    cases += [case(v, "wide", columns=300) for v in ("right", "slower", "hangs_late")]
    folder = tmp_path_factory.mktemp("bench")
    lines: list[str] = []

    def run() -> StageResult:
        chosen = Bench(samples=12, max_samples=20, limits=Limits(time_limit=15.0))
        return bench.run(staged.context(folder, "slower", bench=chosen, say=lines.append), cases)

    result = run()
    processes = len(list(folder.glob("bench/child-*.log")))
    assert run() == result, "what is answered is not run again"
    assert len(list(folder.glob("bench/child-*.log"))) == processes
    return result, lines


def test_faults_cost_their_own_case_alone(stage: tuple[StageResult, list[str]]) -> None:
    outcomes = {o.case: o for o in stage[0].outcomes}
    assert {str(case) for case, o in outcomes.items() if o.status == "ok"} == {
        "right/small", "slower/small", "library/small", "right/wide", "slower/wide"
    }  # fmt: skip
    assert "invalid configuration argument" in outcomes[Case("raises", "small")].reason
    assert "exit code 9" in outcomes[Case("exits", "small")].reason
    # The small shape was to be timed once more, without what took its process along: by then it had hung on the other.
    assert outcomes[Case("hangs_late", "wide")].reason.startswith("no answer within 15 s")
    assert outcomes[Case("hangs_late", "small")].status == "skipped"
    assert outcomes[Case("hangs_late", "small")].reason.startswith("skipped: hung on wide: no answer within 15 s")
    assert all(o.stage == "bench" for o in outcomes.values())


def test_progress_is_a_line_a_case(stage: tuple[StageResult, list[str]]) -> None:
    result, lines = stage
    listed = [line.split(" ", 2)[2] for line in lines]  # after "bench 3/9"
    assert sorted(line.partition(":")[0] for line in listed) == sorted(str(o.case) for o in result.outcomes)
    assert any(line.startswith("right/wide: isolated ") for line in listed)


def test_samples_are_kept_by_case_and_mode(stage: tuple[StageResult, list[str]]) -> None:
    samples = stage[0].samples
    assert len(samples) == 5 * 4
    assert all(len(v) >= (12 if k[1] == "isolated" else 10) for k, v in samples.items()), "fewer if not ranked"
    assert all(len(v) <= 20 and min(v) > 0 for v in samples.values())
    assert (Case("right", "small"), "back_to_back") in samples


def test_facts_of_a_case(stage: tuple[StageResult, list[str]]) -> None:
    facts = Facts(stage[0].facts)
    subject = CaseSubject(Case("right", "small"))
    samples = stage[0].samples[Case("right", "small"), "isolated"]
    assert facts.number("isolated_p50", subject) == pytest.approx(statistics.median(samples))
    assert facts.number("isolated_samples", subject) == len(samples)
    # A back-to-back sample is the mean of many calls.
    assert not facts.named("back_to_back_p90") and not facts.named("eager_p99")
    p99 = facts.get("isolated_p99", subject)
    assert p99 is not None and p99.value is None and "20 calls" in p99.note and "too few" in p99.note
    for mode in TIMING_MODES:
        floor = facts.get(f"{mode}_launch_floor", subject)
        assert floor is not None and floor.number is not None and "not subtracted" in floor.note
    speedup = facts.number("speedup_vs_baseline", subject)
    low, high = (facts.number(f"speedup_vs_baseline_{end}", subject) for end in ("low", "high"))
    assert speedup is not None and low is not None and high is not None
    # Of whatever was measured: on a busy machine four calls may well take as long as one.
    medians = [statistics.median(stage[0].samples[Case(v, "small"), "isolated"]) for v in ("slower", "right")]
    assert low <= speedup <= high and speedup == pytest.approx(medians[0] / medians[1])
    assert facts.number("speedup_vs_baseline", CaseSubject(Case("slower", "small"))) == 1.0
    reference = facts.get("speedup_vs_reference", subject)
    assert reference is not None and reference.note.startswith("over library")
    flops = facts.number("tflops", subject)
    assert flops == pytest.approx(5 * 6 * 37 / statistics.median(samples) / 1e6)
    # The host's clock is never passed off as events.
    assert all("host clock" in f.note for f in facts.named("isolated_p50"))


def settled(
    cases: Sequence[KernelCall],
    times: Mapping[str, dict[str, Any]],
    empty: Series | None = None,
    state: Mapping[str, Any] | None = None,
) -> list[bench.TimedCase | CaseOutcome]:
    """The parent's results from a child's message with these times by variant."""
    usual = {"samples": {}, "calls": {}, "kernel_clock": {}, "kernels": 1, "copies": 0, "launches": 1}
    usual |= {"eager_calls": 1, "seconds": 1.0, "stopped": []}
    variants = {variant: CaseTimes(**{**usual, **one}) for variant, one in times.items()}
    message = ShapeTimes(
        variants=variants, failed={}, empty=empty or {}, clock="", doubt=0.5, state=state or {}
    )  # fmt: skip
    data = json.loads(json.dumps(message.to_json()))  # as it comes out of the journal
    return [*bench.settle(journal.TaskResult("small", "ok", data=data), cases).values()]


def facts_of(cases: Sequence[KernelCall], outcomes: Sequence[bench.TimedCase | CaseOutcome], baseline: str) -> Facts:
    measured = [o for o in outcomes if isinstance(o, bench.TimedCase)]
    assert len(measured) == len(cases)
    return Facts(bench._group_facts(measured, baseline))


def test_a_case_is_ranked_by_the_mode_that_its_shape_names() -> None:
    times = {"fast": {"isolated": [2.0] * 9, "back_to_back": [1.0] * 9}, "slow": {"isolated": [1.0] * 9}}
    times["slow"]["back_to_back"] = [3.0] * 9
    ranks: tuple[tuple[TimingMode, float], ...] = (("isolated", 0.5), ("back_to_back", 3.0))
    for mode, wanted in ranks:
        cases = [replace(case(v), rank_by=mode) for v in times]
        facts = facts_of(cases, settled(cases, {v: {"samples": s} for v, s in times.items()}), "slow")
        assert facts.number("speedup_vs_baseline", CaseSubject(Case("fast", "small"))) == wanted


def test_a_mode_is_summarized_by_its_samples() -> None:
    samples = {"isolated": [1.0, 2.0, 3.0, 4.0, 10.0], "eager": [2.0]}
    facts = facts_of([case("fast")], settled([case("fast")], {"fast": {"samples": samples}}), "fast")
    names = ("p50", "mean", "std", "samples")
    isolated, eager = ([facts.named(f"{mode}_{name}")[0].value for name in names] for mode in samples)
    assert isolated == [3.0, 4.0, pytest.approx(12.5**0.5), 5] and eager == [2.0, 2.0, None, 1]


def test_a_percentile_below_the_median_contradicts_it_and_is_no_value() -> None:
    """Percentiles are by events, the median by difference: two clocks."""
    for call, wanted in ((9.0, 9.0), (7.0, None)):
        one = {"samples": {"isolated": [8.0] * 9}, "calls": {"isolated": [call] * 1000}}
        facts = facts_of([case("fast")], settled([case("fast")], {"fast": one}), "slow")
        for name in ("isolated_p90", "isolated_p99"):
            fact = facts.get(name, CaseSubject(Case("fast", "small")))
            assert fact is not None and fact.value == wanted
            assert ("below the p50" in fact.note) == (wanted is None)


@pytest.mark.parametrize(
    ("kernels", "copies", "planned", "isolated", "reason"),
    [
        (
            0,
            0,
            2,
            9.0,
            "or more kernels in the captured graph of a call, found 0",
        ),  # a launcher that ignores the given stream
        (
            1,
            1,
            2,
            9.0,
            "kernels in the captured graph of a call, found 1",
        ),  # a copy is no kernel of a plan
        (0, 0, 0, 9.0, "expected 1 or more kernels"),  # a reference
        (0, 1, 0, 9.0, ""),  # a reference that is a copy, as torch's `copy_`
        (2, 0, 2, 0.004, "isolated 0.004 µs is less than an empty kernel takes, 0.640 µs"),
        (2, 0, 2, 0.62, ""),  # noise
        (None, 0, 2, 0.004, ""),  # nothing is captured on the CPU
    ],
)
def test_a_void_measurement_is_a_failure_and_never_a_rank(
    kernels: int | None, copies: int, planned: int, isolated: float, reason: str
) -> None:
    samples = {"isolated": [isolated] * 5, "back_to_back": [0.004] * 5}
    given = replace(case("right", reference=not planned), launches=planned)
    one = {"kernels": kernels, "copies": copies, "samples": samples}
    (outcome,) = settled([given], {"right": one}, {"isolated": [0.64] * 5})
    if not reason:
        assert str(outcome).startswith("right/small: isolated ")
    else:
        assert isinstance(outcome, CaseOutcome) and outcome.status == "failed"
        assert reason in outcome.reason and outcome.reason.startswith("void: ")


@pytest.mark.parametrize("others", [None, 0, 2])
def test_another_process_on_the_gpu_leaves_its_shape_unmeasured(others: int | None) -> None:
    """Two processes make every time longer, and nobody knows by how much."""
    one = {"kernel_clock": {"kernel_span": 3.0}, "samples": {"isolated": [8.0] * 9, "eager": [9.0] * 9}}
    state = {"looks": 1, **({} if others is None else {"others": others})}
    (made,) = outcomes = settled([case("fast")], {"fast": one}, state=state)
    facts = facts_of([case("fast")], outcomes, "fast")
    names = ("isolated_p50", "eager_mean", "speedup_vs_baseline", "tflops", "kernel_span")
    for name in names:
        (fact,) = facts.named(name)
        assert (fact.value is None) == bool(others) and ("2 other processes used the GPU" in fact.note) == bool(others)
    assert isinstance(made, bench.TimedCase) and bool(made.doubt("isolated")) == bool(others)
    assert facts.named("bench_other_processes")[0].value == others


@pytest.mark.parametrize(
    ("p50", "single", "agree"),
    # The last two: at the power limit, as an H200 had them.
    [
        (8, 6, True),
        (8, 12, True),
        (8, 13.5, False),
        (8, 3.9, False),
        (500, 680, False),
        (799.7, 899.9, True),
        (489.2, 557.8, True),
    ],
)
def test_two_ways_to_time_a_call_must_agree(p50: float, single: float, agree: bool) -> None:
    """By difference, and by events around single calls."""
    one = {"calls": {"isolated": [single] * 1000}, "samples": {"isolated": [p50] * 9, "back_to_back": [7.0] * 9}}
    facts = facts_of([case("fast")], settled([case("fast")], {"fast": one}), "fast")
    for name in ("isolated_p50", "isolated_mean", "speedup_vs_baseline", "tflops"):
        (fact,) = facts.named(name)
        assert (fact.value is not None) == agree and ("two clocks disagree" in fact.note) != agree
    assert facts.named("back_to_back_p50")[0].value == 7.0


@pytest.mark.parametrize("void", ["doubt", "void"])
def test_samples_of_void_times_are_kept_as_measured(void: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cause = OTHER_PROCESSES(2)
    monkeypatch.setattr(bench.TimedCase, void, lambda one, *_: cause if one.case.variant == "right" else None)
    settings = Bench(samples=12, max_samples=20, modes=("isolated",), limits=Limits(time_limit=60.0))
    context = staged.context(tmp_path, "right", bench=settings)
    result = bench.run(context, [case("right"), case("slower")])
    assert {f"{case}/{mode}": len(times) for (case, mode), times in result.raw_samples.items()} == {
        "right/small/isolated": 20, "slower/small/isolated": 20
    }  # fmt: skip
    assert result.samples.keys() == {(Case("slower", "small"), "isolated")}
    causes = [o.cause for o in result.outcomes if o.variant == "right"] + [
        f.cause for f in result.facts if (f.subject.variant, f.name) == ("right", "isolated_p50")
    ]
    assert cause in causes and Facts(result.facts).number("isolated_p50", CaseSubject(Case("right", "small"))) is None


def test_what_was_not_measured_says_so(stage: tuple[StageResult, list[str]]) -> None:
    facts = Facts(stage[0].facts)
    reference = facts.get("speedup_vs_reference", CaseSubject(Case("right", "wide")))
    assert reference is not None and reference.value is None and "no reference" in reference.note
    for name in ("bench_sm_clock", "bench_temperature", "bench_other_processes", "throttle"):
        fact = facts.get(name, CaseSubject(Case("right", "small")))
        assert fact is not None and fact.value is None and "CPU" in fact.note and fact.source is Source.NVML
    assert not any(f.subject.variant in ("raises", "exits", "hangs_late") for f in facts)


def test_facts_are_in_the_catalogue(stage: tuple[StageResult, list[str]]) -> None:
    for fact in stage[0].facts:
        assert FACTS[fact.name].unit == fact.unit
        assert isinstance(fact.value, str) == (fact.unit == "text" and fact.value is not None)
        assert fact.number is None or math.isfinite(fact.number)


def test_a_case_that_cannot_be_first_has_few_samples_and_says_so(tmp_path: Path) -> None:
    chosen = Bench(samples=12, max_samples=20, first=1, limits=Limits(time_limit=60.0))
    cases = [case("right"), case("far_slower")]

    def run(folder: Path, **settings: Any) -> Facts:
        return Facts(bench.run(staged.context(folder, "right", **settings), cases).facts)

    def counts(facts: Facts, variant: str) -> dict[str, tuple[object, bool]]:
        of_mode = {mode: facts.get(f"{mode}_samples", CaseSubject(Case(variant, "small"))) for mode in chosen.modes}
        return {mode: (f.value, isinstance(f.detail, FirstRound)) for mode, f in of_mode.items() if f}

    facts = run(tmp_path / "raced", bench=chosen)
    few = dict.fromkeys(chosen.modes, (3, True)) | {"isolated": (5, True)}
    assert counts(facts, "far_slower") == few, "far slower: half of the first round"
    p90 = facts.get("isolated_p90", CaseSubject(Case("far_slower", "small")))
    assert p90 is not None and p90.value is None and p90.cause == NOT_RANKED()
    for fully in (facts, run(tmp_path / "selected", bench=chosen, variants=("*",))):
        right = counts(fully, "right")
        least = dict.fromkeys(chosen.modes, 4) | {"isolated": 12}  # a third in modes that do not rank
        assert all(right[mode][0] >= least[mode] and not right[mode][1] for mode in right)  # type: ignore[operator]
    assert all(not stopped for _, stopped in counts(fully, "far_slower").values()), "the user asked for these variants"


def test_times_that_another_version_wrote_are_taken_again(tmp_path: Path) -> None:
    lines: list[str] = []
    settings = Bench(samples=12, max_samples=20, limits=Limits(time_limit=60.0))
    context = staged.context(tmp_path, "right", bench=settings, say=lines.append)
    cases = [case("right"), case("slower")]
    bench.run(context, cases)
    (path,) = tmp_path.glob("bench/journal-*.jsonl")
    older = [json.loads(line) for line in path.read_text().splitlines()]
    (answer,) = (line for line in older if line["event"] == "answer")
    del answer["data"]["variants"]["right"]["copies"]
    path.write_text("".join(json.dumps(line) + "\n" for line in older))

    lines.clear()
    result = bench.run(replace(context, workers=Pool()), cases)  # as a resumed run does
    assert [o.status for o in result.outcomes] == ["ok", "ok"]
    assert lines[0].startswith("bench: small: expected times in this version's format, found another format (")
    assert "'copies'" in lines[0] and lines[0].endswith("): its 2 cases are timed again")
    assert len(lines) == 3, "the message, then the progress of both cases"
    assert len(list(tmp_path.glob("bench/journal-*.jsonl"))) == 2
    again = replace(context, workers=Pool())
    assert bench.run(again, cases) == result, "what was timed again is not timed a third time"


def test_without_a_gpu_the_stage_says_what_is_missing(tmp_path: Path) -> None:
    from flashcore.errors import CapabilityError

    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("gpu: there is a GPU")
    with pytest.raises(CapabilityError, match="no CUDA GPU that this process can use") as caught:
        bench.run(staged.context(tmp_path, device="cuda"), [case("right")])
    assert caught.value.exit_code == 4


# --- clock and throttling -----------------------------------------------------------------------


def state_facts(state: dict[str, object]) -> dict[str, object]:
    parsed = json.loads(json.dumps(state))  # as it comes out of the journal
    return {f.name: f.value for f in bench._state_facts(case("right"), parsed)}


def test_state_facts() -> None:
    seen = {"looks": 3, "sm_clock": [1980, 1950, 1980], "temperature": [40, 44, 41], "throttle": [], "others": 1}
    assert state_facts(seen) == {
        "bench_sm_clock": 1980, "bench_temperature": 44, "bench_other_processes": 1, "throttle": "none"
    }  # fmt: skip
    assert state_facts({**seen, "throttle": ["power_cap", "thermal_hardware"]})["throttle"] == (
        "power_cap, thermal_hardware"
    )
    assert set(state_facts({"note": "NVML is not available: no such file"}).values()) == {None}


def test_a_variant_that_fails_on_new_data_does_not_hold_up_the_others(tmp_path: Path) -> None:
    settings = Bench(samples=12, max_samples=20, limits=Limits(time_limit=60.0))
    cases = [case("raises_late"), case("right")]
    result = bench.run(staged.context(tmp_path, "right", bench=settings), cases)
    assert [(o.status, o.reason) for o in result.outcomes] == [
        ("failed", "RuntimeError: invalid device function"),
        ("ok", ""),
    ]
    (path,) = tmp_path.glob("bench/journal-*.jsonl")
    assert journal.begun(path) == ["small"], "timed once"


def test_isolated_cases_have_a_process_each(tmp_path: Path) -> None:
    """One that ends its process reaches no other case's times."""
    settings = Bench(samples=12, max_samples=20, limits=Limits(time_limit=60.0))
    context = staged.context(tmp_path, "right", bench=settings, isolate=True)
    result = bench.run(context, [case("right"), case("exits"), case("slower")])
    assert [o.status for o in result.outcomes] == ["ok", "failed", "ok"]
    begun = [journal.begun(path) for path in tmp_path.glob("bench/journal-*")]
    assert sorted(filter(None, begun)) == [["exits/small"], ["right/small"], ["slower/small"]]
    facts = Facts(result.facts)
    speedup, low = (
        facts.get(f"speedup_vs_baseline{end}", CaseSubject(Case("slower", "small"))) for end in ("", "_low")
    )
    assert speedup and speedup.value is not None and low and low.cause == OTHER_ROUNDS()
