"""The defaults of a run are those of its stages."""

from __future__ import annotations

import json
from dataclasses import asdict

from flashcore.model.settings import Bench, Check, Profile, Sanitize, Settings
from flashcore.stages.bench.statistics import P99_SAMPLES


def test_a_time_limit_is_for_each_stage() -> None:
    run = Settings("suite", sanitize=Sanitize())
    assert run.with_time_limit(run.check.limits.time_limit) == run
    assert (run.check, run.bench, run.profile) == (Check(), Bench(), Profile())
    limited = Settings("suite", sanitize=Sanitize()).with_time_limit(2.0)
    assert limited.sanitize is not None and limited.sanitize.limits.time_limit == 10.0
    assert limited.check.limits.time_limit == limited.profile.limits.time_limit == 2.0
    assert limited.bench == Bench() and limited.check.limits.batch == Check().limits.batch


def test_settings_survive_json() -> None:
    run = Settings("suite", shapes=("a",), sanitize=Sanitize(), bench=Bench(samples=7)).with_time_limit(3.0)
    assert Settings.from_json(json.loads(json.dumps(asdict(run)))) == run


def test_enough_samples_for_a_99th_percentile() -> None:
    assert Bench.max_samples >= P99_SAMPLES
