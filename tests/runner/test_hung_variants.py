"""Which variants hung, by the results of their tasks."""

from __future__ import annotations

from flashcore.model.causes import Hang, HungBefore
from flashcore.runner.hung_variants import hung
from flashcore.runner.journal import Task, TaskResult, TaskStep


def test_a_shape_that_is_named_as_a_variant_that_hung_is_run() -> None:
    hang = Hang(1.0, "spin cold")
    assert hung([TaskResult("s65", "failed", hang, step=TaskStep("cold", "spin"))]) == {"spin": HungBefore("s65", hang)}
    assert hung([TaskResult("s65", "failed", Hang(1.0))]) == {}
    assert Task("spin", {}).variant == ""
