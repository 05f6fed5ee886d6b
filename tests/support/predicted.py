"""Records with predictions."""

from __future__ import annotations

from collections.abc import Iterable

from flashcore.model.catalogue import FACTS
from flashcore.model.record import Fact, Record
from flashcore.model.suite import Prediction, Variant
from tests import factory


def predicted(
    fact: str, before: float | None, after: float | None, device: str | None = None, shape: str | None = "mission"
) -> Prediction:
    return Prediction(fact, before, after, FACTS[fact].unit, "FlashCore design 001", device, shape)


def record(
    predictions: Iterable[Prediction] = (),
    facts: Iterable[Fact] = (),
    times: dict[str, float] | None = None,
    more: Iterable[Variant] = (),
) -> Record:
    variants = (
        factory.variant("slow", roof="fp32"),
        factory.variant("fast", parent="slow", predictions=tuple(predictions)),
        *more,
        factory.reference("cudnn"),
    )
    return factory.record(factory.suite(variants), facts, times)


SHARES = {"phase_share_load": 20.0, "phase_share_softmax": 52.4, "phase_share_other": 27.6}
