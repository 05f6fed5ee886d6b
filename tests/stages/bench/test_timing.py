"""The calls of a sample, and the check that a captured graph contains their kernels."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashcore.stages.bench import timing
from flashcore.stages.bench.timing import SAMPLE_US, calls_for, rotated


def test_calls_of_a_sample() -> None:
    assert calls_for(1e6) == 1
    assert calls_for(SAMPLE_US / 40) == 40
    assert calls_for(0.0) == calls_for(1e-9) > 100


@given(st.lists(st.text(max_size=2), max_size=6, unique=True), st.integers(0, 50))
def test_rotation_keeps_everyone(items: list[str], turn: int) -> None:
    result = rotated(items, turn)
    assert sorted(result) == sorted(items)
    assert not items or result[0] == items[turn % len(items)]


class Stream:
    """Stands in for the stream of a GPU: counts the kernels and copies that are enqueued while it captures."""

    def __init__(self) -> None:
        self.held = [0, 0]

    def timer(self) -> timing.Timer:
        """A timer without a device, whose graphs hold what was enqueued while they were captured."""
        made = timing.Timer.__new__(timing.Timer)
        made._spacers = {}
        made.spin = lambda cycles, blocks=1: self.launch()  # type: ignore[method-assign]
        made.flush = lambda value: self.launch()  # type: ignore[method-assign]
        made.sms, made.stream = 132, SimpleNamespace(cuda_stream=0)
        made.driver = cast(Any, None)
        made.capture = self.capture  # type: ignore[method-assign]
        return made

    def launch(self, kernels: int = 1, copies: int = 0) -> None:
        self.held = [self.held[0] + kernels, self.held[1] + copies]

    def capture(self, enqueue: Callable[[int], Any], count: int) -> tuple[Any, tuple[int, int]]:
        self.held = [0, 0]
        for i in range(count):
            enqueue(i)
        return type("Graph", (), {"replay": lambda _: None})(), (self.held[0], self.held[1])


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    import torch

    monkeypatch.setattr(torch.cuda, "Event", lambda **_: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing.Timer, "between", lambda *_, **__: 8.0)  # us: 50 calls in a sample
    return Stream()


def test_each_call_of_every_graph_holds_its_kernels(stream: Stream) -> None:
    timed = stream.timer().prepare([lambda: stream.launch(2), lambda: stream.launch(2)])
    for mode in ("isolated", "cold"):
        getattr(timed, "_pair")(mode, events=False)  # noqa: B009
    assert (timed.launches, timed.kernels, timed.copies) == (50, 2, 0)


def test_a_reference_that_only_copies_holds_copies(stream: Stream) -> None:
    timed = stream.timer().prepare([lambda: stream.launch(0, 1)])
    assert (timed.kernels, timed.copies) == (0, 1)


@pytest.mark.parametrize("stops_after", [4, 10, 60, 97])
def test_a_launcher_that_stops_after_some_calls_is_seen(stream: Stream, stops_after: int) -> None:
    """It launches while it is looked at and saves itself the rest: in the back-to-back graph or behind the spacers."""
    calls = iter(range(10_000))
    timed = stream.timer().prepare([lambda: stream.launch(int(next(calls) < stops_after))])
    for mode in ("isolated", "cold"):
        getattr(timed, "_pair")(mode, events=False)  # noqa: B009
    assert timed.kernels == 0


@pytest.mark.parametrize(
    ("waited", "idle", "us"),
    [(5.0, 4.0, 8.0), (70.0, 64.0, 8.0), (90.0, 5.0, 8.0), (500.0, 60.0, 448.0)],
)
def test_eager_calls_last_until_other_streams_are_done(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, waited: float, idle: float, us: float
) -> None:
    timed = stream.timer().prepare([stream.launch])
    marks = itertools.accumulate(itertools.cycle([7.0, waited, idle]))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(marks) / 1e6))
    assert timed.eager() == pytest.approx(us / timed.eager_calls)


def test_what_eager_calls_leave_is_told_from_noise_by_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    marks = itertools.accumulate(itertools.cycle([7.0, 300.0, 50.0]))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(marks) / 1e6))
    timer = timing.Timer.__new__(timing.Timer)
    assert timer.left(400.0) == pytest.approx(250.0) and timer.left(600.0) == 0.0


class Device(Stream):
    """A stream whose graphs do again, when replayed, what was enqueued while they were captured."""

    def timer(self) -> timing.Timer:
        made = super().timer()
        made.driver = cast(Any, SimpleNamespace(record=lambda *_: None, elapsed_us=lambda *_: 8.0,
                                                ask=lambda _: None))  # fmt: skip
        made.events = [(cast(Any, 0), cast(Any, 1))] * 40
        return made

    def capture(self, enqueue: Callable[[int], Any], count: int) -> tuple[Any, tuple[int, int]]:
        graph, launches = super().capture(enqueue, count)
        graph.replay = lambda: [enqueue(i) for i in range(count)]
        return graph, launches


@pytest.mark.parametrize("resident", [3, 12])
def test_no_timed_call_meets_what_another_one_left(monkeypatch: pytest.MonkeyPatch, resident: int) -> None:
    import torch

    timed: list[int] = []
    within = []

    def between(self: Any, work: Callable[[], object], **_: Any) -> float:
        within.append(True)
        work()
        within.pop()
        return 8.0  # us: 50 calls in a sample

    monkeypatch.setattr(torch.cuda, "Event", lambda **_: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing.Timer, "between", between)
    device, content = Device(), [0] * 12

    def call(i: int) -> None:
        device.launch()
        if within:
            timed.append(content[i])
        content[i] += 1

    def restore(i: int) -> None:
        assert not within, "restored where time is taken"
        content[i] = 0

    restored = timing.Restored(restore, resident)
    one = device.timer().prepare([functools.partial(call, i) for i in range(12)], restored=restored)
    timed.clear()  # how long a call takes was asked before
    counts = {}
    for mode in ("back_to_back", "isolated", "cold", "eager"):
        getattr(one, mode)()
        assert timed == [0] * one.calls_in(mode), mode
        counts[mode] = len(timed)
        timed.clear()
    assert counts == {"back_to_back": 12, "isolated": resident, "cold": 5, "eager": 12}
    for mode, count in (("isolated", resident), ("cold", 12)):
        for first in (True, False):
            one.each(cast(Any, mode), first=first)
            assert timed == [0] * count
            timed.clear()
    assert one.kernels == 1


def test_empty_pairs_capture_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are timed in between, and their time is not that of a call."""
    import torch

    monkeypatch.setattr(torch.cuda, "Event", lambda **_: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing.Timer, "between", lambda *_, **__: 8.0)
    calls: list[int] = []
    timed = Device().timer().prepare([lambda: calls.append(1)])
    before = len(calls)
    timed.each("isolated", calls=False)
    assert len(calls) == before + 1, "one to warm L2"
    timed.each("isolated")
    assert len(calls) > before + 2
