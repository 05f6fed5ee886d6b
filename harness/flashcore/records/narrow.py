"""Selects a part of a recorded run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from flashcore.model.record import Facts, Record
from flashcore.suites import load


def narrowed(record: Record, variants: Collection[str], shapes: Collection[str], archs: Collection[str]) -> Record:
    """The record with only these variants, shapes and archs."""

    def has(variant: str, shape: str | None = None, arch: str | None = None) -> bool:
        return variant in variants and (shape is None or shape in shapes) and (arch is None or arch in archs)

    return replace(
        record,
        suite=load.narrowed(record.suite, variants, shapes, archs),
        facts=Facts(f for f in record.facts if has(f.subject.variant, f.subject.shape, f.subject.arch)),
        samples={key: samples for key, samples in record.samples.items() if has(*key.split("/")[:2])},
        artifacts=tuple(a for a in record.artifacts if has(a.variant, arch=a.arch)),
        plans=tuple(p for p in record.plans if has(p.variant, p.shape)),
        outcomes=tuple(o for o in record.outcomes if has(o.variant, o.shape)),
    )
