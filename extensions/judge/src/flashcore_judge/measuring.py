"""Runs a candidate's plans in processes of ``trial.cpp``, and keeps what is to be judged."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import CapabilityError
from flashcore.machine.gpu_state import Watch, state_values
from flashcore.model import intervals
from flashcore_judge.launcher import program
from flashcore_judge.launcher.plan import Plan
from flashcore_judge.launcher.program import Launcher, LauncherError

MODES = ("isolated", "cold")
#: Samples of each process and mode, and of a process in all.
ROUNDS = 5
SAMPLES = len(MODES) * ROUNDS
#: Two processes, with tensors at other addresses: their ratio is what a difference of times must exceed.
PROCESSES = 2
#: Seconds for a context, a plan, or a call.
_CALL_S = 10.0
#: A clock may see this share more, and so many us: the host's, and the GPU's.
_CLOCKS = {"host": (1.1, 2.0), "gpu": (1.02, 0.5)}
#: A process's first call may take this share longer, and so many us, for code that no call has loaded.
_FIRST, _FIRST_US = 1.1, 3.0
_VARIABLES = ("CUDA_", "NVIDIA_", "LD_LIBRARY_PATH")
_DICE = secrets.SystemRandom()
_PROGRAM = Path(__file__).with_name("trial.cpp")


class Runnable(NamedTuple):
    """A plan on a shape, and its cubins."""

    plan: Plan
    cubins: Mapping[str, bytes]


class Process(Launcher):
    """A process of the program, in a folder of its own. It starts before there is a plan.

    Args:
        inputs: the folder of the inputs, which it can read.
        gpu: the UUID of its GPU.
    """

    def __init__(self, folder: Path, inputs: Path, gpu: str) -> None:
        usual = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
        super().__init__(
            [program.built("trial", source=_PROGRAM), folder, inputs],
            folder,
            3 * _CALL_S,
            {**usual, "CUDA_VISIBLE_DEVICES": gpu},
        )

    def ready(self) -> None:
        """Waits until it has its context.

        Raises:
            CapabilityError: there is no GPU, or too little memory of it.
        """
        try:
            self.device = self.device or self.event()
        except LauncherError as error:  # it has nothing of a candidate yet
            raise CapabilityError(f"the GPU cannot be used: {error}", "see what nvidia-smi says") from None


class Player(NamedTuple):
    """A process whose turn comes, its plan, and its inputs, from one for a call before all turns on. A candidate's
    process meets each once: what a call keeps, wherever it keeps it, is no answer to a later call."""

    process: Process
    runnable: Runnable
    contents: Iterator[int]


#: A call's time by the difference of events, and by the host's and the GPU's clock: NaN if the host was late.
_Times = list[float]


@dataclass(slots=True)
class Trials:
    """The runs of a plan on a shape, and what comes back from them.

    Args:
        processes: those that run it.
        state: cubin and name of global variables, which are written before each call.
        deterministic: whether calls on equal inputs must give equal bytes.
        until: the end of the candidate's time, by the monotonic clock.
        new: whether the processes have run no kernel of the candidate.
        outputs: those that the judge looks at: the content that each belongs to, and its file, but for ``.TENSOR``.
        times: mode → the verdict's figures.
        compared: calls whose bytes were compared.
        first_us: the time of the first call of ``new`` processes.
        gpu: the GPU's state while it timed, by the fact's name.
    """

    processes: Sequence[Process]
    state: Sequence[tuple[str, str]]
    deterministic: bool
    until: float
    new: bool = False
    reasons: list[str] = field(default_factory=list)
    outputs: list[tuple[int, str]] = field(default_factory=list)
    times: dict[str, dict[str, Any]] = field(default_factory=dict)
    compared: int = 0
    first_us: float | None = None
    gpu: dict[str, Any] = field(default_factory=dict)
    _looked_at: Collection[int] = ()  # contents whose calls are judged in full, which no kernel can know
    _hashes: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    _secret: int = field(default_factory=lambda: secrets.randbits(63))  # that hashes depend on

    def check(self, one: Runnable, contents: Sequence[int]) -> None:
        """Two calls on each content, as if they were timed. The bytes before them differ, so that unwritten elements
        differ too.

        Raises:
            CapabilityError: the machine is at fault, or the time is up.
        """
        self._looked_at = contents
        with self._judged():
            process = self.processes[0]
            self._load(process, one, "anywhere")
            for content in contents:
                for _ in range(2):
                    self._call(process, content, _DICE.choice(MODES))

    def time(self, one: Runnable, rival: Player | None, contents: Sequence[int], most: int, ours: int) -> None:
        """Times calls on the contents, but a cold one on the first, in turns with a rival's.

        Args:
            contents: enough that each process meets one once in all its replays.
            most: contents whose calls are judged in full; if equal inputs need not give equal bytes, all are.
            ours: processes of ours on the GPU, most of which do nothing meanwhile.

        Raises:
            CapabilityError: the rival or the machine is at fault, or the time is up.
        """
        with self._judged():
            first, *others = contents
            self._looked_at = [first, *_DICE.sample(others, len(others))[: most if self.deterministic else None]]
            players = [
                Player(each, one, iter([first, *_DICE.sample(others, len(others))])) for each in self.processes
            ] + ([rival] if rival else [])
            for process, runnable, _ in players:
                self._load(process, runnable)
            calls = [self._call(process, next(each), MODES[1]) for process, _, each in players]
            watch = Watch("cuda", self.processes[0].device["uuid"], ours)
            for mode in MODES:
                self._take_turns(players, len(others) // SAMPLES, watch, mode)
            self.gpu = state_values(watch.seen)
            if self.new and not self.reasons:
                self._compare_first(calls[: len(self.processes)])

    def _compare_first(self, calls: Sequence[_Times]) -> None:
        """Compares the first calls of processes with later ones. What earlier calls left, in our kernels' code or
        wherever it is, does not help them.

        Raises:
            CapabilityError: the host was late to read the GPU's clock: nothing confirms what the events say.
        """
        us = [max(events, gpu) for events, _, gpu in calls if not math.isnan(gpu)]
        if not us:
            raise CapabilityError("the host was late to time a first call", "judge on a host that does less")
        self.first_us, usual = min(us), self.times[MODES[1]]["us"]
        if self.first_us > _FIRST * usual + _FIRST_US:
            text = f"the first call of a process took {self.first_us:.2f} us, later ones {usual:.2f} us"
            self.reasons.append(text)

    def _take_turns(self, players: Sequence[Player], count: int, watch: Watch, mode: str) -> None:
        """Takes samples of so many calls, and compares the time by events with those by other clocks, which no forged
        event moves.

        Raises:
            CapabilityError: the host was late to read the GPU's clock for more than half of the calls.
        """
        import numpy

        samples = defaultdict[Process, list[list[_Times]]](list)
        for _ in range(ROUNDS):
            for process, _, contents in _DICE.sample(players, len(players)):
                samples[process].append([self._call(process, each, mode) for each in itertools.islice(contents, count)])
            watch.look()
        # By clock, process (a rival is the last), sample and call.
        every = numpy.moveaxis(numpy.array([samples[process] for process, *_ in players]), -1, 0)
        events, host, gpu = every[:, : len(self.processes)]
        more = numpy.ma.masked_invalid(gpu - events)  # calls that the host was late for say nothing
        if 2 * more.count() < more.size:
            raise CapabilityError("the host was late to read the GPU's clock", "judge on a host that does less")
        times = numpy.median(events, -1)  # a few calls that do no work change no time
        us = times.ravel().tolist()
        median = intervals.quantiles([(each, 1.0) for each in us], {"us": 0.5})["us"]
        clocks = {
            "host": statistics.quantiles(host.mean(-1).ravel().tolist())[0],  # a busy host adds to some
            "gpu": statistics.median((times + more.mean(-1)).compressed().tolist()),
        }
        figures = self.times[mode] = {
            "us": round(statistics.median(us), 4),
            "low": median.low,
            "high": median.high,
            "samples": len(us),
            **clocks,
            "a_a": asdict(intervals.ratio(*times.tolist(), paired=False)),
        }
        for rival in numpy.median(every[0, len(times) :], -1).tolist():
            figures["speedup"] = asdict(intervals.ratio(rival, us, paired=False))
        for name, (share, beyond) in _CLOCKS.items():
            if clocks[name] > share * figures["us"] + beyond:
                text = f"{figures['us']:.2f} us by events, {clocks[name]:.2f} us by the {name}'s clock"
                self.reasons.append(f"{mode}: the clocks disagree: {text}")

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        """What its process fails at is the candidate's fault; different answers to an input are, too."""
        try:
            yield
        except LauncherError as error:
            self.reasons.append(str(error))
        different = sum(len(values) > 1 for values in self._hashes.values())
        if self.deterministic and different:
            inputs = f"{different} of {len(self._hashes)} inputs"
            self.reasons.append(
                f"calls on the same input gave different bytes, on {inputs}: a race, or unwritten elements"
            )

    def _ask(self, process: Process, *command: object) -> Any:
        process.limit = min(_CALL_S, max(self.until - time.monotonic(), 0.0))
        try:
            return process.ask(*command)
        except LauncherError as error:
            if process not in self.processes:
                raise CapabilityError(f"the suite's baseline failed: {error}", "run flashcore check") from None
            if time.monotonic() >= self.until:
                raise CapabilityError("the candidate took longer than its limit", "give it more with --limit") from None
            raise

    def _load(self, process: Process, one: Runnable, places: str = "pages") -> None:
        """Has a process load a plan, with tensors at such places: some kernels are 2 % slower where no page begins."""
        for name in {launch.cubin for launch in one.plan.launches}:
            (process.folder / name).write_bytes(one.cubins[name])
        (process.folder / "plan").write_text(one.plan.words())
        self._ask(process, "plan", "plan", places, self._secret)
        for variable in self.state if process in self.processes else ():
            self._ask(process, "state", *variable)

    def _call(self, process: Process, content: int, mode: str) -> _Times:
        """A call's times. Keeps a candidate's hash, and if it is looked at its outputs (of equal bytes on an input one
        is enough) and what it wrote that it may not."""
        answer = self._ask(process, "call", mode, content)
        if process in self.processes:
            self.compared += 1
            self._hashes[content].add(answer["hash"])
        if process in self.processes and content in self._looked_at:
            if wrote := self._ask(process, "wrote")["wrote"]:
                self.reasons.append(f"it wrote{wrote}")
            if not (self.deterministic and content in dict(self.outputs)):
                file = secrets.token_hex(8)
                self._ask(process, "result", file)
                self.outputs.append((content, str(process.folder / file)))
        return [*answer["us"], math.nan][:3]
