"""The page of a recording: one self-contained HTML file, without scripts."""

from __future__ import annotations

from pathlib import Path

from flashcore.model.files import write_atomically, writing
from flashcore.model.text import significant
from flashcore.plugins.phases.drawing import drawing, legend
from flashcore.plugins.phases.record import Recording
from flashcore.plugins.phases.timeline import rows
from flashcore.report import environment, policy, static

HEADINGS = ("role", "phase", "warps", "entered per warp", "ns per warp", "share of its block's time", "largest overlap")


def write(recording: Recording, file: Path) -> None:
    """Writes the page.

    Raises:
        WriteError: it cannot be written.
    """
    line = recording.line
    text = (
        environment(single_file=False)
        .get_template(str(Path(__file__).with_name("phases.html.j2")))
        .render(
            recording=recording,
            picture=drawing(line),
            legend=legend(line.phases),
            headings=HEADINGS,
            table=table(recording),
            notes=notes(recording),
            style=static("style.css"),
            policy=policy(),
        )
    )
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text.encode())


def table(recording: Recording) -> list[list[str]]:
    """The time of each role and phase."""
    return [
        [
            row.role,
            row.phase,
            str(row.warps),
            f"{row.entered:.4g}",
            f"{row.ns:,.0f}",
            f"{100 * row.share:.1f} %",
            f"{row.other}, {100 * row.overlap:.0f} %" if row.overlap else "-",
        ]
        for row in rows(recording.line)
    ]


def notes(recording: Recording) -> list[str]:
    """How it was recorded, and what that changes."""
    line, slower = recording.line, recording.slowdown
    marked, plain = significant(recording.marked_us), significant(recording.plain_us)
    warps = len({(s.block, s.warp) for s in line.spans})
    dropped = f"{line.dropped:,} later phases had no place (--events {recording.events}) and are missing"
    return [
        f"overhead: {marked} µs with markers, {plain} µs without ({recording.regime.replace('_', ' ')}): "
        f"{slower.value:.3f} times as long [{slower.low:.3f}, {slower.high:.3f}]. These times are no results",
        f"clock: clock64 of each SM, {line.ghz:.3f} cycles per ns by globaltimer, which places SMs against each other "
        f"to {line.step} ns; the compiler may move arithmetic over a marker",
        f"recorded: {warps} warps of {len({s.block for s in line.spans})} blocks in {line.ns:,.0f} ns, in the median "
        f"of several calls; {dropped if line.dropped else 'no phase was dropped'}",
    ]
