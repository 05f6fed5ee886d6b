"""The outcomes of a process's tasks, from its journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError
from flashcore.model.cause import as_json
from flashcore.model.causes import Hang
from flashcore.runner.journal import NO_STEP, Step, Task
from flashcore.runner.program import Child, Program


class Quiet(Child):
    """A process that does nothing."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def watch(self) -> Iterator[None]:
        yield None


def test_a_child_follows_its_own_tasks_alone(tmp_path: Path) -> None:
    child = Quiet(tmp_path, [Task("a", {}), Task("b", {})], Program(command=lambda *_: ()))

    def follow(*lines: dict[str, Any]) -> list[str]:
        return [result.name for result in child.follow(lines)]

    begin: dict[str, Any] = {"event": "begin", "name": "a"}
    assert follow(begin, {"event": "step", "name": "a", "step": "warm-up", "variant": "v"}) == []
    assert (child.current, child.step, child.has_answered) == ("a", Step("warm-up", "v"), False)
    assert follow({"event": "result", "name": "other", "data": None}) == [] and child.open == {"a", "b"}
    answer: dict[str, Any] = {"event": "result", "name": "a", "data": None}
    assert follow(answer, answer) == ["a"] and child.has_answered and child.open == {"b"} and child.current is None
    follow({**begin, "name": "b"})
    assert child.step == NO_STEP
    follow({"event": "fail", "name": "b", "cause": as_json(Hang(2)), "poisoned": True})
    assert child.poisoned
    child.raise_if_unrecoverable()
    follow({"event": "lacks", "what": "no GPU", "hint": "use one"})
    with pytest.raises(CapabilityError, match="no GPU"):
        child.raise_if_unrecoverable()
