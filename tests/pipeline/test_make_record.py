"""A run's record is joined with recorded ones, and the user is told what was taken and what is stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.machine import toolchain
from flashcore.model.causes import CodeChanged
from flashcore.model.record import Measured, Origin, Record
from flashcore.pipeline.make_record import joined, recorded_before
from flashcore.records import assemble, store
from flashcore.stages.context import Context
from tests import factory
from tests.support import staged


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setattr(toolchain, "find_nvcc", lambda *_: None)
    return staged.context(tmp_path, profiles=str(tmp_path / "profiles"), records=(str(tmp_path / "more"),))


def test_what_was_joined_and_what_is_stale_is_told(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    result = factory.bare_record(
        joined=(Origin("run-1", "L4", "sm_89", "5 facts"), Origin("run-2", "L4", "sm_89", "1 fact")),
        stale={"fast/mission": CodeChanged("device")},
    )
    monkeypatch.setattr(assemble, "record_of", lambda *_: result)
    assert joined(replace(context, say=messages.append), "id", Measured(), [result]).stale == result.stale
    assert [line.split(" on ")[0] for line in messages] == [
        "join: 5 facts from run run-1",
        "join: 1 fact from run run-2",
        "join: 1 case stale or never measured: unmeasured",
    ]
    messages.clear()
    monkeypatch.setattr(assemble, "record_of", lambda *_: factory.bare_record())
    joined(replace(context, say=messages.append), "id", Measured(), [])
    assert len(messages) == 1 and messages[0].startswith(f"join: no measured run of {context.suite.name} in ")
    plain = replace(context, settings=replace(context.settings, records=()), say=messages.append)
    joined(plain, "id", Measured(), [])
    assert len(messages) == 1


def test_runs_are_joined_unless_the_user_wants_none(context: Context) -> None:
    def write(record: Record) -> None:
        store.write(record, folder := store.begin(Path(context.settings.profiles), record.id))
        store.complete(folder)

    context = replace(context, settings=replace(context.settings, records=()))
    old, new = factory.record(id="20260101T000000Z-0001"), factory.record(id="20260103T000000Z-0001")
    write(old)
    write(new)
    assert [r.id for r in recorded_before(context, None)][:1] == [new.id]
    assert [r.id for r in recorded_before(context, new.id)] == [old.id]
    assert not [*recorded_before(replace(context, settings=replace(context.settings, join=False)), None)]
