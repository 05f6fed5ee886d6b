"""From candidates' folders to verdicts: each is prepared, then checked on every shape, then timed if it is right."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import secrets
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flashcore.chips import devices
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.explain import roofline
from flashcore.measure.context import Say
from flashcore.measure.machine import gpu_choice
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.model.groups import grouped
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge import candidate, planning
from flashcore.plugins.judge.answers import Answers
from flashcore.plugins.judge.measuring import PROCESSES, Processes, Rival, Runnable, Trials
from flashcore.plugins.judge.planning import Planned
from flashcore.plugins.judge.preparing import Prepared, case_of, prepared
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import Verdict
from flashcore.plugins.launcher.plan import tensors_of

#: Samples of each process and mode; seconds for a candidate, from its first input to its last answer.
ROUNDS, SECONDS = 4, 60.0
#: Most inputs of a replay; the bytes of all of a shape's that suffice; seeds of each kind of input.
_PER_REPLAY, _TIMED_BYTES, _SEEDS = 6, 4 << 30, 2
#: Timed calls that are judged in full, of all shapes; at least of each.
_JUDGED, _JUDGED_OF_SHAPE = 96, 12
#: A time this far below its floor is not a kernel's.
_BELOW = 0.97


@dataclass(frozen=True, slots=True)
class Settings:
    """How to judge. ``arch``, ``environment``: of a machine without a GPU, for tests."""

    rounds: int = ROUNDS
    seconds: float = SECONDS
    arch: str = ""
    environment: Mapping[str, str] | None = None


def judge_all(suite: Suite, folders: Sequence[Path], settings: Settings, say: Say) -> Generator[Verdict]:
    """The verdict on each candidate. The next ones are sealed and compiled while some are measured, one on each GPU."""
    gpus = gpu_choice.chosen(gpu_choice.ALL, gpu_choice.visible(), say)
    gpu = next(iter(gpus.values()), None)
    arch = settings.arch or (gpu and gpu.arch_of(suite.archs)) or ""
    built_for, names = arch or suite.archs[-1], [*gpus] or [""]
    workers = max((os.cpu_count() or 1) // 4, 1)
    idle = queue.SimpleQueue[_Judge]()

    def judged(number: int, preparing: Future[Prepared | Verdict]) -> Verdict:
        one = preparing.result()
        try:
            if isinstance(one, Verdict):
                return one
            if not arch:
                return replace(one.verdict, reasons=("no GPU of the suite's archs on this machine",))
            judge = idle.get()
            say(f"judge {number + 1}/{len(folders)} {untrusted(folders[number].name)}")
            try:
                return judge.verdict(one)
            finally:
                idle.put(judge)
        finally:
            shutil.rmtree(Path(place, str(number)), ignore_errors=True)

    with (
        gpu_choice.leases(gpus, say),
        tempfile.TemporaryDirectory(prefix="flashcore-judge-") as place,
        ThreadPoolExecutor(workers + 1) as ahead,
        ThreadPoolExecutor(len(names)) as measuring,
        contextlib.ExitStack() as stack,
    ):
        if arch:
            baseline = ahead.submit(planning.baseline, suite, arch, Path(place, "baseline"))
            for name in names:
                judge = _Judge(suite, arch, gpu, name, settings, Path(place, name or "gpu"), baseline)
                idle.put(stack.enter_context(contextlib.closing(judge)))
                stack.callback(judge.report, say)
        for pool in (ahead, measuring):  # if no more verdicts are wanted
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        pending: deque[Future[Verdict]] = deque()
        late = 2 * workers + 2  # candidates that are prepared or measured while the first one is
        for i in range(len(folders) + late):
            if i < len(folders):
                preparing = ahead.submit(prepared, suite, built_for, folders[i], Path(place, str(i)))
                pending.append(measuring.submit(judged, i, preparing))
            if i >= late:
                yield pending.popleft().result()


@dataclass(slots=True)
class _Judge:
    suite: Suite
    arch: str
    gpu: Gpu | None
    uuid: str
    settings: Settings
    place: Path
    baseline: Future[Planned]
    answers: Answers = field(init=False)
    _lacking: dict[str, str] = field(default_factory=dict)
    _spare: dict[int, Processes] = field(default_factory=dict)  # by their number
    _rival: Processes | None = None
    _rival_inputs: dict[str, range] = field(default_factory=dict)  # by shape
    _made: int = 0
    _began: float = 0.0
    _busy_s: float = 0.0

    def __post_init__(self) -> None:
        self.place.mkdir()
        visible = {"CUDA_VISIBLE_DEVICES": self.uuid} if self.uuid else {}
        count = min(max((os.cpu_count() or 1) // 4, 1), 4)
        self.answers = Answers("cpu" if self.settings.arch else "cuda", count, visible)

    def report(self, say: Say) -> None:
        """Says for which share of the time it had candidates."""
        if self._began:
            share = self._busy_s / (time.monotonic() - self._began)
            say(f"judge: {self.uuid or 'CPU'} measured and judged for {share:.0%} of the time")

    def verdict(self, one: Prepared) -> Verdict:
        """Checks and times a candidate."""
        form = one.candidate.form
        shapes: list[dict[str, Any]] = []
        reasons: list[str] = []
        device: dict[str, Any] = {}
        seconds = dict.fromkeys(("inputs", "kernels", "answers"), 0.0)
        began = time.monotonic()
        self._began, until = self._began or began, began + self.settings.seconds
        problem = load_problem(self.suite.root, self.suite.problems[form.problem].file)
        try:
            for is_timed in (False, True):
                wanted = [shape for shape in one.shapes if not is_timed or "bench" in shape.stages]
                if not wanted or reasons:
                    continue
                with self._processes(PROCESSES if is_timed else 1) as processes:
                    runs: list[_Run] = []
                    for shape in wanted:
                        if not runs or not runs[-1].trials.reasons:
                            runs.append(
                                _Run(self, one, problem, shape, Trials(processes, one.state, form.deterministic, until))
                            )
                            runs[-1].measure(is_timed, seconds)
                # Every process of the candidate's kernels has ended: from here on there are answers.
                start = time.monotonic()
                for run in runs:
                    device = run.trials.device or device
                    result, wrong = run.judged(
                        max(_JUDGED // len(runs), _JUDGED_OF_SHAPE) if is_timed else len(run.trials.outputs)
                    )
                    shapes.append(result)
                    reasons += [f"{run.case.shape}: {untrusted(text, 300)}" for text in wrong]
                seconds["answers"] += time.monotonic() - start
        except UsageError as error:
            reasons = [untrusted(error, 1000)]
        except Exception as error:  # of the machine, the suite or us: the next candidate may not pay for it
            self.end()
            return replace(one.verdict, reasons=(untrusted(f"{type(error).__name__}: {error}", 1000),))
        finally:
            self._busy_s += time.monotonic() - began
        timed = any(result["times"] for result in shapes)
        return replace(
            one.verdict,
            status="rejected" if reasons else "accepted" if timed else "unmeasured",
            reasons=tuple(reasons) if reasons or timed else ("no shape of it is timed",),
            device=device,
            rival={"name": self.suite.baseline, "lacking": self._lacking.get(form.problem, "")} if timed else {},
            shapes=tuple(shapes),
            seconds={what: round(spent, 3) for what, spent in seconds.items()},
        )

    @contextlib.contextmanager
    def _processes(self, count: int) -> Iterator[Processes]:
        """Processes for a candidate. When they have ended, others are started for the next one; what it costs to make
        their contexts disturbs no times."""
        processes = self._spare.pop(count, None) or self._started(count)
        self.answers.forget()
        try:
            for each in (processes, *self._spare.values()):
                each.ready()
            processes.others = self.answers.count + len(self._spare)
            yield processes
        finally:
            processes.close()
            self._spare[count] = self._started(count)

    def _started(self, count: int) -> Processes:
        self._made += 1
        return Processes(self.place / str(self._made), count, self.uuid, self.settings.environment)

    def close(self) -> None:
        """Ends all processes."""
        self.answers.close()
        self.end()

    def end(self) -> None:
        """Ends all processes but the suite's."""
        for processes in (*self._spare.values(), *filter(None, [self._rival])):
            processes.close()
        self._spare.clear()
        self._rival_inputs.clear()
        self._rival = None

    def rival(self, case: Case, problem: str, scalars: Mapping[str, Any], kind: str) -> Rival | None:
        """The suite's baseline, to be timed in turns with candidates. Its process is kept: what it
        answers is on the GPU, so that no call of a candidate has its inputs."""
        try:
            if problem != self.suite.variants[self.suite.baseline].problem:
                raise UsageError("it solves another problem")
            runnable = _runnable(case, self.baseline.result(), scalars)
        except FlashcoreError as error:
            self._lacking.setdefault(problem, untrusted(error, 300))
            return None
        self._rival = self._rival or self._started(1)
        if case.shape not in self._rival_inputs:
            inputs = [(secrets.randbits(31), kind) for _ in range(_PER_REPLAY + 1)]
            self._rival_inputs[case.shape] = self.inputs(case, self._rival, inputs)[0]
        return Rival(self._rival, runnable, self._rival_inputs[case.shape])

    def inputs(
        self, case: Case, processes: Processes, inputs: Sequence[tuple[int, str]]
    ) -> tuple[range, list[dict[str, Any]]]:
        """Makes inputs of these seeds and kinds in the processes' folder; their numbers, and the operator's."""
        numbers = range(processes.contents, processes.contents + len(inputs))
        processes.contents += len(inputs)
        folder = str(processes.folder)
        tasks = [
            {"task": "make", "seed": seed, "kind": kind, "folder": folder, "number": number}
            for number, (seed, kind) in zip(numbers, inputs, strict=True)
        ]
        return numbers, [made["scalars"] for made in self.answers.ask(case, tasks)]


def _runnable(case: Case, planned: Planned, scalars: Mapping[str, Any]) -> Runnable:
    if case.shape not in planned.shapes:
        raise UsageError(f"it does not run on {case.shape}")
    for given in planned.shapes[case.shape]:
        if given.numbers.items() <= scalars.items():
            return Runnable(candidate.plan(case, given, scalars), planned.cubins)
    raise CapabilityError(f"{case.shape}: it has no launches for {dict(scalars)}", "give formulas of the numbers")


class _Run:
    """A prepared candidate on a shape, checked or timed."""

    def __init__(self, judge: _Judge, one: Prepared, problem: Any, shape: Shape, trials: Trials) -> None:
        self.case, self._judge, self._one, self._form = (
            case_of(judge.suite, one.candidate, shape),
            judge,
            one,
            one.candidate.form,
        )
        self._problem, self._shape, self.trials = problem, shape, trials
        self._contents: dict[int, tuple[int, str]] = {}  # seeds and kinds of inputs

    def measure(self, is_timed: bool, seconds: dict[str, float]) -> None:
        """Draws inputs and runs the plan on them, to check it or to time it.

        Args:
            seconds: what making the inputs and running the kernels takes is added.

        Raises:
            UsageError: the plan is wrong.
            CapabilityError: the suite or the machine is at fault, or the time is up.
        """
        start, rounds, trials = time.monotonic(), self._judge.settings.rounds, self.trials
        kinds = [*self._problem.KINDS, *getattr(self._problem, "EDGE_KINDS", ())]
        if is_timed:
            size = sum(8 * math.prod(t.sizes) for t in tensors_of(self.case).values() if t.role != "output")
            replays = 2 * rounds + 2  # samples in two modes, and those between events
            count = max(1, min(_PER_REPLAY, _TIMED_BYTES // max(size * replays, 1)))
            kinds = kinds[:1] * (1 + count * replays)
        elif "check" in self._shape.stages:  # others are large
            kinds *= _SEEDS
        inputs = [(secrets.randbits(31), kind) for kind in kinds]
        numbers, scalars = self._judge.inputs(self.case, trials.processes, inputs)
        self._contents = dict(zip(numbers, inputs, strict=True))
        groups = grouped((json.dumps(one), number) for number, one in zip(numbers, scalars, strict=True))
        if is_timed and len(groups) > 1:
            raise CapabilityError(
                f"{self.case.shape}: expected numbers that do not depend on the seed", "fix the suite"
            )
        rival = self._judge.rival(self.case, self._form.problem, scalars[0], kinds[0]) if is_timed else None
        made = time.monotonic()
        seconds["inputs"] += made - start
        try:
            for text, contents in groups.items():
                one = _runnable(self.case, self._one.planned, json.loads(text))
                if is_timed:
                    trials.time(one, rival, contents, rounds)
                else:
                    trials.check(one, contents)
        finally:
            seconds["kernels"] += time.monotonic() - made
            for path in trials.processes.folder.glob("*.raw"):
                path.unlink()

    def judged(self, most: int) -> tuple[dict[str, Any], list[str]]:
        """The shape's part of the verdict, and what is wrong. So many outputs are judged, chosen when all have run."""
        trials = self.trials
        outputs = secrets.SystemRandom().sample(trials.outputs, min(most, len(trials.outputs)))
        contents = [self._contents[output.content] for output in outputs]
        tasks = [
            {"task": "judge", "files": output.files, "seed": seed, "kind": kind}
            for output, (seed, kind) in zip(outputs, contents, strict=True)
        ]
        seeds, right = dict[str, list[int]](), dict[str, list[str]]()
        for seed, kind in self._contents.values():
            seeds.setdefault(kind, []).append(seed)
        for (_, kind), answer in zip(contents, self._judge.answers.ask(self.case, tasks), strict=True):
            right.setdefault(kind, []).extend(untrusted(text, 300) for text in answer["complaints"])
        for file in (file for output in trials.outputs for file in output.files.values()):
            Path(file).unlink()
        floor = self._floor() if trials.times else {}
        wrong = [f"{kind}: {text}" for kind, complaints in right.items() for text in complaints[:1]]
        for mode, figures in trials.times.items():
            if figures["us"] < _BELOW * floor.get(mode, 0.0):
                wrong.append(f"{mode}: {figures['us']:.2f} us is below the floor of {floor[mode]:.2f} us")
        return {
            "shape": self.case.shape,
            "params": dict(self.case.params),
            "drawn": self.case.shape not in self._judge.suite.shapes,
            "seeds": seeds,
            "right": {kind: complaints[:3] for kind, complaints in right.items()},
            "times": trials.times,
            "floor": floor,
            "gpu": trials.gpu,
            "calls_judged": len(tasks),
            "calls_compared": trials.compared,
        }, [*trials.reasons, *wrong]

    def _floor(self) -> dict[str, Any]:
        """us that no kernel can be below, by mode: from the datasheet; inputs may be in L2 in the isolated mode."""
        gpu = self._judge.gpu
        model = devices.find(gpu.name if gpu else str(self.trials.device.get("name", "")))
        if model is None:
            return {}
        work, roof = work_of(self._problem, self.case.params, self._form.roof), self._form.roof
        bounds = roofline.bounds(work, roof, roofline.roofs(model))
        made: dict[str, Any] = {}
        for mode, without in (("cold", ()), ("isolated", ("dram", "l2"))):
            if floor := roofline.floor(bounds, (*without, "launch")):
                made |= {mode: floor.us, f"{mode}_by": floor.resource}
        return made
