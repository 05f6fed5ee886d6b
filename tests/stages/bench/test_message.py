"""The child's measurements arrive unchanged, or are refused as another version's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flashcore.errors import RecordError
from flashcore.model.causes import Hang
from flashcore.stages.bench.message import CaseTimes, ShapeTimes

TIMES = CaseTimes(
    samples={"isolated": [1.0, 2.0]}, calls={"isolated": [3.0]}, kernel_clock={"kernel_span": 4.0}, kernels=None,
    copies=1, launches=2, eager_calls=3, seconds=0.5, stopped=["cold"],
)  # fmt: skip
MESSAGE = ShapeTimes(
    variants={"fast": TIMES}, failed={"slow": Hang(2)}, empty={"isolated": [0.5]}, clock="events", doubt=0.1,
    state={"gpu": 1},
)  # fmt: skip


def test_a_message_survives_json() -> None:
    assert ShapeTimes.from_json(json.loads(json.dumps(MESSAGE.to_json()))) == MESSAGE


@pytest.mark.parametrize(
    "change",
    [
        {"variants": None},
        {"variants": {"fast": {}}},
        {"failed": {"slow": {"code": "unheard_of"}}},
        {"failed": {"slow": 3}},
        {"more": 1},
    ],
)
def test_another_versions_message_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="measure again"):
        ShapeTimes.from_json({**MESSAGE.to_json(), **change})
    with pytest.raises(RecordError):
        ShapeTimes.from_json({k: v for k, v in MESSAGE.to_json().items() if k not in change and k != "clock"})
