"""GitHub workflow commands that annotate the source line of each failure.

Verdicts of one budget on one line share an annotation, because GitHub shows only ten per level.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from flashcore.cli import terminal, verdict_table
from flashcore.explain.verdict import Verdict
from flashcore.gate.formats import as_markdown
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.gate.wording import budgets, causes, clean, sentence
from flashcore.model.files import writing
from flashcore.model.groups import grouped
from flashcore.model.record import Record

#: GitHub shows this many annotations per level and step, and drops the rest silently.
MOST_ANNOTATIONS = 10


def render(judgement: Judgement, record: Record, places: Places) -> str:
    """The annotations above the table. Appends the Markdown to the job's summary."""
    if job := os.environ.get("GITHUB_STEP_SUMMARY"):
        with writing(Path(job)):
            Path(job).parent.mkdir(parents=True, exist_ok=True)
            with open(job, "a", encoding="utf-8", errors="replace") as stream:
                stream.write(as_markdown(judgement, record, places))
    table = terminal.uncommanded(verdict_table.render(judgement))
    return terminal.Trusted(f"{workflow_commands(judgement, places)}{table}\n")


def workflow_commands(judgement: Judgement, places: Places) -> str:
    """An error per failure, and a warning per required but unmeasured fact."""
    failures = _annotations("error", "failed", judgement.failed, places)
    return "".join(failures + _annotations("warning", "unmeasured", judgement.unexplained_gaps, places))


def _annotations(level: str, title: str, verdicts: Sequence[Verdict], places: Places) -> list[str]:
    groups = grouped(((budgets(group), places.of(group[0])), group) for group in causes(verdicts, places.of))
    lines = []
    for (names, place), of in list(groups.items())[:MOST_ANNOTATIONS]:
        words = "\n".join(sentence(*group) for group in of[:MOST_ANNOTATIONS])
        if len(of) > MOST_ANNOTATIONS:
            words += f"\n… and {len(of) - MOST_ANNOTATIONS} more"
        where = f"file={_property(place.file)},line={place.line}," if place else ""
        lines.append(f"::{level} {where}title={_property(f'flashcore: {title}: {names}')}::{_data(words)}\n")
    if len(groups) > MOST_ANNOTATIONS:
        lines[-1] = f"::{level} title=flashcore::{len(groups) - MOST_ANNOTATIONS + 1} more, see the table below\n"
    return lines


def _data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
