"""Functions timed in turns in the present process: levels, ratios, verdicts, and what makes them void."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from flashcore.errors import CapabilityError, UsageError
from flashcore.machine.gpu_state import Watch
from flashcore.stages.bench.timing import STAND_IN, timer_for
from tests.features.timer.clock import CLOCK


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Only the functions advance it."""
    monkeypatch.setenv(STAND_IN, str(Path(__file__).with_name("clock.py")))
    timer_for.cache_clear()
    yield
    timer_for.cache_clear()


def taking(us: float, noise: float = 0.001, name: str = "f", **more: Any) -> Callable[[], None]:
    """A function of this duration, with relative noise."""
    generator = random.Random(f"{us} {name}")

    def call() -> None:
        CLOCK.us += us * (1 + noise * generator.uniform(-1, 1))

    call.__name__ = name
    for key, value in more.items():
        setattr(call, key, value)
    return call


def test_a_row_and_a_line_for_each_function(capsys: pytest.CaptureFixture[str]) -> None:
    rows = fc.time(taking(10, name="slow"), taking(5, name="fast"), taking(20, name="fast")).to_dict("records")
    assert [row["name"] for row in rows] == ["slow", "fast", "fast 2"]
    assert [row["verdict"] for row in rows] == ["", "faster", "slower"]
    assert {row["mode"] for row in rows} == {"isolated"}
    for row, us in zip(rows, (10, 5, 20), strict=True):
        assert row["low"] <= row["p50"] <= row["high"] and row["p50"] == pytest.approx(us, rel=0.01)
    assert math.isnan(rows[0]["ratio"])
    for row, ratio in zip(rows[1:], (2.0, 0.5), strict=True):
        assert row["ratio_low"] < ratio < row["ratio_high"] and row["ratio"] == pytest.approx(ratio, rel=0.01)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[1].startswith("fast: isolated 5.") and "× faster than the first [" in lines[1]


def test_one_function_alone_has_a_time_and_no_verdict() -> None:
    (row,) = fc.time(taking(3), mode="cold").to_dict("records")
    assert row["mode"] == "cold" and row["p50"] == pytest.approx(3, rel=0.01) and row["verdict"] == ""


def test_the_same_twice_is_no_difference_and_noise_is_undecided() -> None:
    assert fc.time(taking(10), taking(10, name="g"))["verdict"].iloc[1] == "no difference"
    noisy = fc.time(taking(10, 0.9), taking(10.5, 0.9, name="g")).iloc[1]
    assert noisy["verdict"] == "undecided" and "too noisy" in noisy["note"]


def test_what_no_graph_can_contain_makes_all_of_them_eager() -> None:
    rows = fc.time(taking(10), taking(10, name="g", obstacle="it synchronizes")).to_dict("records")
    assert {row["mode"] for row in rows} == {"eager"} and rows[0]["p50"] == pytest.approx(20, rel=0.01)
    assert all("g is not captured: it synchronizes" in row["note"] for row in rows)


def test_a_function_that_launches_nothing_is_void() -> None:
    rows = fc.time(taking(10), taking(10, name="empty", nodes=(0, 0))).to_dict("records")
    assert rows[0]["verdict"] == "" and rows[1]["verdict"] == "void" and "launches nothing" in rows[1]["note"]


def test_a_copy_in_a_graph_is_said() -> None:
    rows = fc.time(taking(10), taking(5, name="copy", nodes=(0, 1)))
    assert list(rows["note"].str.contains("copies in a graph")) == [False, True] and rows["verdict"].iloc[1] == "faster"


def test_what_launches_nothing_is_not_fast_beside_what_is_timed_eagerly() -> None:
    empty, eager = taking(0.1, name="empty", nodes=(0, 0)), taking(10, name="g", obstacle="it synchronizes")
    assert [*fc.time(eager, empty)["verdict"]] == ["", "void"] and [*fc.time(empty, eager)["verdict"]] == ["void", ""]
    for pair in ((empty, eager), (eager, empty)):
        with pytest.raises(AssertionError, match="found void times of empty: it launches nothing"):
            fc.assert_faster(*pair)


@pytest.mark.parametrize("by", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_that_everything_or_nothing_meets_is_refused(by: float) -> None:
    with pytest.raises(UsageError, match="above 0"):
        fc.assert_faster(taking(5), taking(10), by=by)


@pytest.mark.parametrize(
    ("seen", "void"),
    [
        ({"throttle": ["thermal_hardware"]}, "thermal_hardware"),
        ({"others": 1}, "1 other process on the GPU"),
        ({"throttle": ["power_cap"]}, ""),
    ],
)
def test_a_throttled_or_shared_gpu_voids_the_times(
    monkeypatch: pytest.MonkeyPatch, seen: dict[str, Any], void: str
) -> None:
    monkeypatch.setattr(Watch, "look", lambda watch: watch.seen.update(seen))
    row = fc.time(taking(10), taking(5, name="g")).iloc[1]
    if void:
        assert row["verdict"] == "void" and void in row["note"] and math.isnan(row["p50"])
        with pytest.raises(AssertionError, match=f"found void times.*{void}"):
            fc.assert_faster(taking(5, name="g"), taking(10))
    else:
        assert row["verdict"] == "faster" and "power_cap" in row["note"]


def test_assert_faster_raises_unless_it_is_by_that_much() -> None:
    slow, fast, noisy = taking(10, name="slow"), taking(5, name="fast"), taking(5, 0.9, name="noisy")
    fc.assert_faster(fast, slow)
    fc.assert_faster(fast, slow, by=1.9)
    fc.assert_faster(fast, slow, by=pytest.importorskip("numpy").float32(1.9))
    with pytest.raises(AssertionError, match=r"expected fast at least 2.1 × faster than slow, found [12]\.\d+ × \["):
        fc.assert_faster(fast, slow, by=2.1)
    with pytest.raises(AssertionError, match=r"expected slow at least 1 × faster than fast, found 0\.5"):
        fc.assert_faster(slow, fast)
    with pytest.raises(AssertionError, match="found undecided"):
        fc.assert_faster(noisy, slow, by=2.0)


def test_errors() -> None:
    modes: Any = itertools.repeat("isolatd")
    with pytest.raises(UsageError, match="expected a function, found none\n  hint: "):
        fc.time()
    with pytest.raises(UsageError, match="did you mean isolated"):
        fc.time(taking(1), mode=next(modes))
    with pytest.raises(ZeroDivisionError):
        fc.time(lambda: 1 // 0)


@pytest.mark.parametrize("wrong", [[taking(1), taking(2)], 3, None])
def test_what_is_no_function_is_refused(wrong: Any) -> None:
    for call in (fc.time, lambda f: fc.time(taking(1), f), lambda f: fc.assert_faster(f, taking(1))):
        with pytest.raises(UsageError, match=r"expected a function, found (\[|3|None)(.|\n)*hint: "):
            call(wrong)


def test_a_factor_is_a_number() -> None:
    by: Any = "1.2"
    with pytest.raises(UsageError, match=r"expected a number, found '1\.2'"):
        fc.assert_faster(taking(1), taking(2), by=by)


def test_without_a_gpu_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delenv(STAND_IN)
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CapabilityError, match="no CUDA GPU"):
        fc.time(lambda: None)


@pytest.mark.gpu(process=True)
def test_on_a_gpu_torch_functions_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delenv(STAND_IN)
    x, large = torch.rand(1 << 20, device="cuda"), torch.rand(1 << 26, device="cuda")
    before = torch.cuda.current_stream()
    for mode in ("isolated", "back_to_back", "cold"):
        rows = fc.time(lambda: large * 2, lambda: x * 2, lambda: large + 1, mode=mode)
        assert [*rows["verdict"]][:2] == ["", "faster"] and (rows["mode"] == mode).all(), rows.to_string()
        assert 0 < rows["p50"].iloc[1] < 20 < rows["p50"].iloc[0] < 1000
    assert torch.cuda.current_stream() == before
    fc.assert_faster(lambda: x * 2, lambda: large * 2, by=3)
    with pytest.raises(AssertionError):
        fc.assert_faster(lambda: large * 2, lambda: x * 2)


@pytest.mark.gpu(process=True)
def test_on_a_gpu_what_synchronizes_is_timed_eagerly_and_torch_still_draws_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delenv(STAND_IN)
    x = torch.rand(1 << 20, device="cuda")
    rows = fc.time(lambda: x.sum().item(), lambda: x * 2)
    assert {*rows["mode"]} == {"eager"} and rows["note"].str.contains("is not captured").all(), rows.to_string()
    assert torch.rand(3, device="cuda").add_(1).sum().item() > 3
    void = fc.time(lambda: None)
    assert [*void["verdict"]] == ["void"]
    assert fc.time(lambda: x * 2)["mode"].iloc[0] == "isolated"
