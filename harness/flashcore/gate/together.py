"""Merges the results of one suite on several chips: verdicts name their chip, and the exit code is the worst."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from flashcore.errors import worst
from flashcore.explain import chips
from flashcore.gate.judge import WAIVER_STATES, Judgement, Verdict, WaiverUse
from flashcore.gate.wording import summary
from flashcore.model.groups import grouped
from flashcore.model.record import Record, Subject


@dataclass(frozen=True, slots=True)
class OnChip(Subject):
    """A subject on one of several chips."""

    chip: str = ""

    def __str__(self) -> str:
        return f"{Subject.__str__(self)} on {self.chip}"


def chip_of(subject: Subject) -> str:
    """The chip of a verdict; empty if it applies to all chips, or if there is only one."""
    return subject.chip if isinstance(subject, OnChip) else ""


def together(records: Sequence[Record], judgements: Sequence[Judgement]) -> Judgement:
    """Merges the results of runs on several chips.

    Static verdicts that are equal in every run appear once; all others name their chip. A waiver has its strongest
    state on any chip, and the largest number of covered verdicts. ``left_out`` is the sum.

    Raises:
        UsageError: see :func:`flashcore.explain.chips.names`.
    """
    if len(records) == 1:
        return judgements[0]
    chip_names = chips.names(records)
    present = len({r.id for r in records}) == 1  # the present sources, joined with recorded results
    runs = ["" if present else f", run {r.id}" for r in records]
    verdict_chips: dict[Verdict, dict[str, None]] = {}
    for chip, judgement in zip(chip_names, judgements, strict=True):
        for verdict in judgement.verdicts:
            verdict_chips.setdefault(verdict, {})[chip] = None
    return Judgement(
        tuple(
            v if chip is None else replace(v, subject=OnChip(**asdict(v.subject), chip=chip))
            for v, its_chips in verdict_chips.items()
            for chip in ([None] if v.tier == "static" and len(its_chips) == len(chip_names) else its_chips)
        ),
        _waivers(use for j in judgements for use in j.waivers),
        (
            *(f"{c}{run}: {summary(j)}" for c, run, j in zip(chip_names, runs, judgements, strict=True)),
            *_merged(chip_names, [j.notes for j in judgements]),
            *chips.notes(records),
        ),
        sum(j.left_out for j in judgements),
        judgements[0].require,
        worst(j.exit_code for j in judgements),
        tuple(_merged(chip_names, [j.relaxed for j in judgements])),
        tuple(_merged(chip_names, [j.trouble for j in judgements])),
        tuple(chip_names),
    )


def _merged(chip_names: Sequence[str], texts_by_chip: Sequence[Sequence[str]]) -> list[str]:
    """Each text once if every chip has it, else prefixed by its chips."""
    texts = dict.fromkeys(text for chip_texts in texts_by_chip for text in chip_texts)
    merged: list[str] = []
    for text in texts:
        chips_with = [c for c, chip_texts in zip(chip_names, texts_by_chip, strict=True) if text in chip_texts]
        merged += [text] if len(chips_with) == len(chip_names) else [f"{c}: {text}" for c in chips_with]
    return merged


def _waivers(uses: Iterable[WaiverUse]) -> tuple[WaiverUse, ...]:
    return tuple(
        replace(max(group, key=lambda use: WAIVER_STATES.index(use.state)), covers=max(use.covers for use in group))
        for group in grouped((use.waiver, use) for use in uses).values()
    )
