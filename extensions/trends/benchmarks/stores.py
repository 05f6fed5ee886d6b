"""Stores of small generated runs, for the benchmark of the index and its tests."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path

import numpy as np

from flashcore.records import store
from tests import factory


def written(folder: Path, runs: int) -> None:
    """Writes so many nights of the tests' record: only its times differ."""
    record = factory.record()
    template = store.begin(folder, record.id)
    store.write(record, template)
    header = (template / store.HEADER).read_text()
    facts = json.loads(gzip.decompress((template / store.FACTS).read_bytes()))
    source = np.random.default_rng(1)
    first = datetime.datetime(2020, 1, 1, 3, tzinfo=datetime.UTC)
    for night in range(runs):
        run = store.new_id(first + datetime.timedelta(hours=4 * night))
        made = folder / run
        made.mkdir()
        created = f"{run[:4]}-{run[4:6]}-{run[6:8]}T{run[9:11]}:{run[11:13]}:{run[13:15]}Z"
        (made / store.HEADER).write_text(header.replace(record.id, run).replace(record.created, created))
        rows = [
            [*r[:2], r[2] * source.lognormal(0, 0.01), *r[3:]] if r[1].endswith("_p50") and r[2] else r
            for r in facts["facts"]
        ]
        (made / store.FACTS).write_bytes(gzip.compress(json.dumps({**facts, "facts": rows}).encode(), 1))
        for name in (store.SAMPLES, store.LISTINGS):
            if (template / name).is_file():
                (made / name).symlink_to(template / name)
        store.seal(made)
