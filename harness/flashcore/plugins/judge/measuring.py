"""Runs a candidate's plan in processes of ``trial.cpp``, which take turns, and keeps what is to be judged."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import CapabilityError
from flashcore.measure.bench.interleave import Watch, state_values
from flashcore.measure.machine.gpu import uuids
from flashcore.measure.machine.toolchain import host_program
from flashcore.model import intervals
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
#: Calls of a replay that are judged in full.
_LOOKS = 2
_VARIABLES = ("CUDA_", "NVIDIA_", "LD_LIBRARY_PATH")
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
class _Player:
    """A plan in a process, which another replaces when it has had each of its contents: what a call keeps, wherever it
    keeps it, is no answer to a later call."""

    start: Callable[[], contextlib.AbstractContextManager[Launcher]]
    contents: range
    is_rival: bool
    us: Mapping[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by mode
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    run: Launcher = field(init=False)
    _deck: list[int] = field(default_factory=list)

    def play(self, command: str, mode: str) -> tuple[list[int], Any]:
        """Calls the plan on contents that its process has not had; returns these and the answer.

        Raises:
            CapabilityError: a rival fails, which is the suite's or the machine's fault.
        """
        try:
            if not self._deck:
                self.stack.close()
                self.run = self.stack.enter_context(self.start())
                self._deck = _DICE.sample(self.contents, len(self.contents))
            called = [self._deck.pop() for _ in range(min(self.run.sets, len(self._deck)))]
            return called, self.run.ask(command, mode, len(called), *called)
        except LauncherError as error:
            if self.is_rival:
                raise CapabilityError(f"the suite's baseline failed: {error}", "run flashcore check") from None
            raise


@dataclass(slots=True)
class Trials:
    """The processes that run a plan on a shape, and what comes back from them.

    Args:
        folder: where contents are, and cubins and outputs will be.
        state: cubin and name of global variables, which are written before each call.
        deterministic: whether calls on equal inputs must give equal bytes.
        times: mode → the verdict's figures.
        compared: timed calls whose bytes were compared.
        gpu: the GPU's state while it timed, by the fact's name.
    """

    folder: Path
    state: Sequence[tuple[str, str]]
    deterministic: bool
    environment: Mapping[str, str] | None
    device: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    times: dict[str, dict[str, Any]] = field(default_factory=dict)
    compared: int = 0
    gpu: dict[str, Any] = field(default_factory=dict)
    _hashes: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def run(self, one: Runnable, rival: Runnable | None, contents: Sequence[int], rounds: int) -> None:
        """Calls a candidate's plan twice on each content, or times it on random ones, in turns with a rival's.

        Args:
            contents: numbers; from 0 on if it is timed.
            rounds: samples per process and mode; 0: it is not timed.

        Raises:
            CapabilityError: the rival fails.
        """
        try:
            if rounds:
                self._time(one, rival, len(contents), rounds)
            else:
                self._check(one, contents)
        except LauncherError as error:
            self.reasons.append(untrusted(error))
        different = sum(len(values) > 1 for values in self._hashes.values())
        if self.deterministic and different:
            inputs = f"{different} of {len(self._hashes)} inputs"
            self.reasons.append(
                f"calls on the same input gave different bytes, on {inputs}: a race, or unwritten elements"
            )

    @contextlib.contextmanager
    def _process(self, one: Runnable, state: Sequence[tuple[str, str]] = ()) -> Iterator[Launcher]:
        for name in {launch.cubin for launch in one.plan.launches}:
            shutil.copyfile(one.cubins / name, self.folder / name)
        usual = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
        with program.launcher(one.plan, self.folder, _LIMIT_S, self.environment or usual, built()) as run:
            self.device = {k: v for k, v in run.device.items() if k != "event"}
            for cubin, name in state:
                run.ask("state", cubin, name)
            run.ask("once", 0)  # loads the kernels, on an input that no timed call has
            yield run

    def _check(self, one: Runnable, contents: Sequence[int]) -> None:
        """Two calls on each content. The bytes before them differ, so that unwritten elements differ too."""
        with self._process(one, self.state) as run:
            for content in (i for i in contents for _ in range(2)):
                answer = run.ask("once", content)
                if answer["outside"]:
                    self.reasons.append(f"it wrote {answer['outside']} bytes outside its tensors")
                if answer["changed"]:
                    self.reasons.append(f"it changed its inputs: {answer['changed']}")
                self._look(one.plan, run, [content], answer)

    def _time(self, one: Runnable, rival: Runnable | None, contents: int, rounds: int) -> None:
        # What a rival answers is on the GPU: no call of the candidate has the same input.
        share = 1 + max(2, contents // 4) if rival else 1
        start = functools.partial(self._process, one, self.state)
        players = [_Player(start, range(share, contents), is_rival=False) for _ in range(PROCESSES)]
        if rival:
            players.append(_Player(functools.partial(self._process, rival), range(1, share), is_rival=True))
        gpu = next(iter(uuids()), "")
        watch = Watch("cuda" if gpu else "cpu", gpu, processes=len(players) + 1)  # and the suite's
        with contextlib.ExitStack() as stack:
            for player in players:
                stack.enter_context(player.stack)
            for mode in MODES:
                host: list[float] = []
                for _ in range(rounds):
                    for player in _DICE.sample(players, len(players)):
                        answer = self._play(one.plan, player, "trial", mode)
                        player.us[mode] += answer["us"]
                        host += () if player.is_rival else answer["host_us"]
                    watch.look()
                ours, others = players[:PROCESSES], players[PROCESSES:]
                events = min(self._play(one.plan, player, "events", mode)["us"][0] for player in ours)
                time = _time([player.us[mode] for player in ours], [us for player in others for us in player.us[mode]])
                self.reasons += _clocks(mode, time["us"], host, events)
                self.times[mode] = time | {"host": statistics.median(host), "events": events}
        self.gpu = state_values(watch.seen)

    def _play(self, plan: Plan, player: _Player, command: str, mode: str) -> Any:
        contents, answer = player.play(command, mode)
        if not player.is_rival:
            self.compared += len(contents)
            self._look(plan, player.run, contents, answer)
        return answer

    def _look(self, plan: Plan, run: Launcher, contents: Sequence[int], answer: Mapping[str, Any]) -> None:
        """Keeps outputs of some calls, chosen when all have run. Of equal bytes on an input one is enough."""
        for content, value in zip(contents, answer["hashes"].split(), strict=True):
            self._hashes[content].add(value)
        for call in _DICE.sample(range(len(contents)), min(_LOOKS, len(contents))):
            if self.deterministic and contents[call] in (output.content for output in self.outputs):
                continue
            files = {}
            for name, tensor in plan.tensors.items():
                if tensor.role in ("output", "inout"):
                    file = f"{secrets.token_hex(8)}.out"
                    run.ask("result", call, name, file)
                    files[name] = os.path.join(self.folder, file)
            self.outputs.append(Output(contents[call], files))


def _time(series: Sequence[Sequence[float]], rival: Sequence[float]) -> dict[str, Any]:
    """The median of all samples with its interval, the ratio of the two processes, and the speedup over the rival."""
    every = [sample for samples in series for sample in samples]
    median = intervals.quantiles([(us, 1.0) for us in every], {"us": 0.5})["us"]
    made = {"us": round(statistics.median(every), 4), "low": median.low, "high": median.high, "samples": len(every)}
    ratios = {"a_a": series, "speedup": (rival, every)} if rival else {"a_a": series}
    return made | {name: asdict(intervals.ratio(*pair, paired=False)) for name, pair in ratios.items()}


def _clocks(mode: str, us: float, host: list[float], between: float) -> list[str]:
    """Compares the time with the host's clock, which no forged event moves, and with the events around single calls,
    which no changed spacer shortens."""
    low, high = min(host), max(host)  # a busy host adds to some samples, a forged event to all
    if low > _CLOCKS * us + _CLOCKS_US or high < us / 2 - _CLOCKS_US or between > _CLOCKS * us + _CLOCKS_US:
        others = f"{low:.2f} to {high:.2f} us by the host's clock, {between:.2f} us by events around single calls"
        return [f"{mode}: the clocks disagree: {us:.2f} us by difference, {others}"]
    return []
