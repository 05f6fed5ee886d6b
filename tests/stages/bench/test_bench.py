"""Bench: its statistics as properties, its stage in real child processes on the CPU, its facts' honesty."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcore.machine import gpu
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Facts, Source, StageResult, Subject
from flashcore.stages.bench import bench
from flashcore.stages.bench.statistics import P99_SAMPLES, StopRule, ratio, relative_noise, summarize
from flashcore.stages.bench.timing import SAMPLE_US, calls_for, rotated
from tests.softmax_cases import case

times = st.floats(min_value=0.01, max_value=1e6, allow_nan=False, allow_infinity=False)
series = st.lists(times, min_size=1, max_size=60)


# --- statistics ---------------------------------------------------------------------------------


def test_summary_of_known_samples() -> None:
    found = summarize([1.0, 2.0, 3.0, 4.0, 10.0])
    assert (found.count, found.p50, found.mean) == (5, 3.0, 4.0)
    assert found.p90 == pytest.approx(7.6)
    assert found.std == pytest.approx(statistics.stdev([1, 2, 3, 4, 10]))
    assert found.p99 is None
    assert summarize([2.0]).std is None
    with pytest.raises(ValueError, match="at least one sample"):
        summarize([])


def test_p99_takes_a_thousand_samples() -> None:
    assert summarize([float(i) for i in range(P99_SAMPLES - 1)]).p99 is None
    assert summarize([float(i) for i in range(1001)]).p99 == pytest.approx(990.0)


@given(series)
def test_summary_is_ordered_and_blind_to_order(samples: list[float]) -> None:
    found = summarize(samples)
    slack = 1e-9 * max(samples)
    assert min(samples) - slack <= found.p50 <= found.p90 + slack
    assert found.p90 <= max(samples) + slack
    assert min(samples) - slack <= found.mean <= max(samples) + slack
    shuffled = random.Random(0).sample(samples, len(samples))
    assert summarize(shuffled).p50 == found.p50


@given(st.lists(times, min_size=5, max_size=60), st.floats(min_value=0.1, max_value=10))
def test_noise_has_no_unit(samples: list[float], factor: float) -> None:
    noise = relative_noise(samples)
    assert noise >= 0
    assert relative_noise([x * factor for x in samples]) == pytest.approx(noise, rel=1e-6, abs=1e-9)


def test_noise_falls_with_samples_and_ignores_one_outlier() -> None:
    draw = random.Random(1)
    few = [draw.gauss(100, 1) for _ in range(50)]
    many = few + [draw.gauss(100, 1) for _ in range(1550)]
    assert relative_noise(many) < relative_noise(few) / 3
    assert relative_noise([*few, 1e6]) < 2 * relative_noise(few)
    assert relative_noise(few[:4]) == math.inf


@settings(max_examples=25, deadline=None)
@given(series, series)
def test_ratio_lies_in_its_interval_and_repeats(a: list[float], b: list[float]) -> None:
    found = ratio(a, b)
    assert 0 < found.low <= found.value <= found.high
    assert ratio(a, b) == found
    rounds = min(len(a), len(b))
    assert found.value == pytest.approx(statistics.median(a[:rounds]) / statistics.median(b[:rounds]))


@settings(max_examples=25, deadline=None)
@given(series)
def test_ratio_to_itself_is_one(samples: list[float]) -> None:
    found = ratio(samples, samples)
    assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)


def test_ratio_pairs_rounds() -> None:
    # A drift that both sides share cancels within a round; unpaired, it would drown the ratio.
    drift = [1 + 0.5 * i / 99 for i in range(100)]
    found = ratio([20 * d for d in drift], [10 * d for d in drift])
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))


def test_ratio_interval_covers_the_truth() -> None:
    draw = random.Random(7)
    hits = 0
    for _ in range(40):
        a = [draw.gauss(20, 1) for _ in range(60)]
        b = [draw.gauss(10, 0.5) for _ in range(60)]
        found = ratio(a, b)
        hits += found.low <= 2.0 <= found.high
        assert found.high - found.low < 0.2
    assert hits >= 34  # 95 % of 40 are 38


def test_ratio_refuses_what_is_no_time() -> None:
    for a, b in (([], [1.0]), ([0.0], [1.0])):
        with pytest.raises(ValueError, match="expected"):
            ratio(a, b)


# --- when to stop -------------------------------------------------------------------------------


def test_stop_rule() -> None:
    rule = StopRule(least=100, most=400, noise=0.001, seconds=2.0, slow_seconds=3.0, fewest=10)
    steady, noisy = [10.0] * 400, [10.0, 20.0] * 200
    assert not rule.enough(steady[:99], 0.1, 100.0), "the least is taken, whatever the time"
    assert rule.enough(steady[:100], 0.1, 0.1)
    assert not rule.enough(noisy[:100], 0.1, 0.1)
    assert rule.enough(noisy[:100], 0.1, 2.0)
    assert rule.enough(noisy, 0.1, 0.1)
    assert rule.enough(steady[:10], 3.0, 3.0), "a slow case may stop early"
    assert not rule.enough(steady[:9], 9.0, 9.0)


@pytest.mark.parametrize(("cases", "milliseconds", "samples"), [(5, 9, 100), (5, 36, 84), (45, 36, 15), (45, 5, 100)])
def test_slow_calls_get_less_time_among_many(cases: int, milliseconds: float, samples: int) -> None:
    rule = bench._shared(StopRule(least=100, seconds=1.5), cases)
    taken: list[float] = []
    while not rule.enough(taken, len(taken) * milliseconds / 1e3, 1e3):
        taken.append(milliseconds * 1e3)
    assert len(taken) == samples


def test_calls_of_a_sample() -> None:
    assert calls_for(1e6) == 1
    assert calls_for(SAMPLE_US / 40) == 40
    assert calls_for(0.0) == calls_for(1e-9) > 100


@given(st.lists(st.text(max_size=2), max_size=6, unique=True), st.integers(0, 50))
def test_rotation_keeps_everyone(items: list[str], turn: int) -> None:
    found = rotated(items, turn)
    assert sorted(found) == sorted(items)
    assert not items or found[0] == items[turn % len(items)]


# --- the stage ----------------------------------------------------------------------------------

VARIANTS = ("right", "slower", "raises", "exits", "hangs_late")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageResult, list[str]]:
    """Two shapes; on the small one a variant raises, one takes the process along, one hangs while timed."""
    cases = [case(v) for v in VARIANTS] + [case("library", peer=True)]
    cases += [case(v, "wide", columns=300) for v in ("right", "slower")]
    folder = tmp_path_factory.mktemp("bench")
    lines: list[str] = []

    def run() -> StageResult:
        return bench.run(
            cases,
            folder,
            baseline="slower",
            min_samples=12,
            max_samples=20,
            time_limit=3.0,
            device="cpu",
            progress=lines.append,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # threads that wait for each other are not what is timed here
        found = run()
    processes = len(list(folder.glob("child-*.log")))
    assert run() == found, "what is answered is not run again"
    assert len(list(folder.glob("child-*.log"))) == processes
    return found, lines


def test_faults_cost_their_own_case_alone(stage: tuple[StageResult, list[str]]) -> None:
    outcomes = {o.case: o for o in stage[0].outcomes}
    assert {name for name, o in outcomes.items() if o.status == "ok"} == {
        "right/small", "slower/small", "library/small", "right/wide", "slower/wide"
    }  # fmt: skip
    assert "invalid configuration argument" in outcomes["raises/small"].reason
    assert "exit code 9" in outcomes["exits/small"].reason
    assert "hang?" in outcomes["hangs_late/small"].reason
    assert all(o.stage == "bench" for o in outcomes.values())


def test_progress_is_a_line_a_case(stage: tuple[StageResult, list[str]]) -> None:
    result, lines = stage
    assert sorted(line.partition(":")[0] for line in lines) == sorted(o.case for o in result.outcomes)
    assert any(line.startswith("right/wide: warm ") for line in lines)


def test_samples_are_kept_by_case_and_mode(stage: tuple[StageResult, list[str]]) -> None:
    samples = stage[0].samples
    assert len(samples) == 5 * 3
    assert all(12 <= len(v) <= 20 and min(v) > 0 for v in samples.values())
    assert "right/small/warm" in samples


def test_facts_of_a_case(stage: tuple[StageResult, list[str]]) -> None:
    facts = Facts(stage[0].facts)
    subject = Subject("right", shape="small")
    samples = stage[0].samples["right/small/warm"]
    assert facts.number("warm_p50", subject) == pytest.approx(statistics.median(samples))
    assert facts.number("warm_samples", subject) == len(samples)
    p99 = facts.get("warm_p99", subject)
    assert p99 is not None and p99.value is None and "p99 needs at least 1000" in p99.note
    speedup = facts.number("speedup_vs_baseline", subject)
    low, high = (facts.number(f"speedup_vs_baseline_{end}", subject) for end in ("low", "high"))
    assert speedup is not None and low is not None and high is not None
    assert 1 < low <= speedup <= high < 30
    assert facts.number("speedup_vs_baseline", Subject("slower", shape="small")) == 1.0
    peer = facts.get("speedup_vs_peer", subject)
    assert peer is not None and peer.note.startswith("over library")
    flops = facts.number("tflops", subject)
    assert flops == pytest.approx(5 * 6 * 37 / statistics.median(samples) / 1e6)
    # The host's clock is never passed off as events.
    assert all("host clock" in f.note for f in facts.named("warm_p50"))


def test_what_was_not_measured_says_so(stage: tuple[StageResult, list[str]]) -> None:
    facts = Facts(stage[0].facts)
    peer = facts.get("speedup_vs_peer", Subject("right", shape="wide"))
    assert peer is not None and peer.value is None and "no peer" in peer.note
    for name in ("bench_sm_clock", "bench_temperature", "throttle"):
        fact = facts.get(name, Subject("right", shape="small"))
        assert fact is not None and fact.value is None and "CPU" in fact.note and fact.source is Source.NVML
    assert not any(f.subject.variant in ("raises", "exits", "hangs_late") for f in facts)


def test_facts_are_in_the_catalogue(stage: tuple[StageResult, list[str]]) -> None:
    for fact in stage[0].facts:
        assert FACTS[fact.name].unit == fact.unit
        assert isinstance(fact.value, str) == (fact.unit == "text" and fact.value is not None)
        assert fact.number is None or math.isfinite(fact.number)


def test_without_a_gpu_the_stage_says_what_is_missing(tmp_path: Path) -> None:
    from flashcore.errors import CapabilityError

    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CapabilityError, match="no CUDA GPU that this process can use") as caught:
        bench.run([case("right")], tmp_path, baseline="right")
    assert caught.value.exit_code == 4


# --- clock and throttling -----------------------------------------------------------------------


def state_facts(state: dict[str, object]) -> dict[str, object]:
    found = json.loads(json.dumps(state))  # as it comes out of the journal
    return {f.name: f.value for f in bench._state_facts(case("right"), found)}


def test_state_facts() -> None:
    seen = {"looks": 3, "sm_clock": [1980, 1950, 1980], "temperature": [40, 44, 41], "throttle": []}
    assert state_facts(seen) == {"bench_sm_clock": 1980, "bench_temperature": 44, "throttle": "none"}
    assert state_facts({**seen, "throttle": ["power_cap", "thermal_hardware"]})["throttle"] == (
        "power_cap, thermal_hardware"
    )
    assert set(state_facts({"note": "NVML cannot be asked: no such file"}).values()) == {None}


def test_throttle_names() -> None:
    assert gpu.throttle_names(0) == ()
    assert gpu.throttle_names(0x1) == ()  # idle
    assert gpu.throttle_names(0x1 | 0x4 | 0x40) == ("power_cap", "thermal_hardware")
    assert gpu.throttle_names(0x1000) == ("unknown_0x1000",)


class _Library:
    """Answers as NVML does: 0 is success, what was asked for is written behind the last pointer."""

    def __init__(self, missing: Sequence[str] = (), failing: Sequence[str] = ()) -> None:
        self.missing, self.failing = missing, failing

    def __getattr__(self, name: str) -> object:
        if name in self.missing:
            raise AttributeError(name)
        values = {"ClockInfo": 1980, "Temperature": 41, "EventReasons": 0x4, "ThrottleReasons": 0x8}
        value = next((v for ending, v in values.items() if name.endswith(ending)), None)

        def answer(*arguments: object) -> int:
            if name in self.failing:
                return 3  # not supported
            if value is not None:
                arguments[-1]._obj.value = value  # type: ignore[attr-defined]
            return 0

        return answer


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(library: _Library) -> gpu.State:
        monkeypatch.setattr("ctypes.CDLL", lambda _: library)
        return gpu.Nvml("0-1-2").state()

    assert look(_Library()) == gpu.State(1980, 41, ("power_cap",))
    old = _Library(missing=["nvmlDeviceGetCurrentClocksEventReasons"])
    assert look(old).throttle == ("hardware_slowdown",)
    assert look(_Library(failing=["nvmlDeviceGetClockInfo"])).sm_clock is None
    with pytest.raises(OSError, match="nvmlInit_v2: NVML error 3"):
        look(_Library(failing=["nvmlInit_v2"]))
