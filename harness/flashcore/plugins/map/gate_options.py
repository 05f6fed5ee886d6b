"""``flashcore gate RUN`` of a map's record: the map's limits on its dispatcher's regret."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from importlib.resources.abc import Traversable

from flashcore.gate.judge import Verdict
from flashcore.plugins.map.regions import Regions
from flashcore.records import store


def add_arguments(parser: argparse.ArgumentParser) -> None: ...


def run(arguments: argparse.Namespace) -> None:
    def check(runs: Sequence[Traversable]) -> Iterator[Verdict]:
        for run in runs:
            record = store.read(run)
            if any("points" in table for table in record.suite.tables.get("map", {}).values()):
                yield from Regions(record).verdicts

    arguments.checks.append(check)
