"""A record with sources whose advice its own times contradict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from flashcore.features.compare import page as compare_page
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, CountedInstruction, Listing, Record
from tests import factory
from tests.support.pages import full

MORE = [compare_page.page]


def with_source(record: Record, texts: Mapping[str, Sequence[str]]) -> Record:
    """The record with these lines as the source of each variant, from line 10 on."""
    listings = [
        Listing(
            CaseSubject(Case(v, "mission"), kernel=f"{v}_kernel"),
            tuple(
                CountedInstruction(16 * i, "NOP", f"{v}.cu", 10 + i, t, {"samples": 1.0}) for i, t in enumerate(lines)
            ),
        )
        for v, lines in texts.items()
    ]
    return dataclasses.replace(record, listings=tuple(listings))


def timed(record: Record, case: str, **us: float) -> Record:
    """The record with other samples of a case, by mode."""
    at = Case.parse(case)
    series_of_case = {(at, mode): factory.samples(t, seed=i) for i, (mode, t) in enumerate(us.items())}
    facts = [f for mode in us for f in factory.timing_facts(at.variant, at.shape, mode, series_of_case[at, mode])]
    return dataclasses.replace(
        record, raw_samples={**record.samples, **series_of_case}, facts=type(record.facts)([*record.facts, *facts])
    )


def contradicting() -> Record:
    """``split`` is faster back to back than ``fast``, and slower by itself: as programmatic launches may be."""
    record = timed(full(), "split/mission", isolated=44.0, back_to_back=30.0, cold=52.0)
    lines = ["float x = 0;", "x += a[i];", "out[i] = x;"]
    return with_source(
        record, {"fast": [*lines, "return;"], "split": [lines[0], "x = fma(a[i], b, x);", lines[2], "return;"]}
    )
