"""Selects a part of a recorded run."""

from __future__ import annotations

from dataclasses import replace

from flashcore.model.record import Facts, Record
from flashcore.model.suite import Suite


def narrowed(record: Record, suite: Suite) -> Record:
    """The record with only the variants, shapes and archs of a suite; it keeps its own suite."""

    variants, shapes, archs = {*suite.variants}, {None, *suite.shapes}, {None, *suite.archs}

    def has(variant: str, shape: str | None = None, arch: str | None = None) -> bool:
        return variant in variants and shape in shapes and arch in archs

    return replace(
        record,
        facts=Facts(f for f in record.facts if has(f.subject.variant, f.subject.shape, f.subject.arch)),
        raw_samples={(c, mode): s for (c, mode), s in record.raw_samples.items() if has(c.variant, c.shape)},
        artifacts=tuple(a for a in record.artifacts if has(a.variant, arch=a.arch)),
        plans=tuple(p for p in record.plans if has(p.variant, p.shape)),
        outcomes=tuple(o for o in record.outcomes if has(o.variant, o.shape)),
    )
