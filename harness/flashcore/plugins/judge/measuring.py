"""Runs a candidate's plan in processes of ``trial.cpp``, which take turns, and keeps what is to be judged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashcore.measure.machine.toolchain import host_program
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.launcher import program
from flashcore.plugins.launcher.plan import Plan
from flashcore.plugins.launcher.program import Launcher, LauncherError

MODES = ("isolated", "cold")
#: Two processes, with tensors at other addresses: their ratio is what a difference of times must exceed.
PROCESSES = 2
_LIMIT_S = 30.0
#: Other clocks may see this share and these us more, and the host's no less than half.
_CLOCKS, _CLOCKS_US = 1.25, 6.0
_DICE = secrets.SystemRandom()
_LAUNCHER = Path(program.__file__).parent


@dataclass(frozen=True, slots=True)
class Output:
    """An output that the judge looks at: the content that it belongs to, and its files by tensor."""

    content: int
    files: dict[str, str]


@dataclass(slots=True)
class Measured:
    """What came back from the processes that ran a plan on a shape."""

    device: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    times: dict[str, list[list[float]]] = field(default_factory=dict)  # mode → of each process
    compared: int = 0  # timed calls whose bytes were compared


def built() -> Path:
    """The program that runs plans for the judge."""
    headers = b"".join(path.read_bytes() for path in sorted(_LAUNCHER.glob("*.hpp")))
    flags = ("-std=c++17", "-O2", f"-I{_LAUNCHER}", f"-DHEADERS=0x{hashlib.sha256(headers).hexdigest()[:8]}")
    return host_program(
        Path(__file__).with_name("trial.cpp"), (*flags, "-static-libstdc++", "-static-libgcc", "-ldl"), "trial"
    )


class Trials:
    """A plan on a shape.

    Args:
        folder: where cubins and contents are, and outputs will be.
        deterministic: whether calls on equal inputs must give equal bytes.
    """

    def __init__(self, plan: Plan, folder: Path, deterministic: bool, environment: Mapping[str, str] | None) -> None:
        self._plan, self._folder, self._deterministic, self._environment = plan, folder, deterministic, environment
        self._written = [name for name, tensor in plan.tensors.items() if tensor.role in ("output", "inout")]
        self._hashes: dict[int, set[str]] = {}
        self._decks: dict[Launcher, list[int]] = {}  # contents that a process has not had
        self.measured = Measured()

    def run(self, contents: int, rounds: int, state: Sequence[tuple[str, str]]) -> None:
        """Calls the plan twice on each content, or times it on random ones.

        Args:
            rounds: samples per process and mode; 0: it is not timed.
            state: cubin and name of global variables, which are written before each call.
        """
        made = self.measured
        with contextlib.ExitStack() as stack:
            try:
                arguments = (self._plan, self._folder, _LIMIT_S, self._environment, built())
                runs = [stack.enter_context(program.launcher(*arguments)) for _ in range(PROCESSES if rounds else 1)]
                made.device = {k: v for k, v in runs[0].device.items() if k != "event"}
                for run in runs:
                    for cubin, name in state:
                        run.ask("state", cubin, name)
                    if rounds:  # loads the kernels, on inputs that no timed call has
                        run.ask("once", contents - 1)
                for content in () if rounds else range(contents):
                    self._check(runs[0], content)
                for mode in MODES if rounds else ():
                    self._time(runs, mode, contents - 1, rounds)
            except LauncherError as error:
                made.reasons.append(untrusted(error))
        different = sum(len(values) > 1 for values in self._hashes.values())
        if self._deterministic and different:
            inputs = f"{different} of {len(self._hashes)} inputs"
            made.reasons.append(
                f"calls on the same input gave different bytes, on {inputs}: a race, or unwritten elements"
            )

    def _check(self, run: Launcher, content: int) -> None:
        """Two calls. The bytes before them differ, so that unwritten elements differ too."""
        for _ in range(2):
            answer = run.ask("once", content)
            if answer["outside"]:
                self.measured.reasons.append(f"it wrote {answer['outside']} bytes outside its tensors")
            if answer["changed"]:
                self.measured.reasons.append(f"it changed its inputs: {answer['changed']}")
            self._look(run, [content], answer)

    def _time(self, runs: Sequence[Launcher], mode: str, timed: int, rounds: int) -> None:
        series: dict[Launcher, list[float]] = {run: [] for run in runs}
        host: list[float] = []
        for _ in range(rounds):
            for run in _DICE.sample(runs, len(runs)):
                answer = self._sample(run, "trial", mode, timed)
                series[run] += answer["us"]
                host += answer["host_us"]
        self.measured.times[mode] = [*series.values()]
        between = min(self._sample(run, "events", mode, timed)["us"][0] for run in runs)
        us = statistics.median([us for each in series.values() for us in each])
        self.measured.reasons += _clocks(mode, us, host, between)

    def _sample(self, run: Launcher, command: str, mode: str, timed: int) -> Any:
        count, deck = min(run.sets, timed), self._decks.setdefault(run, [])
        if len(deck) < count:
            deck[:] = _DICE.sample(range(timed), timed)
        contents = [deck.pop() for _ in range(count)]
        answer = run.ask(command, mode, count, *contents)
        self.measured.compared += count
        self._look(run, contents, answer)
        return answer

    def _look(self, run: Launcher, contents: Sequence[int], answer: Mapping[str, Any]) -> None:
        """Keeps one call's outputs, chosen when it has run. Of equal bytes on an input one is enough."""
        for content, value in zip(contents, answer["hashes"].split(), strict=True):
            self._hashes.setdefault(content, set()).add(value)
        call = _DICE.randrange(len(contents))
        if self._deterministic and contents[call] in (output.content for output in self.measured.outputs):
            return
        files = {name: f"{secrets.token_hex(8)}.out" for name in self._written}
        for name, file in files.items():
            run.ask("result", call, name, file)
        paths = {name: os.path.join(self._folder, file) for name, file in files.items()}
        self.measured.outputs.append(Output(contents[call], paths))


def _clocks(mode: str, us: float, host: list[float], between: float) -> list[str]:
    """Compares the time with the host's clock, which no forged event moves, and with the events around single calls,
    which no changed spacer shortens."""
    low, high = min(host), max(host)  # a busy host adds to some samples, a forged event to all
    if low > _CLOCKS * us + _CLOCKS_US or high < us / 2 - _CLOCKS_US or between > _CLOCKS * us + _CLOCKS_US:
        others = f"{low:.2f} to {high:.2f} us by the host's clock, {between:.2f} us by events around single calls"
        return [f"{mode}: the clocks disagree: {us:.2f} us by difference, {others}"]
    return []
