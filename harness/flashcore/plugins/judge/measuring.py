"""Runs a candidate's plans in processes of ``trial.cpp``, and keeps what is to be judged."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import secrets
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flashcore.errors import CapabilityError
from flashcore.measure.bench.interleave import Watch, state_values
from flashcore.measure.machine.toolchain import host_program
from flashcore.model import intervals
from flashcore.plugins.launcher import program
from flashcore.plugins.launcher.plan import Plan
from flashcore.plugins.launcher.program import Launcher, LauncherError

MODES = ("isolated", "cold")
#: Samples of each process and mode, and of a process in all.
ROUNDS = 5
SAMPLES = len(MODES) * ROUNDS
#: Two processes, with tensors at other addresses: their ratio is what a difference of times must exceed.
PROCESSES = 2
#: Seconds for a context, a plan, or a call.
_CALL_S = 10.0
#: The host's clock may see this share more and so many us; on a busy host it may see half and many less.
_CLOCKS, _HOST_US, _BUSY_US = 1.1, 2.0, 500.0
#: A process's first call may take this share longer, and so many us, for code that no call has loaded.
_FIRST, _FIRST_US = 1.1, 3.0
#: Of so many timed calls, one's outputs are kept, from which those that are judged in full are drawn.
_KEPT = 3
_VARIABLES = ("CUDA_", "NVIDIA_", "LD_LIBRARY_PATH")
_DICE = secrets.SystemRandom()
_LAUNCHER = Path(program.__file__).parent


class Runnable(NamedTuple):
    """A plan on a shape, and the folder of its cubins."""

    plan: Plan
    cubins: Path


@functools.cache
def built() -> Path:
    """The program that runs plans for the judge."""
    headers = b"".join(path.read_bytes() for path in sorted(_LAUNCHER.glob("*.hpp")))
    version = f"-DHEADERS=0x{hashlib.sha256(headers).hexdigest()[:8]}"
    flags = ("-std=c++17", "-O2", f"-I{_LAUNCHER}", version, "-static-libstdc++", "-static-libgcc", "-ldl")
    return host_program(Path(__file__).with_name("trial.cpp"), flags, "trial")


class Processes:
    """Processes of the program, in a folder of their own. They start before there is a plan.

    Attributes:
        gpu: the UUID of theirs.
        numbers: of the inputs in the folder.
    """

    def __init__(self, folder: Path, count: int, gpu: str, environment: Mapping[str, str] | None) -> None:
        folder.mkdir()
        self.folder, self.gpu, self._stack = folder, gpu, contextlib.ExitStack()
        self.numbers = itertools.count()
        usual = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
        usual["CUDA_VISIBLE_DEVICES"] = gpu
        starts = (program.answering([built(), folder], folder, 3 * _CALL_S, environment or usual) for _ in range(count))
        self._launchers = [self._stack.enter_context(start) for start in starts]

    def ready(self) -> list[Launcher]:
        """The processes, when they have their contexts.

        Raises:
            CapabilityError: there is no GPU, or too little memory of it.
        """
        try:
            for one in self._launchers:
                one.device = one.device or one.event()
            return self._launchers
        except LauncherError as error:  # it has nothing of a candidate yet
            raise CapabilityError(f"the GPU cannot be used: {error}", "see what nvidia-smi says") from None

    def kill(self) -> None:
        for one in self._launchers:
            one.kill()

    def close(self) -> None:
        """Waits until they have ended."""
        self.kill()
        self._stack.close()


class Rival(NamedTuple):
    """What is timed in turns with a candidate: its process, its plan, and the inputs in the process's folder."""

    processes: Processes
    runnable: Runnable
    contents: Sequence[int]


#: A process whose turn comes, and its inputs. A candidate's process meets each once: what a call keeps, wherever it
#: keeps it, is no answer to a later call.
_Player = tuple[Launcher, Iterator[int]]


@dataclass(slots=True)
class Trials:
    """The runs of a plan on a shape, and what comes back from them.

    Args:
        processes: those that run it.
        state: cubin and name of global variables, which are written before each call.
        deterministic: whether calls on equal inputs must give equal bytes.
        until: the end of the candidate's time, by the monotonic clock.
        outputs: those that the judge looks at: the content that each belongs to, and its files by tensor.
        times: mode → the verdict's figures.
        compared: timed calls whose bytes were compared.
        first_us: the time of a process's first call.
        gpu: the GPU's state while it timed, by the fact's name.
    """

    processes: Processes
    state: Sequence[tuple[str, str]]
    deterministic: bool
    until: float
    device: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    outputs: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    times: dict[str, dict[str, Any]] = field(default_factory=dict)
    compared: int = 0
    first_us: float | None = None
    gpu: dict[str, Any] = field(default_factory=dict)
    _rival: Launcher | None = None
    _hashes: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def check(self, one: Runnable, contents: Sequence[int]) -> None:
        """Two calls on each content. The bytes before them differ, so that unwritten elements differ too.

        Raises:
            CapabilityError: the machine is at fault, or the time is up.
        """
        with self._judged():
            (launcher,) = self._loaded(self.processes, one, contents[0])
            for content in (i for i in contents for _ in range(2)):
                self._keep(one.plan, launcher, content, self._ask(launcher, "once", content))

    def time(self, one: Runnable, rival: Rival | None, contents: Sequence[int], ours: int) -> None:
        """Times calls on the contents but the first, in turns with a rival's.

        Args:
            contents: enough that each process meets one once in all its replays.
            ours: processes of ours on the GPU, most of which do nothing meanwhile.

        Raises:
            CapabilityError: the rival or the machine is at fault, or the time is up.
        """
        with self._judged():
            first, *others = contents
            players: list[_Player] = [
                (launcher, iter(_DICE.sample(others, len(others))))
                for launcher in self._loaded(self.processes, one, first)
            ]
            if rival:
                (self._rival,) = rival.processes.ready()
                self._loaded(rival.processes, rival.runnable, rival.contents[0])
                players.append((self._rival, iter(lambda: _DICE.choice(rival.contents), None)))
            watch = Watch("cuda" if self.processes.gpu else "cpu", self.processes.gpu, ours)
            for mode in MODES:
                self._take_turns(one.plan, players, len(others) // SAMPLES, watch, mode)
            self.gpu = state_values(watch.seen)

    def first(self, one: Runnable, contents: Sequence[int], us: float) -> None:
        """Times one cold call of a process that has run no kernel of the candidate, which took ``us`` otherwise. What
        earlier calls left, in our kernels' code or wherever it is, helps no more."""
        with self._judged():
            (launcher,) = self._loaded(self.processes, one)
            answer = self._ask(launcher, "trial", MODES[1], contents[0])
            self._keep(one.plan, launcher, contents[0], answer)
            self.first_us = answer["us"][0]
            if self.first_us > _FIRST * us + _FIRST_US:
                self.reasons.append(f"the first call of a process took {self.first_us:.2f} us, later ones {us:.2f} us")

    def _take_turns(self, plan: Plan, players: Sequence[_Player], count: int, watch: Watch, mode: str) -> None:
        """Takes samples of so many calls."""
        host, us = list[float](), defaultdict[Launcher, list[float]](list)
        for _ in range(ROUNDS):
            for launcher, contents in _DICE.sample(players, len(players)):
                sample, host_us = self._sample(plan, launcher, itertools.islice(contents, count), mode)
                us[launcher].append(sample)
                host += () if launcher is self._rival else [host_us]
            watch.look()
        rival = us.pop(self._rival, []) if self._rival else []
        made = _time([*us.values()], rival)
        self._compare_clocks(mode, made["us"], host)
        self.times[mode] = made | {"host": statistics.median(host)}

    def _compare_clocks(self, mode: str, us: float, host: list[float]) -> None:
        """Compares the time with the host's clock, which no forged event moves."""
        low, high = min(host), max(host)  # a busy host adds to some samples, a forged event to all
        text = f"{mode}: the clocks disagree: {us:.2f} us by events, {low:.2f} to {high:.2f} us by the host's clock"
        if low - _HOST_US > _CLOCKS * us:
            self.reasons.append(text)
        elif high < us / 2 - _BUSY_US:  # not the candidate's fault: a longer time would gain nothing
            raise CapabilityError(text, "judge on a host that does less")

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

    def _ask(self, launcher: Launcher, *command: object, limit: float = _CALL_S) -> Any:
        launcher.limit = min(limit, max(self.until - time.monotonic(), 0.0))
        try:
            return launcher.ask(*command)
        except LauncherError as error:
            if launcher is self._rival:
                raise CapabilityError(f"the suite's baseline failed: {error}", "run flashcore check") from None
            if time.monotonic() >= self.until:
                raise CapabilityError("the candidate took longer than its limit", "give it more with --limit") from None
            raise

    def _loaded(self, processes: Processes, one: Runnable, content: int | None = None) -> list[Launcher]:
        """The processes, when they have loaded a plan, and called it once on a content."""
        is_rival = processes is not self.processes
        for name in {launch.cubin for launch in one.plan.launches}:
            shutil.copyfile(one.cubins / name, processes.folder / name)
        (processes.folder / "plan").write_text(one.plan.words())
        for launcher in processes.ready():
            self._ask(launcher, "plan", "plan")
            for cubin, name in () if is_rival else self.state:
                self._ask(launcher, "state", cubin, name)
            if content is not None:
                self._ask(launcher, "once", content)
            self.device = {k: v for k, v in launcher.device.items() if k != "event"}
        return processes.ready()

    def _sample(self, plan: Plan, launcher: Launcher, contents: Iterable[int], mode: str) -> list[float]:
        """The mean of some calls by the difference of events, and by the host's clock."""
        times = []
        for content in contents:
            answer = self._ask(launcher, "trial", mode, content)
            times.append(answer["us"] + answer["host_us"])
            if launcher is not self._rival:
                self.compared += 1
                self._keep(plan, launcher, content, answer, _DICE.randrange(_KEPT) == 0)
        return [statistics.fmean(each) for each in zip(*times, strict=True)]

    def _keep(
        self, plan: Plan, launcher: Launcher, content: int, answer: Mapping[str, Any], is_looked_at: bool = True
    ) -> None:
        """Keeps a call's faults and hash, and its outputs if they are looked at. Of equal bytes on an input one is enough."""
        self._hashes[content].add(answer["hash"])
        if wrote := answer.get("wrote"):
            self.reasons.append(f"it wrote{wrote}")
        if not is_looked_at or (self.deterministic and content in dict(self.outputs)):
            return
        files = {n: f"{secrets.token_hex(8)}.out" for n, t in plan.tensors.items() if t.role in ("output", "inout")}
        for name, file in files.items():
            self._ask(launcher, "result", name, file)
        self.outputs.append((content, {n: str(self.processes.folder / f) for n, f in files.items()}))


def _time(series: Sequence[Sequence[float]], rival: Sequence[float]) -> dict[str, Any]:
    """The median of all samples with its interval, the ratio of the two processes, and the speedup over the rival."""
    every = [sample for samples in series for sample in samples]
    median = intervals.quantiles([(us, 1.0) for us in every], {"us": 0.5})["us"]
    made = {"us": round(statistics.median(every), 4), "low": median.low, "high": median.high, "samples": len(every)}
    ratios = {"a_a": series, "speedup": (rival, every)} if rival else {"a_a": series}
    return made | {name: asdict(intervals.ratio(*pair, paired=False)) for name, pair in ratios.items()}
