"""Runs a candidate's plan in processes of ``trial.cpp``, which take turns, and keeps what is to be judged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import CapabilityError
from flashcore.measure.bench.interleave import Watch, state_values
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


class Runnable(NamedTuple):
    """A plan on a shape, and the folder of its cubins."""

    plan: Plan
    cubins: Path


class Output(NamedTuple):
    """An output that the judge looks at: the content that it belongs to, and its files by tensor."""

    content: int
    files: dict[str, str]


def built() -> Path:
    """The program that runs plans for the judge."""
    headers = b"".join(path.read_bytes() for path in sorted(_LAUNCHER.glob("*.hpp")))
    flags = ("-std=c++17", "-O2", f"-I{_LAUNCHER}", f"-DHEADERS=0x{hashlib.sha256(headers).hexdigest()[:8]}")
    return host_program(
        Path(__file__).with_name("trial.cpp"), (*flags, "-static-libstdc++", "-static-libgcc", "-ldl"), "trial"
    )


@dataclass(slots=True)
class Trials:
    """The processes that run a plan on a shape, and what comes back from them.

    Args:
        one: the candidate's plan. ``rival``: another, which is timed in turns with it.
        folder: where contents are, and cubins and outputs will be.
        state: cubin and name of global variables, which are written before each call.
        deterministic: whether calls on equal inputs must give equal bytes.
        times: mode → us of each process's samples. ``rival_times``: mode → us of the rival's.
        compared: timed calls whose bytes were compared.
        gpu: the GPU's state while it timed, by the fact's name.
    """

    one: Runnable
    rival: Runnable | None
    folder: Path
    state: Sequence[tuple[str, str]]
    deterministic: bool
    environment: Mapping[str, str] | None
    device: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    times: dict[str, list[list[float]]] = field(default_factory=dict)
    rival_times: dict[str, list[float]] = field(default_factory=dict)
    compared: int = 0
    gpu: dict[str, Any] = field(default_factory=dict)
    _hashes: dict[int, set[str]] = field(default_factory=dict)
    #: The contents of a process's calls, and those of them that it has not had.
    _decks: dict[Launcher, tuple[range, list[int]]] = field(default_factory=dict)
    _rival: Launcher | None = None

    def run(self, contents: int, rounds: int) -> None:
        """Calls the plan twice on each content, or times it on random ones.

        Args:
            rounds: samples per process and mode; 0: it is not timed.

        Raises:
            CapabilityError: the rival fails, which is the suite's or the machine's fault.
        """
        with contextlib.ExitStack() as stack:
            if self.rival and rounds:
                self._rival = self._started(stack, self.rival)
            try:
                runs = [self._started(stack, self.one) for _ in range(PROCESSES if rounds else 1)]
                for run in runs:
                    for cubin, name in self.state:
                        run.ask("state", cubin, name)
                if rounds:
                    self._time(runs, contents - 1, rounds)
                else:
                    self._check(runs[0], contents)
            except LauncherError as error:
                self.reasons.append(untrusted(error))
        different = sum(len(values) > 1 for values in self._hashes.values())
        if self.deterministic and different:
            inputs = f"{different} of {len(self._hashes)} inputs"
            self.reasons.append(
                f"calls on the same input gave different bytes, on {inputs}: a race, or unwritten elements"
            )

    def _started(self, stack: contextlib.ExitStack, one: Runnable) -> Launcher:
        for name in {launch.cubin for launch in one.plan.launches}:
            shutil.copyfile(one.cubins / name, self.folder / name)
        run = stack.enter_context(program.launcher(one.plan, self.folder, _LIMIT_S, self.environment, built()))
        self.device = {k: v for k, v in run.device.items() if k != "event"}
        return run

    def _check(self, run: Launcher, contents: int) -> None:
        """Two calls on each content. The bytes before them differ, so that unwritten elements differ too."""
        for content in (i for i in range(contents) for _ in range(2)):
            answer = run.ask("once", content)
            if answer["outside"]:
                self.reasons.append(f"it wrote {answer['outside']} bytes outside its tensors")
            if answer["changed"]:
                self.reasons.append(f"it changed its inputs: {answer['changed']}")
            self._look(run, [content], answer)

    def _time(self, runs: Sequence[Launcher], timed: int, rounds: int) -> None:
        # What a rival answers is on the GPU: no call of the candidate has the same input.
        share = max(2, timed // 4) if self._rival else 0
        self._decks = {run: (range(share, timed), []) for run in runs}
        if self._rival:
            self._decks[self._rival] = range(share), []
        for run in self._decks:  # loads the kernels, on inputs that no timed call has
            run.ask("once", timed)
        watch = Watch("cuda", self.device["uuid"], processes=len(self._decks) + 1)  # and the suite's
        for mode in MODES:
            series: dict[Launcher, list[float]] = {run: [] for run in self._decks}
            host: list[float] = []
            for _ in range(rounds):
                for run in _DICE.sample([*series], len(series)):
                    answer = self._sample(run, "trial", mode)
                    series[run] += answer["us"]
                    host += answer["host_us"] if run in runs else ()
                watch.look()
            if self._rival:
                self.rival_times[mode] = series.pop(self._rival)
            self.times[mode] = [*series.values()]
            between = min(self._sample(run, "events", mode)["us"][0] for run in runs)
            us = statistics.median([us for each in self.times[mode] for us in each])
            self.reasons += _clocks(mode, us, host, between)
        self.gpu = state_values(watch.seen)

    def _sample(self, run: Launcher, command: str, mode: str) -> Any:
        share, deck = self._decks[run]
        count = min(run.sets, len(share))
        if len(deck) < count:
            deck[:] = _DICE.sample(share, len(share))
        contents = [deck.pop() for _ in range(count)]
        try:
            answer = run.ask(command, mode, count, *contents)
        except LauncherError as error:
            if run is self._rival:
                raise CapabilityError(f"the suite's baseline failed: {error}", "run flashcore check") from None
            raise
        if run is not self._rival:
            self.compared += count
            self._look(run, contents, answer)
        return answer

    def _look(self, run: Launcher, contents: Sequence[int], answer: Mapping[str, Any]) -> None:
        """Keeps one call's outputs, chosen when it has run. Of equal bytes on an input one is enough."""
        for content, value in zip(contents, answer["hashes"].split(), strict=True):
            self._hashes.setdefault(content, set()).add(value)
        call = _DICE.randrange(len(contents))
        if self.deterministic and contents[call] in (output.content for output in self.outputs):
            return
        files = {}
        for name, tensor in self.one.plan.tensors.items():
            if tensor.role in ("output", "inout"):
                file = f"{secrets.token_hex(8)}.out"
                run.ask("result", call, name, file)
                files[name] = os.path.join(self.folder, file)
        self.outputs.append(Output(contents[call], files))


def _clocks(mode: str, us: float, host: list[float], between: float) -> list[str]:
    """Compares the time with the host's clock, which no forged event moves, and with the events around single calls,
    which no changed spacer shortens."""
    low, high = min(host), max(host)  # a busy host adds to some samples, a forged event to all
    if low > _CLOCKS * us + _CLOCKS_US or high < us / 2 - _CLOCKS_US or between > _CLOCKS * us + _CLOCKS_US:
        others = f"{low:.2f} to {high:.2f} us by the host's clock, {between:.2f} us by events around single calls"
        return [f"{mode}: the clocks disagree: {us:.2f} us by difference, {others}"]
    return []
