"""The whole pipeline: suite → measure → record → judge and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.measure.context import Say
from flashcore.measure.settings import Settings
from flashcore.model.record import Record
from flashcore.pipeline import pages
from flashcore.pipeline.judging import Judged, Rules, judge_records
from flashcore.pipeline.run import Run, runs
from flashcore.records import lookup


@dataclass(frozen=True, slots=True)
class Profiled:
    """The runs of one command, one per GPU model, with their judgement and report.

    Args:
        previous: for each run, the last earlier one on the same GPU model; empty unless the user selects variants.
        pages: the report's pages, the entry page first.
    """

    runs: Sequence[Run]
    previous: Sequence[Record | None]
    judged: Judged
    pages: Sequence[Path]


def profile(settings: Settings, rules: Rules, target: pages.Target, say: Say, *, resume: bool = False) -> Profiled:
    """Measures and records the selected cases, judges them and writes the report. A resumed run keeps its selection.

    Raises:
        FlashcoreError: see the parts; earlier results are kept.
    """
    done = runs(settings, say, resume=resume)
    chosen = done[0].settings
    previous: list[Record | None] = []
    for record in (run.record for run in done if chosen.variants):
        earlier = lookup.measured_runs(Path(settings.profiles), record.suite.name, before=record.id)
        previous.append(next((r for r in earlier if r.gpu == record.gpu), None))
    judged = judge_records(
        replace(rules, variants=chosen.variants, shapes=chosen.shapes, archs=chosen.archs), [run.record for run in done]
    )
    files = pages.write(target, judged.records, require=rules.require, baseline=judged.baseline)
    say(f"report: {len(files)} pages in {files[0].parent}")
    return Profiled(done, previous, judged, files)
