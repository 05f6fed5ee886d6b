"""One judgement over runs of one suite on several chips: a verdict names its chip, and the worst exit code counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from flashcore.errors import worst
from flashcore.explain import chips
from flashcore.gate.judge import Judgement, Verdict, WaiverUse
from flashcore.gate.wording import summary
from flashcore.model.record import Record, Subject

_STATES = ("idle", "not needed", "expired", "holds", "exceeded")


@dataclass(frozen=True, slots=True)
class OnChip(Subject):
    """A subject as it was found on one chip of several."""

    chip: str = ""

    def __str__(self) -> str:
        return f"{Subject.__str__(self)} on {self.chip}"


def chip_of(subject: Subject) -> str:
    """The chip that a verdict of several is about; empty: all of them, or there is one."""
    return subject.chip if isinstance(subject, OnChip) else ""


def together(records: Sequence[Record], judgements: Sequence[Judgement]) -> Judgement:
    """The judgements of runs on several chips as one.

    What the compiler says alike in every run stands once; all else names its chip. A waiver has the strongest state
    that it has on any chip, and covers as many verdicts as on the chip where it covers most. ``left_out`` adds up.

    Raises:
        UsageError: see :func:`flashcore.explain.chips.names`.
    """
    if len(records) == 1:
        return judgements[0]
    called = chips.names(records)
    present = len({r.id for r in records}) == 1  # the present sources with what was recorded, and no runs themselves
    runs = ["" if present else f", run {r.id}" for r in records]
    found: dict[Verdict, dict[str, None]] = {}
    for chip, judgement in zip(called, judgements, strict=True):
        for verdict in judgement.verdicts:
            found.setdefault(verdict, {})[chip] = None
    return Judgement(
        tuple(
            v if chip is None else replace(v, subject=OnChip(**asdict(v.subject), chip=chip))
            for v, own in found.items()
            for chip in ([None] if v.tier == "static" and len(own) == len(called) else own)
        ),
        _waivers(use for j in judgements for use in j.waivers),
        (
            *(f"{c}{which}: {summary(j)}" for c, which, j in zip(called, runs, judgements, strict=True)),
            *_said(called, [j.notes for j in judgements]),
            *chips.notes(records),
        ),
        sum(j.left_out for j in judgements),
        judgements[0].require,
        worst(j.exit_code for j in judgements),
        tuple(_said(called, [j.relaxed for j in judgements])),
        tuple(_said(called, [j.trouble for j in judgements])),
        tuple(called),
    )


def _said(called: Sequence[str], each: Sequence[Sequence[str]]) -> list[str]:
    """Each text once if every chip has it, else behind its chip."""
    texts = dict.fromkeys(text for own in each for text in own)
    return [
        said
        for text in texts
        for said in (
            [text] if all(text in own for own in each) else
            [f"{c}: {text}" for c, own in zip(called, each, strict=True) if text in own]
        )
    ]  # fmt: skip


def _waivers(uses: Iterable[WaiverUse]) -> tuple[WaiverUse, ...]:
    by_waiver: dict[object, list[WaiverUse]] = {}
    for use in uses:
        by_waiver.setdefault(use.waiver, []).append(use)
    return tuple(
        replace(max(own, key=lambda use: _STATES.index(use.state)), covers=max(use.covers for use in own))
        for own in by_waiver.values()
    )
