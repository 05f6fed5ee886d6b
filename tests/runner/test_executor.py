"""The GPUs of this host as places of work."""

from __future__ import annotations

import pytest

from flashcore.machine import gpu_choice
from flashcore.machine.gpu import Gpu
from flashcore.runner.executor import ThisHost

GPU = Gpu("NVIDIA L4", (8, 9), 58, 1, 1, 1.0, "1")


@pytest.mark.parametrize(
    ("requested", "uuids", "named"),
    [("all", ["a"], False), ("all", ["a", "b"], True), ("1", ["a"], True), ("all", [], False)],
)
def test_the_one_gpu_of_a_host_is_not_named(
    requested: str, uuids: list[str], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_choice, "visible", lambda: dict.fromkeys(uuids, GPU))
    monkeypatch.setattr(gpu_choice, "chosen", lambda requested, visible, say: visible)
    gpus, pool = ThisHost().places(requested, print)
    assert [*gpus] == uuids == [*pool.uuids]
    assert [place.gpu for place in pool.places] == (uuids if named else [])
