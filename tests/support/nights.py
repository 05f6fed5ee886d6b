"""Stores of synthetic nights: a run of the factory's suite per day, with chosen times and machine code."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.model.record import Facts, Record, Source
from flashcore.records import store
from tests import factory
from tests.support.late import optional

np = optional("numpy")
FIRST = datetime.datetime(2026, 1, 1, 3)


def run_of(night: int) -> str:
    return store.new_id(FIRST + datetime.timedelta(days=night))


def write(
    profiles: Path,
    nights: int,
    ratio: Callable[[str, int], float] = lambda case, night: 1.0,
    *,
    first: int = 0,
    code: Callable[[str, int], str] = lambda case, night: "a",
    machine: Callable[[int], dict[str, Any]] = lambda night: {},
    edit: Callable[[Record, int], Record] = lambda record, night: record,
    sigma: float = 0.005,
) -> None:
    """Writes nights ``first`` to ``nights``. ``ratio`` is a case's time over its usual one, ``code`` its machine
    code."""
    base = factory.record()
    source = np.random.default_rng(5)
    for night in range(nights):
        noise = {o.case: source.lognormal(0, sigma) for o in base.outcomes if o.stage == "bench"}
        if night < first:
            continue
        samples = {
            (case, mode): tuple(x * noise[case] * ratio(str(case), night) for x in series)
            for (case, mode), series in base.samples.items()
        }
        facts = [
            replace(f, value=statistics.median(samples[f.subject.case, f.name.removesuffix("_p50")]))
            if f.name.endswith("_p50") and f.subject.case
            else f
            for f in base.facts
            if f.source is not Source.EVENTS or f.name.endswith("_p50")
        ]
        keys = {case: replace(key, code=key.code + code(str(case), night)) for case, key in base.keys.items()}
        environment = {"driver": "580.1", "gpu_uuid": "GPU-a", "git_commit": f"{night:06d}" + "0" * 34}
        record = replace(
            base,
            id=run_of(night),
            facts=Facts(facts),
            raw_samples=samples,
            keys=keys,
            environment=replace(base.environment, **{**environment, **machine(night)}),
        )
        record = edit(record, night)
        store.write(record, folder := store.begin(profiles, record.id))
        store.complete(folder)
