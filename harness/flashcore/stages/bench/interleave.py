"""Rounds: calls that are ready to be timed take turns, so that drift hits all of them alike.

Used by the child processes of bench and of ``bench --against`` alone.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flashcore.machine.gpu import Nvml
from flashcore.model.suite import Regime
from flashcore.stages.bench.statistics import StopRule
from flashcore.stages.bench.timing import Restored, Timed, Timer, rotated
from flashcore.worker import kernel_call, supervisor
from flashcore.worker.guarded import Outputs, write
from flashcore.worker.kernel_call import Caller, Case, initial, synchronize

if TYPE_CHECKING:
    from flashcore.stages.bench.proof import Proof

#: Seconds between two looks at clock and temperature.
_LOOK_EVERY = 0.02
#: Copies of tensors that are input and output: so many calls of a sample take long against what it costs beside them,
#: as those do that fill so many bytes.
_MOST_COPIES, _BYTES_OF_COPIES = 100, 1 << 28
#: Turns of calls for each turn of nothing.
_TURNS_A_NOTHING = 4


class Watch:
    """Looks at the GPU's state now and then, and keeps what it saw."""

    def __init__(self, device: str) -> None:
        self._nvml: Nvml | None = None
        self._next = 0.0
        self.seen: dict[str, Any] = {}
        if device == "cpu":
            self.seen["note"] = "no GPU: timed on the CPU"
            return
        import torch

        try:
            self._nvml = Nvml(str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid))
        except (OSError, AttributeError) as error:
            self.seen["note"] = f"NVML cannot be asked: {error}"

    def look(self) -> None:
        now = time.monotonic()
        if self._nvml is None or now < self._next:
            return
        self._next = now + _LOOK_EVERY
        state = self._nvml.state()
        self.seen["looks"] = self.seen.get("looks", 0) + 1
        if (processes := self._nvml.processes()) is not None:
            self.seen["others"] = max(self.seen.get("others", 0), processes - 1)
        if state.sm_clock is not None:
            self.seen.setdefault("sm_clock", []).append(state.sm_clock)
        if state.temperature is not None:
            self.seen.setdefault("temperature", []).append(state.temperature)
        if state.throttle is not None:
            known = self.seen.setdefault("throttle", [])
            known += [name for name in state.throttle if name not in known]


def sample(
    ready: Mapping[str, Timed],
    mode: str,
    rule: StopRule,
    watch: Watch,
    spent: dict[str, float],
    announce: Callable[[str], None],
    proofs: Mapping[str, Proof] | None = None,
) -> dict[str, list[float]]:
    """Samples of one mode (us): every call once a round, until each has enough.

    Args:
        ready: calls by label, in the order of a round, which begins at another one each time.
        spent: seconds that each label's samples took, added to.
        announce: told the label before each sample.
        proofs: by label, what takes a sample and looks at its answer: one of the first rounds' at random, and the last.
    """
    proofs = proofs or {}
    chosen = {label: proof.chosen(rule.least) for label, proof in proofs.items()}
    samples: dict[str, list[float]] = {label: [] for label in ready}
    own = dict.fromkeys(ready, 0.0)
    active = list(ready)
    began = time.monotonic()
    turn = 0
    while active:
        for label in rotated(active, turn):
            announce(label)
            start = time.monotonic()
            proved = chosen.get(label) == turn
            samples[label].append(proofs[label].sample(mode, turn) if proved else getattr(ready[label], mode)())
            own[label] += time.monotonic() - start
        watch.look()
        elapsed = time.monotonic() - began
        active = [label for label in active if not rule.enough(samples[label], own[label], elapsed)]
        turn += 1
    for label, seconds in own.items():
        if label in proofs:
            announce(label)
            samples[label][-1] = proofs[label].sample(mode, -1)
        spent[label] += seconds
    return samples


def distributions(
    ready: Mapping[str, Timed], regime: Regime, rule: StopRule, spent: dict[str, float], announce: Callable[[str], None]
) -> dict[str, list[float]]:
    """us of single calls of a regime, as many as the rule's ``most``; fewer of calls that take many ms.

    Between events around each, less the median of what they read around nothing, which is asked in between.
    """
    found: dict[str, list[float]] = {}
    for label, timed in ready.items():
        announce(label)
        start = time.monotonic()
        calls: list[float] = []
        nothing: list[float] = []
        turns = 0
        while len(calls) < rule.most and (not calls or time.monotonic() - start < rule.slow_seconds / 2):
            if turns % _TURNS_A_NOTHING == 0:
                nothing += timed.each(regime, calls=False)
            calls += timed.each(regime, first=not turns)  # nobody else's calls come between
            turns += 1
        least = statistics.median(nothing)
        found[label] = [x - least for x in calls[: rule.most]]
        spent[label] += time.monotonic() - start
    return found


class Rotation:
    """The tensors of one shape that the calls of all its cases rotate through.

    ``inputs`` are as many sets as stay in L2 together, with their outputs. Of a tensor that is input and output, their
    content is only what it holds before a call: each call of a sample writes another one of ``copies``, which the cases
    share, since all are written anew before each sample.
    """

    def __init__(self, timer: Timer, case: Case, problem: ModuleType, device: str) -> None:
        import torch

        params = dict(case.params)
        first = problem.make_inputs(params, case.seeds[0], device)
        given = sum(getattr(value, "nbytes", 0) for value in first.values())
        written = {
            a: math.prod(a.sizes(params)) * getattr(torch, a.dtype).itemsize for a in case.arguments if a.mutable
        }
        count = timer.sets(given + sum(written.values()))
        self.inputs: list[Mapping[str, Any]] = [
            first,
            *(problem.make_inputs(params, case.seeds[0] + i, device) for i in range(1, count)),
        ]
        self.copies: list[Outputs] = []
        self.restored: Restored | None = None
        self._case = case
        self._inout = [a for a in written if a.inout]
        if self._inout:
            own = sum(written[a] for a in self._inout)
            copies = max(count, min(_MOST_COPIES, _BYTES_OF_COPIES // own))
            wanted = {a.name: (a.sizes(params), a.dtype) for a in self._inout}
            self.copies = [Outputs(wanted, device) for _ in range(copies)]
            beside = count * (given + sum(written.values()) - own)
            self.restored = Restored(self._restore, min(copies, timer.copies(own, beside) or copies))

    def load(self, i: int) -> None:
        """Writes into the tensors of call ``i`` that are inputs too what they hold before it."""
        inputs = self.inputs[i % len(self.inputs)]
        for a in self._inout:
            write(self.copies[i][a.name], initial(self._case, a, inputs))

    def _restore(self, calls: int) -> None:
        for i in range(calls):
            self.load(i)

    def prepare(self, timer: Timer, caller: Caller, launches: int | None = None) -> tuple[Timed, list[Outputs]]:
        """A case's calls, ready to be timed, and what each of them writes."""
        sets = len(self.inputs)
        outputs = [caller.outputs(inout=False) for _ in self.inputs]
        if self.copies:
            outputs = [outputs[i % sets].joined(own) for i, own in enumerate(self.copies)]
        calls = [caller.bind(self.inputs[i % sets], own) for i, own in enumerate(outputs)]
        return timer.prepare(calls, launches, self.restored), outputs


def release(device: str) -> None:
    """Gives the graphs' memory back before the next shape."""
    if device != "cpu":
        import torch

        synchronize(device)
        torch.cuda.empty_cache()


def serve(arguments: Sequence[str], perform: Callable[[supervisor.Task, supervisor.Journal], dict[str, Any]]) -> int:
    """The program of a child that times: ``TASKFILE JOURNAL``. Gives its exit code."""
    # A capture may collect garbage first: leave torch's own thousands of objects out of it.
    return kernel_call.serve(arguments, perform, prepare=gc.freeze)
