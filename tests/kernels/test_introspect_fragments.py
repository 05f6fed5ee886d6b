"""Introspection: the machine's answer becomes the header, and an answer that cannot be is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError, Exit, FlashcoreError
from flashcore.machine.gpu import Gpu
from tests.conftest import ROOT

SUITE = ROOT / "kernels/attention"


def loaded(path: Path) -> Any:
    """A Python file of the suite as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fragment(tmp_path: Path) -> Any:
    """The problem, with a copy of the committed header."""
    module = loaded(SUITE / "fragment.py")
    text = module.HEADER.read_text(encoding="utf-8")
    module.HEADER = tmp_path / "fragment_table.cuh"
    module.HEADER.write_text(text, encoding="utf-8")
    module.committed.__defaults__ = (module.HEADER,)
    return module


def answer(table: list[list[tuple[int, int]]]) -> dict[str, Any]:
    """The answer of a machine with that table."""
    owner = [[-1] * 16 for _ in range(16)]
    for lane, slots in enumerate(table):
        for slot, (row, col) in enumerate(slots):
            owner[row][col] = lane * 8 + slot
    return {"table": [[list(cell) for cell in slots] for slots in table], "owner": owner}


def test_a_machine_that_answers_as_committed_changes_nothing(fragment: Any) -> None:
    table, (machine, *_) = fragment.committed()
    path, text, news = fragment.rewritten(answer(table), machine)
    assert path == fragment.HEADER
    assert text == path.read_text(encoding="utf-8")
    assert news == []


def test_another_machine_with_the_same_table_is_added(fragment: Any) -> None:
    table, machines = fragment.committed()
    path, text, news = fragment.rewritten(answer(table), 121)
    assert news == ["the table holds on 121 too"]
    path.write_text(text, encoding="utf-8")
    assert fragment.committed() == (table, [*machines, 121])


def test_another_table_is_that_machines_alone(fragment: Any) -> None:
    table, _ = fragment.committed()
    other = [*table[4:8], *table[:4], *table[8:]]  # two groups of lanes, the one in the other's place
    path, text, news = fragment.rewritten(answer(other), 121)
    assert news == ["64 of 256 slots differ from the table found on 90"]
    path.write_text(text, encoding="utf-8")
    assert fragment.committed() == (other, [121])


def test_without_a_table_one_is_written(fragment: Any) -> None:
    table, _ = fragment.committed()
    fragment.HEADER.unlink()
    _, text, news = fragment.rewritten(answer(table), 90)
    assert news == ["there was no table"] and "kFragmentFoundOn[] = {90}" in text


def test_answers_that_contradict_themselves_are_refused(fragment: Any) -> None:
    table, _ = fragment.committed()
    twice = [[table[0][0], *table[0][1:]], [table[0][0], *table[1][1:]], *table[2:]]
    with pytest.raises(ValueError, match="coverage"):
        fragment.rewritten({**answer(table), "table": twice}, 90)
    crossed = answer(table)
    crossed["owner"][0][0], crossed["owner"][0][1] = crossed["owner"][0][1], crossed["owner"][0][0]
    with pytest.raises(ValueError, match="stores it"):
        fragment.rewritten(crossed, 90)


@pytest.fixture
def script(fragment: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with the problem whose header is a copy."""
    module = loaded(SUITE / "introspect_fragments.py")
    monkeypatch.setattr(module, "load_problem", lambda *_: fragment)
    return module


GPU = Gpu("a GPU", (12, 1), 132, 1 << 37, 60 << 20, 1980.0, "580.65")


def test_the_answer_is_written_once(fragment: Any, script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table, machines = fragment.committed()
    assert script.keep(answer(table), GPU, check=True) == Exit.FAILED
    assert fragment.committed() == (table, machines), "a check writes nothing"
    assert script.keep(answer(table), GPU, check=False) == Exit.OK
    assert fragment.committed() == (table, [*machines, 121])
    assert script.keep(answer(table), GPU, check=True) == Exit.OK
    assert "as committed" in capsys.readouterr().out


def test_an_answer_that_cannot_be_is_an_error_that_says_why(fragment: Any, script: Any) -> None:
    table, _ = fragment.committed()
    with pytest.raises(FlashcoreError, match=r"a GPU is none: coverage"):
        script.keep(answer([[table[0][1], *table[0][1:]], *table[1:]]), GPU, check=False)


def test_it_needs_a_gpu(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(device: str) -> None:
        raise CapabilityError("no CUDA GPU", "plug one in")

    monkeypatch.setattr(script, "require_device", none)
    assert script.main([]) == Exit.INCAPABLE
    assert "no CUDA GPU\n  hint: plug one in" in capsys.readouterr().err
