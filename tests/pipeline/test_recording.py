"""Records: joined with recorded ones, with what was taken and what is stale; and of references checked on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.measure.context import Context
from flashcore.measure.machine import toolchain
from flashcore.model.causes import CodeChanged
from flashcore.model.record import Built, Measured, Origin, Record
from flashcore.pipeline.recording import Outcome, joined, recorded_before
from flashcore.records import assemble, store
from tests import factory, stages


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setattr(toolchain, "find_nvcc", lambda *_: None)
    return stages.context(tmp_path, profiles=str(tmp_path / "profiles"), records=(str(tmp_path / "more"),))


def test_what_was_joined_and_what_is_stale_is_told(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    outcome = Outcome((), Built("", (), ()), Measured())
    result = factory.bare_record(
        joined=(Origin("run-1", "L4", "sm_89", "5 facts"), Origin("run-2", "L4", "sm_89", "1 fact")),
        stale={"fast/mission": CodeChanged("device")},
    )
    monkeypatch.setattr(assemble, "record_of", lambda *_: result)
    assert joined(replace(context, say=messages.append), "id", outcome, [result]).stale == result.stale
    assert [line.split(" on ")[0] for line in messages] == [
        "join: 5 facts from run run-1",
        "join: 1 fact from run run-2",
        "join: 1 cases are stale or were never measured; they count as unmeasured",
    ]
    messages.clear()
    monkeypatch.setattr(assemble, "record_of", lambda *_: factory.bare_record())
    joined(replace(context, say=messages.append), "id", outcome, [])
    assert len(messages) == 1 and messages[0].startswith(f"join: no measured run of {context.suite.name} in ")
    plain = replace(context, settings=replace(context.settings, records=()), say=messages.append)
    joined(plain, "id", outcome, [])
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
    assert recorded_before(replace(context, settings=replace(context.settings, join=False)), None) == []


# --- references on a CPU ---


@pytest.mark.usefixtures("forked")
def test_peers_are_checked_on_a_cpu_and_nothing_is_recorded(
    copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Starts a process that imports torch: what peers do is seen nowhere else."""
    suite, peer = copy(), '\n[variant.half]\ncallable = "peers.py:half"\ntechnique = "wrong"\nroof = "fp32"\n'
    with (suite / "peers.py").open("a") as file:
        file.write("\n\ndef half(x, factor):\n    return x * factor / 2\n")
    with (suite / "suite.toml").open("a") as file:
        file.write(peer + 'tolerance = "rounded_once"\ntolerance_reason = "one multiplication"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--device", "cpu", "--suite", str(suite), "--repeats", "2", "-q"]) == 1
    told = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]}
    assert told == {"half/tail": "failed", "half/small": "failed", "torch_mul/tail": "ok", "torch_mul/small": "ok"}
    assert not (tmp_path / "profiles").exists()


@pytest.mark.usefixtures("forked")
def test_a_suite_without_peers_has_nothing_to_check(
    copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--device", "cpu", "--suite", str(copy()), "--variant", "plain", "-q"]) == 2
    assert "expected a reference to check on a CPU, found none" in capsys.readouterr().err
