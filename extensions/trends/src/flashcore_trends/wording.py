"""The news of the trends in sentences."""

from __future__ import annotations

from flashcore.records.index import TimePoint
from flashcore_trends import detect
from flashcore_trends.series import Finding, Series, Trends

#: Who changed a time, in words, the most severe first.
BLAMES = {"kernel": "the kernel", "undecided": "kernel or machine: undecided", "machine": "the machine, not the kernel"}


def commits(finding: Finding) -> str:
    """The range of commits in which the change is, for ``git log``; a ``+`` marks a changed tree."""
    before, after = (
        (point.commit or f"run {point.run}")[:12] + "+" * bool(point.dirty) for point in (finding.before, finding.after)
    )
    return before if before == after else f"{before}..{after}"


def sentence(series: Series, finding: Finding) -> str:
    """The change in one line."""
    p: TimePoint = finding.after
    direction = "slower" if finding.percent > 0 else "faster"
    why = "; ".join(finding.reasons) or "nothing else that is recorded changed"
    if finding.change.blame == "kernel" and not p.reference:
        why = f"other machine code; {why}" if finding.reasons else "other machine code"
    return (
        f"{series.case} on {p.gpu}: {abs(finding.percent):.1f} % {direction} (± {2 * finding.error:.1f}) "
        f"since run {p.run}, {commits(finding)}; {BLAMES[finding.change.blame]}: {why}"
    )


def lines(result: Trends) -> list[tuple[str, str]]:
    """The news as (level, sentence), most severe first; levels as in GitHub's annotations."""
    return [
        *(
            (level if f.percent > 0 else "notice", sentence(s, f))
            for blame, level in zip(BLAMES, ("error", "warning", "notice"), strict=True)
            for s, f in result.news(blame)
        ),
        *remarks(result),
    ]


def remarks(result: Trends) -> list[tuple[str, str]]:
    """What is no change of a case, as in :func:`lines`: missing cases, too few runs, what new nights did to all."""
    told = [("warning", f"{case}: not timed in the newest runs") for case in result.missing]
    if result.stale:
        told.append(("warning", "no trends: expected a run after that of --since, found none"))
    elif not any(s.judged for s in result.series):
        most = max((len(s.points) for s in result.series), default=0)
        told.append(
            (
                "warning",
                f"no trends: expected {detect.BEFORE + detect.AFTER} runs that timed a case, found at most {most}",
            )
        )
    return told + [("notice", night) for night in result.nights]
