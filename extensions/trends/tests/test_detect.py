"""The detector on arrays: steps, drifts and noise; the benchmark has the rates."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")

from flashcore_trends import detect  # noqa: E402

NIGHTS = 60


def detected(logs: Any, code: Any = None, machine: Any = None, spread: Any = None) -> list[detect.Change]:
    count = len(logs)
    every = np.zeros(count, int)
    return detect.changes(
        logs,
        np.arange(count) if code is None else code,  # rewritten every night
        every if machine is None else machine,
        np.full(count, np.inf) if spread is None else spread,
    )


def noise(seed: int = 1, sigma: float = 0.005, count: int = NIGHTS) -> Any:
    return np.random.default_rng(seed).normal(0, sigma, count)


def since(night: int, size: float, count: int = NIGHTS) -> Any:
    return np.where(np.arange(count) >= night, size, 0)


@pytest.mark.parametrize("night", [20, 40, 57])
def test_a_step_is_dated_exactly_and_blamed_on_code_only_if_that_changed(night: int) -> None:
    code = since(night, 1).astype(int)
    (change,) = detected(noise() + since(night, 0.04), code)
    assert (change.at, change.blame) == (night, "kernel") and change.size == pytest.approx(0.04, abs=4 * change.error)
    (change,) = detected(noise() + since(night, 0.04), np.zeros(NIGHTS, int))
    assert change.blame == "machine" and abs(change.at - night) <= 1


def test_a_drift_in_small_steps_is_found() -> None:
    logs = noise(sigma=0.012) + since(20, 0.02) + since(30, 0.02) + since(40, 0.02)
    assert any(c.blame == "kernel" and c.size > 0 and 20 <= c.at <= 40 for c in detected(logs))


def test_a_clear_step_in_a_short_history_is_found_with_its_second_night() -> None:
    for sigma in (0.001, 0.0):
        logs = noise(sigma=sigma, count=8) + since(6, 0.03, 8)
        assert [(c.at, c.blame) for c in detected(logs)] == [(6, "kernel")]
        assert detected(logs[:7]) == [], "one night is no level"


def test_the_noise_of_other_levels_tells_a_step_soon_after_another_one() -> None:
    logs = noise() + since(47, 0.03) + since(57, 0.02)
    code = since(47, 1).astype(int) + since(57, 1).astype(int)
    assert [(c.at, c.blame) for c in detected(logs, code)] == [(47, "kernel"), (57, "kernel")]


def test_an_outlier_among_the_new_nights_does_not_hide_their_level() -> None:
    logs = noise() + since(57, 0.025)
    logs[58] += 0.1
    assert [(c.at, c.blame) for c in detected(logs, since(57, 1).astype(int))] == [(57, "kernel")]


def test_a_step_soon_after_a_new_driver_is_the_kernels_if_the_driver_moved_others_less() -> None:
    machine, code = since(56, 1).astype(int), since(57, 1).astype(int)
    spread = np.where(np.arange(NIGHTS) == 56, 0.003, np.inf)
    logs = noise(sigma=0.012) + since(57, 0.035)
    (change,) = detected(logs, code, machine, spread)
    assert (change.at, change.blame) == (57, "kernel")
    (change,) = detected(logs, code, machine, 10 * spread)
    assert change.blame == "undecided", "one night does not tell what a driver does that moves much"


def test_one_outlier_is_no_level() -> None:
    for night in (30, 58, 59):
        logs = noise()
        logs[night] += 0.2
        assert detected(logs) == []


def test_a_slowdown_and_its_repair_are_both_found_in_a_long_series() -> None:
    logs = noise(count=200) + since(80, 0.04, 200) - since(110, 0.04, 200)
    changes = [(c.at, c.size > 0) for c in detected(logs)]
    assert changes == [(80, True), (110, False)]


def test_a_machine_that_moves_a_series_is_not_the_kernel() -> None:
    machine = since(30, 1).astype(int)
    code = np.zeros(NIGHTS, int)
    (change,) = detected(noise() + since(30, 0.03), code, machine)
    assert (change.at, change.blame) == (30, "machine")
    code = since(30, 1).astype(int)
    (change,) = detected(noise() + since(30, 0.03), code, machine)
    assert change.blame == "undecided", "both changed in that night"
    (change,) = detected(noise() + since(30, 0.03), code, machine, np.full(NIGHTS, 0.005))
    assert change.blame == "kernel", "the machine moved no other series so far"
    changes = detected(noise() + since(30, 0.03) + since(45, 0.04), since(45, 1).astype(int), machine)
    assert [(c.at, c.blame) for c in changes] == [(30, "machine"), (45, "kernel")]


def test_another_gpu_is_aligned_as_soon_as_earlier_nights_tell() -> None:
    other = np.isin(np.arange(NIGHTS), (1, 20, 40))  # before its first night there is too little to compare it with
    logs = noise(sigma=0.002) + np.where(other, 0.03, 0)
    changes = detected(logs + since(57, 0.02), since(57, 1).astype(int), other.astype(int))
    assert [(c.at, c.blame) for c in changes] == [(20, "machine"), (57, "kernel")]


def test_what_a_night_does_to_all_is_measured_on_unchanged_code_alone() -> None:
    source = np.random.default_rng(3)
    logs = source.normal(0, 0.003, (20, 30))
    code = np.zeros((20, 30), int)
    logs[:, 20] += 0.05
    logs[:15, 25:] += 0.04  # most kernels get slower in one night, when their code changes
    code[:15, 25:] = 1
    effects = detect.night_effects(logs, code)
    assert effects[20] == pytest.approx(0.05, abs=0.005)
    assert np.abs(np.delete(effects, 20)).max() < 0.01
    assert not detect.night_effects(logs[:4], code[:4]).any(), "too few tell"


def test_a_night_that_was_not_timed_is_left_out() -> None:
    logs = np.random.default_rng(3).normal(0, 0.003, (20, 30))
    logs[3, 10] = np.nan
    assert np.isfinite(detect.night_effects(logs, np.zeros((20, 30), int))).all()


def test_fewer_nights_than_a_change_needs_have_none() -> None:
    for count in range(detect.BEFORE + detect.AFTER):
        assert detected(noise(count=count) + since(count // 2, 0.5, count)) == []


def test_how_far_a_machine_moves_others_is_told_by_enough_nights_alone() -> None:
    logs = np.random.default_rng(4).normal(0, 0.003, (200, 12))
    machine = np.array([0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2])
    logs[:, 7:] += np.random.default_rng(5).normal(0, 0.01, (200, 1))
    spreads = detect.spreads(logs, np.zeros((200, 12), int), machine)
    assert np.isfinite(spreads).tolist() == [night == 7 for night in range(12)], "one night has no spread"
    assert spreads[7] == pytest.approx(0.012, rel=0.2)
