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


def measure(
    plan: Plan,
    folder: Path,
    contents: int,
    rounds: int,
    deterministic: bool,
    state: Sequence[tuple[str, str]] = (),
    environment: Mapping[str, str] | None = None,
) -> Measured:
    """Calls the plan twice on each content, or times it on random ones.

    Args:
        folder: where cubins and contents are, and outputs will be.
        rounds: samples per process and mode; 0: it is not timed.
        deterministic: whether calls on equal inputs must give equal bytes.
        state: cubin and name of global variables, which are written before each call.
    """
    made, written = Measured(), [n for n, t in plan.tensors.items() if t.role in ("output", "inout")]
    with contextlib.ExitStack() as stack:
        try:
            arguments = (plan, folder, _LIMIT_S, environment, built())
            runs = [stack.enter_context(program.launcher(*arguments)) for _ in range(PROCESSES if rounds else 1)]
            for run in runs:
                for cubin, name in state:
                    run.ask("state", cubin, name)
            made.device = {k: v for k, v in runs[0].device.items() if k != "event"}
            if rounds:
                _time(runs, contents - 1, rounds, written, folder, deterministic, made)
            else:
                for content in range(contents):
                    _check(runs[0], content, written, folder, deterministic, made)
        except LauncherError as error:
            made.reasons.append(untrusted(error))
    return made


def _check(run: Launcher, content: int, written: list[str], folder: Path, deterministic: bool, made: Measured) -> None:
    """Two calls. The bytes before them differ, so that unwritten elements differ too."""
    kept = []
    for _ in range(2):
        answer = run.ask("once", content)
        if answer["outside"]:
            made.reasons.append(f"it wrote {answer['outside']} bytes outside its tensors")
        if answer["changed"]:
            made.reasons.append(f"it changed its inputs: {answer['changed']}")
        kept.append(_kept(run, 0, content, written, folder))
    made.outputs += kept[: 1 if deterministic else None]
    for name in written if deterministic else ():
        if len({_hash(one.files[name]) for one in kept}) > 1:
            made.reasons.append(f"{name}: two calls on the same input differ: a race, or unwritten elements")


def _time(
    runs: list[Launcher],
    timed: int,
    rounds: int,
    written: list[str],
    folder: Path,
    deterministic: bool,
    made: Measured,
) -> None:
    dice = secrets.SystemRandom()
    count = min(*(run.sets for run in runs), timed)
    decks: list[list[int]] = [[] for _ in runs]  # of each process: contents that it has not had
    hashes: dict[int, set[str]] = {}
    for run in runs:  # loads the kernels, on inputs that no timed call has
        run.ask("once", timed)
    looked: set[int] = set()

    def sample(i: int, command: str, mode: str) -> dict[str, Any]:
        if len(decks[i]) < count:
            decks[i] = dice.sample(range(timed), timed)
        contents = [decks[i].pop() for _ in range(count)]
        answer: dict[str, Any] = runs[i].ask(command, mode, count, *contents)
        for content, value in zip(contents, answer["hashes"].split(), strict=True):
            hashes.setdefault(content, set()).add(value)
        made.compared += count
        # Which calls are looked at is decided after they ran. Those of equal bytes need to be seen once.
        call = dice.randrange(count)
        if not (deterministic and contents[call] in looked):
            looked.add(contents[call])
            made.outputs.append(_kept(runs[i], call, contents[call], written, folder))
        return answer

    for mode in MODES:
        series: list[list[float]] = [[] for _ in runs]
        host: list[float] = []
        for _ in range(rounds):
            for i in dice.sample(range(len(runs)), len(runs)):
                answer = sample(i, "trial", mode)
                series[i] += answer["us"]
                host += answer["host_us"]
        made.times[mode] = series
        between = [sample(i, "events", mode)["us"][0] for i in range(len(runs))]
        made.reasons += _clocks(mode, statistics.median([us for each in series for us in each]), host, min(between))
    different = sorted(content for content, values in hashes.items() if len(values) > 1)
    if deterministic and different:
        made.reasons.append(
            f"timed calls on the same input gave different bytes, on {len(different)} of {len(hashes)} inputs"
        )


def _clocks(mode: str, us: float, host: list[float], between: float) -> list[str]:
    """Compares the time with the host's clock, which no forged event moves, and with the events around single calls,
    which no changed spacer shortens."""
    low, _, high = statistics.quantiles(host, n=4)
    if low > _CLOCKS * us + _CLOCKS_US or high < us / 2 - _CLOCKS_US or between > _CLOCKS * us + _CLOCKS_US:
        others = f"{low:.2f} to {high:.2f} us by the host's clock, {between:.2f} us by events around single calls"
        return [f"{mode}: the clocks disagree: {us:.2f} us by difference, {others}"]
    return []


def _kept(run: Launcher, call: int, content: int, written: list[str], folder: Path) -> Output:
    files = {name: f"{secrets.token_hex(8)}.out" for name in written}
    for name, file in files.items():
        run.ask("result", call, name, file)
    return Output(content, {name: os.path.join(folder, file) for name, file in files.items()})


def _hash(file: str) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
