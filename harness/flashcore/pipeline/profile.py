"""The whole pipeline: suite → measure → record → judge and report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.model.progress import Say
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.pipeline import pages
from flashcore.pipeline.judging import Judged, Rules, judge_record
from flashcore.pipeline.run import RecordedRun, record_run
from flashcore.records import lookup


@dataclass(frozen=True, slots=True)
class Profiled:
    """A command's run, with its judgement and report.

    Args:
        previous: the last earlier run on the same GPU model; ``None`` unless the user selects variants.
        pages: the report's pages, the entry page first.
    """

    run: RecordedRun
    previous: Record | None
    judged: Judged
    pages: list[Path]


def profile(
    settings: Settings, rules: Rules, target: pages.ReportTarget, say: Say, *, resume: bool = False
) -> Profiled:
    """Measures and records the selected cases, judges them and writes the report. A resumed run keeps its selection.

    Raises:
        FlashcoreError: see the parts; earlier results are kept.
    """
    done = record_run(settings, say, resume=resume)
    chosen, record = done.settings, done.record
    earlier = lookup.measured_runs(Path(settings.profiles), record.suite.name, before=record.id)
    previous = next((r for r in earlier if r.gpu == record.gpu), None) if chosen.variants else None
    rules = replace(rules, variants=chosen.variants, shapes=chosen.shapes, archs=chosen.archs)
    judged = judge_record(rules, record)
    files = pages.write(target, judged, places=[Path(settings.profiles)])
    say(f"report: {len(files)} pages in {files[0].parent}")
    return Profiled(done, previous, judged, files)
