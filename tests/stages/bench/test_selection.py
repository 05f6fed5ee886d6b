"""A selection of an extension times only some cases, in real child processes on the CPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.model.causes import FirstRound
from flashcore.model.record import StageResult
from flashcore.model.settings import Bench
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.bench import bench, selection
from tests.conftest import TESTS
from tests.softmax_cases import case
from tests.support import staged

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(params=["right", "slower"])
def selected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The variant that is timed."""
    monkeypatch.setenv("SELECTED", request.param)
    return str(request.param)


def timed(folder: Path, first: int) -> StageResult:
    def command(task_file: Path, journal: Path) -> list[str]:
        return [sys.executable, str(TESTS / "children" / "selecting.py"), str(task_file), str(journal)]

    chosen = Bench(samples=12, first=first, max_samples=12, modes=("isolated",))
    context = staged.context(folder, "slower", bench=chosen, resident=command)
    return bench.run(context, [case("right"), case("slower")])


def samples(result: StageResult, variant: str) -> tuple[float, ...]:
    return result.samples.get((case(variant).case, "isolated"), ())


def test_those_that_are_not_selected_have_a_time_and_no_samples(tmp_path: Path, selected: str) -> None:
    result = timed(tmp_path, 1)
    (other,) = {"right", "slower"} - {selected}
    assert {(o.status, o.reason) for o in result.outcomes} == {("ok", "")}
    assert len(samples(result, selected)) == (5 if selected == "right" else 7), "more where the fewest are not enough"
    medians = {f.subject.variant: f.number or 0.0 for f in result.facts if f.name == "isolated_p50"}
    assert medians[other] == pytest.approx(medians[selected] + 1000.0, abs=0.001)
    assert {f.subject.variant for f in result.facts if isinstance(f.detail, FirstRound)} == {other}


def test_without_a_race_bench_times_all(tmp_path: Path, selected: str) -> None:
    result = timed(tmp_path, 0)
    assert [len(samples(result, variant)) for variant in ("right", "slower")] == [12, 12]


@pytest.mark.parametrize(("host_us", "late"), [(90.0, False), (150.0, True)])
def test_a_look_is_late_if_the_host_took_longer_than_the_device_waited(
    monkeypatch: pytest.MonkeyPatch, host_us: float, late: bool
) -> None:
    now = 0.0

    class Caller:
        def __init__(self, case: KernelCall, device: str) -> None:
            self.outputs = dict

        def call(self, inputs: object, outputs: object) -> None:
            nonlocal now
            now += host_us / 1e6

    class Timer:
        def between(self, work: Callable[[], object], *, cover: int) -> float:
            work()
            return 20.0

    monkeypatch.setattr(selection, "Caller", Caller)
    monkeypatch.setattr(selection, "timer_for", lambda device: Timer())
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    sets: Any = SimpleNamespace(inputs=[{}])
    entrant = selection.Entrant(case("right"), sets, "cpu")
    assert entrant.is_late == late
    entrant.look()
    assert not entrant.is_late, "the device waits longer after slow calls"
