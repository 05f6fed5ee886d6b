"""Defaults of the stages are read off the classes, and are those that the commands use."""

from __future__ import annotations

from flashcore.measure.bench.statistics import P99_SAMPLES
from flashcore.measure.settings import Bench, Check, Profile, Sanitize
from flashcore.pipeline.state import Settings


def test_a_default_is_written_once() -> None:
    run = Settings("suite")
    assert (run.repeats, run.opcheck) == (Check.repeats, Check.opcheck)
    assert (run.samples, run.seconds, run.modes) == (Bench.samples, Bench.seconds, Bench.modes)
    assert (run.clock_control, run.keep_report) == (Profile.clock_control, Profile.keep_report)
    assert run.time_limit == Check.time_limit == Profile.time_limit == Sanitize.time_limit / 5


def test_enough_samples_for_a_99th_percentile() -> None:
    assert Bench.max_samples >= P99_SAMPLES
