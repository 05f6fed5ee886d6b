"""Plans in processes that take turns, on the stand-in of CUDA's driver."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extensions.judge.tests.driver import machine, made, plan
from flashcore.errors import CapabilityError
from flashcore_judge.launcher.plan import Plan
from flashcore_judge.measuring import PROCESSES, ROUNDS, SAMPLES, Player, Process, Runnable, Trials

__all__ = ["machine", "made"]
CONTENTS = range(1 + 3 * SAMPLES)  # three for each sample


def cubins(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.cubin")}


Start = Callable[..., list[Process]]


@pytest.fixture
def start(stand_in: None, tmp_path: Path) -> Iterator[Start]:
    """Starts processes, and makes inputs of these numbers."""
    started: list[Process] = []

    def start(count: int = PROCESSES, contents: Sequence[int] = CONTENTS) -> list[Process]:
        inputs = tmp_path / "inputs"
        inputs.mkdir(exist_ok=True)
        for number in contents:
            (inputs / f"x.{number}.raw").write_bytes(Random(number).randbytes(256))
        made = [Process(Path(tempfile.mkdtemp(dir=tmp_path)), inputs, "GPU-a") for _ in range(count)]
        for one in made:
            one.ready()
        started.extend(made)
        return made

    yield start
    for one in started:
        one.close()


def trials(processes: Sequence[Process], seconds: float = 1000.0) -> Trials:
    return Trials(processes, (), True, time.monotonic() + seconds)


def faults(one: Trials) -> list[str]:
    """Its reasons, without those of the host's clock: a busy machine may interrupt every call of the stand-in."""
    return [reason for reason in one.reasons if "the clocks disagree" not in reason]


def test_a_rival_is_timed_in_turns(start: Start, made: Path) -> None:
    both = trials(start())
    contents = itertools.cycle(range(200, 209))
    rival = Player(start(1, range(200, 209))[0], Runnable(plan("inc_and_copy_bytes"), cubins(made)), contents)
    both.time(Runnable(plan(), cubins(made)), rival, CONTENTS, 9, 3)
    assert not faults(both)
    for figures in both.times.values():
        assert figures["speedup"]["value"] == figures["a_a"]["value"] == 1.0
        assert figures["samples"] == PROCESSES * ROUNDS
    assert both.compared == PROCESSES * len(CONTENTS)
    assert {content for content, _ in both.outputs} <= {*CONTENTS}


@pytest.mark.parametrize(
    ("kernel", "calls", "runs"),
    [
        pytest.param("keep_copy", 1, 2, id="answers that are kept answer no later call"),
        pytest.param("keep_copy", 3, 2, id="nor any of several"),
        pytest.param("spy_copy", 3, 3, id="no input lies in memory but where its call reads it"),
        pytest.param("stale_copy", 3, 3, id="no answer stands in the output of a call"),
    ],
)
def test_what_gains_nothing(start: Start, made: Path, kernel: str, calls: int, runs: int) -> None:
    one = trials(start())
    one.time(Runnable(plan(kernel), cubins(made)), None, CONTENTS[: 1 + calls * SAMPLES], 9, runs)
    assert not faults(one) and [figures["us"] for figures in one.times.values()] == [3.0, 3.0]


def test_each_timed_call_must_do_its_work(start: Start, made: Path) -> None:
    one = trials(start())
    one.time(Runnable(plan("odd_copy"), cubins(made)), None, CONTENTS, 9, 3)
    assert any("calls on the same input gave different bytes" in reason for reason in one.reasons)


def test_what_a_timed_call_writes_beside_its_tensors_is_noticed(start: Start, made: Path) -> None:
    one = trials(start())
    arguments = [[{"tensor": "x"}], [{"tensor": "y"}], [{"hex": "28010000"}]]  # 296 bytes
    one.time(Runnable(plan("inc_bytes", arguments=arguments), cubins(made)), None, CONTENTS, 9, 2)
    assert "it wrote 40 bytes outside its tensors" in one.reasons


def test_no_process_takes_an_input_twice(start: Start, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trials(start())
    taken: dict[Process, list[object]] = defaultdict(list)
    ask = one._ask

    def counted(_: Trials, process: Process, *command: object) -> object:
        taken[process] += command[2:] if command[0] == "call" else ()
        return ask(process, *command)

    monkeypatch.setattr(Trials, "_ask", counted)
    one.time(Runnable(plan(), cubins(made)), None, CONTENTS, 9, 2)
    assert [sorted(inputs, key=str) for inputs in taken.values()] == [sorted(CONTENTS, key=str)] * PROCESSES


def test_a_few_calls_that_do_no_work_change_no_time(start: Start, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    us = itertools.cycle([1.0, 7.0, 7.0])  # one of three calls of each sample
    one = trials(start())
    monkeypatch.setattr(Trials, "_call", lambda *words: (x := next(us) if words[2] else 0.0, x, x))
    one.time(Runnable(plan(), cubins(made)), None, CONTENTS, 9, 2)
    assert {figures["us"] for figures in one.times.values()} == {7.0}


@pytest.mark.parametrize(("deterministic", "kept"), [(True, 1 + 7), (False, PROCESSES * len(CONTENTS))])
def test_outputs_of_so_many_inputs_are_kept_or_all(start: Start, made: Path, deterministic: bool, kept: int) -> None:
    one = trials(start())
    one.deterministic = deterministic
    one.time(Runnable(plan(), cubins(made)), None, CONTENTS, 7, 2)
    assert len(one.outputs) == kept and one.compared == PROCESSES * len(CONTENTS)
    assert len(dict(one.outputs)) == (1 + 7 if deterministic else len(CONTENTS))


def test_a_process_takes_one_plan_after_another(start: Start, made: Path) -> None:
    processes = start(1)
    for kernel in ("copy_bytes", "inc_and_copy_bytes"):
        one = trials(processes)
        one.check(Runnable(plan(kernel), cubins(made)), CONTENTS[:2])
        assert not one.reasons
        for content, file in one.outputs:
            given = Random(content).randbytes(256)
            expected = given if kernel == "copy_bytes" else bytes((byte + 1) % 256 for byte in given)
            assert Path(f"{file}.y").read_bytes() == expected


def test_a_rival_that_fails_is_no_fault_of_the_candidate(start: Start, made: Path) -> None:
    both = trials(start())
    rival = Player(start(1, range(9))[0], Runnable(plan(block=[512, 4, 1]), cubins(made)), itertools.cycle(range(9)))
    with pytest.raises(CapabilityError, match="baseline failed"):
        both.time(Runnable(plan(), cubins(made)), rival, CONTENTS, 9, 3)


def test_a_candidate_whose_time_is_up_is_not_convicted(start: Start, made: Path) -> None:
    one = trials(start(1), seconds=0.0)
    with pytest.raises(CapabilityError, match="longer than its limit"):
        one.check(Runnable(plan(), cubins(made)), CONTENTS)
    assert not one.reasons


@pytest.mark.parametrize(
    ("host", "gpu", "convicts"),
    [
        (-90.0, [7.1, 7.1, None], False),  # a busy host
        (10.0, [7.0], True),  # forged events and a forged clock of the GPU
        (7.0, [7.7], True),  # forged events
        (7.0, [7.7, 7.7, None], True),  # and a host that is late for a third of the calls, which say nothing
        (7.0, [7.0, None, None], None),  # a host that is too busy to read the GPU's clock
    ],
)
def test_another_clock_that_sees_more_convicts(
    start: Start, made: Path, host: float, gpu: list[float | None], convicts: bool | None
) -> None:
    processes = start()
    for process in processes:
        ask, clocks = process.ask, itertools.cycle(gpu)

        def answer(*command: object, ask: Any = ask, clocks: Iterator[float | None] = clocks) -> Any:
            us = [7.0, host, *filter(None, [next(clocks)])] if command[0] == "call" else []
            return {**ask(*command), **({"us": us} if us else {})}

        process.ask = answer  # type: ignore[method-assign]
    one = trials(processes)
    with pytest.raises(CapabilityError, match="late") if convicts is None else contextlib.nullcontext():
        one.time(Runnable(plan(), cubins(made)), None, CONTENTS, 9, 2)
    assert bool(one.reasons) is bool(convicts)


def test_its_process_has_its_folder_and_inputs_only(start: Start, made: Path, tmp_path: Path) -> None:
    (process,) = start(1)
    (tmp_path / "secret").write_bytes(bytes(256))
    (tmp_path / "inputs" / "x.2.raw").unlink()
    (tmp_path / "inputs" / "x.2.raw").symlink_to(tmp_path / "secret")
    one = trials([process])
    one.check(Runnable(plan(), cubins(made)), CONTENTS[:3])
    if not process.device["confined"]:
        pytest.skip("system: no Landlock")
    assert "x.2.raw: expected a file" in one.reasons[0] and {content for content, _ in one.outputs} == {0, 1}


@pytest.mark.parametrize(
    ("firsts", "outcome"),
    [
        ([7.0, 7.0], "accepted"),
        ([7.0, 90.0], "accepted"),  # one of the processes may be disturbed
        ([90.0, 90.0], "rejected"),
        ([None, 90.0], "rejected"),
        ([None, None], "unmeasured"),  # only events timed it
    ],
)
def test_a_first_call_that_is_slower_than_later_ones_convicts(
    start: Start, made: Path, firsts: list[float | None], outcome: str
) -> None:
    processes = start()
    for process, first in zip(processes, firsts, strict=True):
        ask, clocks = process.ask, itertools.chain([first], itertools.repeat(7.0))

        def answer(*command: object, ask: Any = ask, clocks: Iterator[float | None] = clocks) -> Any:
            us = [7.0, 7.0, *filter(None, [next(clocks)])] if command[0] == "call" else []
            return {**ask(*command), **({"us": us} if us else {})}

        process.ask = answer  # type: ignore[method-assign]
    for new in (True, False):
        one = trials(processes)
        one.new = new
        unmeasured = new and outcome == "unmeasured"
        with pytest.raises(CapabilityError, match="first call") if unmeasured else contextlib.nullcontext():
            one.time(Runnable(plan(), cubins(made)), None, CONTENTS, 9, 2)
        assert bool(one.reasons) is (new and outcome == "rejected")
        assert (one.first_us is None) is (unmeasured or not new)


def test_hashes_are_of_all_bytes_and_of_a_secret(start: Start, made: Path) -> None:
    (process,) = start(1)
    inputs = process.folder.parent / "inputs"

    def hashed(number: int, content: bytes) -> str:
        (inputs / f"x.{number}.raw").write_bytes(content)
        return str(process.ask("call", "isolated", number)["hash"])

    size, every = 4099, list[str]()
    data = plan(
        arguments=[[{"tensor": "x"}], [{"tensor": "y"}], [{"hex": size.to_bytes(4, "little").hex()}]]
    ).model_dump()
    for tensor in data["tensors"].values():
        tensor["sizes"] = [size]
    for _ in range(2):
        one = trials([process])
        one._load(process, Runnable(Plan.model_validate(data), cubins(made)))
        contents = [bytes(size)] + [bytes(at) + b"\1" + bytes(size - 1 - at) for at in (0, 3, 4, 1023, 1024, size - 1)]
        hashes = [hashed(100 + number, content) for number, content in enumerate(contents)]
        assert len({*hashes}) == len(contents) and hashed(200, contents[3]) == hashes[3]
        every += hashes[1:]
    assert len({*every}) == len(every), "another secret gives other hashes"
