"""The page of all runs: the recorded runs, and how each case's time changed from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from flashcore.gate.judge import Judgement
from flashcore.gate.wording import summary
from flashcore.model.files import write_atomically, writing
from flashcore.model.record import Record
from flashcore.model.text import significant
from flashcore.plugins.history import history
from flashcore.plugins.history.history import Change, Line
from flashcore.report import environment, policy, static
from flashcore.report.cells import Cell, missing

#: A sparkline's size in CSS pixels.
WIDTH, HEIGHT = 90, 20


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run. ``judgement`` is ``None`` where it was not judged, ``report`` is its overview's address or empty,
    ``published`` says whether the history has it."""

    record: Record
    judgement: Judgement | None
    report: str
    published: bool


def write(runs: Sequence[Run], rows: Sequence[Line], folder: Path) -> Path:
    """Writes ``runs.html`` into ``folder``; the page needs no other file.

    Raises:
        WriteError: it cannot be written.
    """
    script = static("report.js")
    cases = history.series(rows)
    template = environment(single_file=False).get_template(str(Path(__file__).with_name("runs.html.j2")))
    text = template.render(
        runs=[_run(r) for r in runs],
        cases=[_case(key, lines) for key, lines in cases.items()],
        slower=[_slower(history.regime(lines), *step) for lines in cases.values() for step in history.slower(lines)],
        style=static("style.css"),
        script=Markup(script),
        policy=policy(script),
        up="",
    )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "runs.html", text.encode())
    return folder / "runs.html"


def _run(run: Run) -> list[Cell]:
    record, judged, machine = run.record, run.judgement, run.record.environment
    timed = {o.case for o in record.outcomes if not o.origin}
    if judged is None:
        gate = missing("older than the runs that are judged for this page")
    else:
        counts = judged.counts()
        mark = "fail" if counts["fail"] else "pass" if judged.limits and not judged.gaps else "unmeasured"
        text = f"{counts['fail']} failed" if mark == "fail" else mark
        gate = Cell(text, title=summary(judged), sort=mark, mark=mark)
    return [
        Cell(record.id, href=run.report, title="" if run.report else f"flashcore report {record.id} renders it"),
        Cell(record.created.replace("T", " ").removesuffix("Z"), sort=record.created),
        Cell(", ".join(filter(None, (machine.gpu or "no GPU", machine.driver and f"driver {machine.driver}")))),
        Cell(record.suite.name),
        Cell(f"{len(timed):,}", sort=len(timed), kind="number"),
        Cell(f"nvcc {machine.nvcc or 'absent'}"),
        Cell((machine.git_commit or "unknown")[:12] + (" and changes" if machine.git_dirty else "")),
        gate,
        Cell("published" if run.published else "not published"),
    ]


def _case(key: tuple[str, ...], rows: Sequence[Line]) -> dict[str, Any]:
    suite, gpu, variant, shape, params = key
    last, regime = rows[-1], history.regime(rows)
    times = [(r, t) for r in rows if (t := getattr(r, f"{regime}_us")) is not None]
    now = times[-1][1] if times and times[-1][0] is last else None
    changes, ratio = "first time", None
    if len(times) > 1 and now is not None:
        before, was = times[-2]
        ratio = was / now
        changes = _texts(history.changes(before, last)) or "nothing that is recorded"
    time = missing("this run has no time in the regime")
    if now is not None:
        time = Cell(significant(now), title=f"{now} µs in run {last.run}", sort=now, kind="number")
    cells = [
        Cell(variant),
        Cell(shape, title=params),
        Cell(regime.replace("_", " ")),
        time,
        Cell("–" if ratio is None else f"{significant(ratio, 3)} ×", sort=ratio, kind="number"),
        Cell(changes),
        Cell(f"{gpu}, {suite}"),
    ]
    return {"cells": cells, "spark": _spark(times), "points": len(times)}


def _texts(changes: Sequence[Change]) -> str:
    return ", ".join(change.text for change in changes)


def _spark(times: Sequence[tuple[Line, float]]) -> Markup:
    """Times from the oldest run to the newest, 0 at the foot; a tick where driver, compiler or clock changed."""
    if not times:
        return Markup("–")
    top = max(t for _, t in times)
    step = (WIDTH - 8) / max(1, len(times) - 1)
    points = [(4 + i * step, HEIGHT - 3 - (HEIGHT - 6) * t / top) for i, (_, t) in enumerate(times)]
    ticks = [
        f'<path class="grid" d="M{points[i][0]:.1f} 0V{HEIGHT}"/>'
        for i in range(1, len(times))
        if any(change.about != "code" for change in history.changes(times[i - 1][0], times[i][0]))
    ]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    label = ", ".join(f"{t:g}" for _, t in times)
    return Markup(
        f'<svg class="drawing spark" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label} µs">'
        f'{"".join(ticks)}<polyline points="{way}"/>'
        f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="2.5"/></svg>'
    )


def _slower(regime: str, before: Line, after: Line, ratio: float) -> dict[str, str]:
    same = before.code and before.code == after.code
    return {
        "case": f"{after.variant}/{after.shape}",
        "text": f"{significant(ratio, 3)} × slower {regime.replace('_', ' ')}",
        "commits": f"between {before.commit or 'unknown'} (run {before.run}) and {after.commit or 'unknown'} "
        f"(run {after.run})",
        "changed": "the machine code is the same: not the kernel" if same else _texts(history.changes(before, after)),
    }
