"""From candidates' folders to verdicts: each is prepared, then checked on every shape, then timed if it is right."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashcore.chips import devices
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.explain import roofline
from flashcore.machine import gpu_choice
from flashcore.model.groups import grouped, picked
from flashcore.model.progress import Say
from flashcore.model.settings import ALL
from flashcore.model.suite import Shape, Suite
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.problem_file import all_kinds, load_problem, work_of
from flashcore_judge import preparing, sandbox
from flashcore_judge.answers import MIXED_TYPES, Answers
from flashcore_judge.launcher.plan import tensors_of
from flashcore_judge.measuring import PROCESSES, SAMPLES, Player, Process, Trials
from flashcore_judge.preparing import Planned, Prepared, begun, prepared
from flashcore_judge.verdict import Verdict, untrusted

#: Seconds for a candidate, from its first input to its last answer.
SECONDS = 60.0
#: Most inputs of a sample; the bytes of all of a shape's that suffice; seeds of each kind of input.
_PER_SAMPLE, _TIMED_BYTES, _SEEDS = 6, 4 << 30, 2
#: Inputs of a check whose rows are of several kinds: a kernel that tells kinds apart by a few elements fails on them.
_MIXED = 4
#: Processes that are started ahead, which a candidate takes, with its rival's.
_SPARE = 1 + PROCESSES + 1
#: Inputs of timed calls whose answers are judged in full, of all shapes; at least of each.
_JUDGED, _JUDGED_OF_SHAPE = 96, 12
_DICE = secrets.SystemRandom()
#: A shape, its inputs (each with its ``seed`` and ``kind``), and what ran on them.
_Run = tuple[KernelCall, Sequence[Mapping[str, Any]], Trials]
#: A time this far below its floor is not a kernel's.
_BELOW = 0.97
#: Resources that bound no call of a mode: inputs may be in L2.
_WITHOUT = {"cold": ("launch",), "isolated": ("launch", "dram", "l2")}


def judge_all(
    suite: Suite, candidates: Sequence[Path], say: Say, seconds: float = SECONDS
) -> Generator[tuple[Path, Verdict]]:
    """Each candidate's folder and verdict, as they are judged. The next ones are sealed and compiled while some are
    measured, one on each GPU.

    Args:
        seconds: of each on a GPU.
    """
    gpus = gpu_choice.chosen(ALL, gpu_choice.visible(), say)
    arch = next((gpu.arch_of(suite.archs) for gpu in gpus.values()), None)
    workers = max(len(os.sched_getaffinity(0)) // 4, 1)
    idle = list[_Judge]()  # as many as threads that measure

    def judged(folder: Path) -> tuple[Path, Verdict]:
        verdict = begun(suite, folder)
        with tempfile.TemporaryDirectory(dir=place) as files:
            try:
                one = prepared(verdict, suite, arch or suite.archs[-1], folder, Path(files), seconds)
                if not arch:
                    raise CapabilityError("no GPU of the suite's archs on this machine", "see flashcore doctor")
                measuring.submit(measured, folder, one, verdict).result()  # the first that is ready comes first
            except UsageError as error:
                verdict.end("rejected", *error.args)
            except Exception as error:  # of the machine, the suite or us: the next candidate may not pay for it
                verdict.end("unmeasured", f"{type(error).__name__}: {error}")
        return folder, verdict

    def measured(folder: Path, one: Prepared, verdict: Verdict) -> None:
        judge = idle.pop()
        say(f"judge {untrusted(folder.name)} {judge.gpu}")
        start = time.monotonic()
        try:
            judge.judge(one, verdict)
        finally:
            verdict.seconds = round(time.monotonic() - start, 3)
            idle.append(judge)

    with (
        gpu_choice.leases(gpus, say),
        tempfile.TemporaryDirectory(prefix="flashcore-judge-") as place,
        ThreadPoolExecutor(workers + 2 * len(gpus) + 1) as pool,  # candidates that are prepared, wait or are measured
        ThreadPoolExecutor(max(len(gpus), 1)) as measuring,
        contextlib.ExitStack() as stack,
    ):
        if arch:
            baseline = pool.submit(preparing.baseline, suite, arch, Path(place, "baseline"))
            count = min(max(2 * workers // len(gpus), 1), 8)
            for gpu in gpus:
                judge = _Judge(suite, gpu, seconds, Path(place, gpu), baseline, count)
                idle.append(stack.enter_context(contextlib.closing(judge)))
        stack.callback(sandbox.stop)  # if no more verdicts are wanted
        for each in (pool, measuring):
            stack.callback(each.shutdown, wait=False, cancel_futures=True)
        for one in as_completed([pool.submit(judged, folder) for folder in candidates]):
            yield one.result()


@dataclass(eq=False, slots=True)
class _Judge:
    """What judges on a GPU: ``count`` of the suite's processes, and those for the next candidate.

    Args:
        seconds: of a candidate.
        inputs: the folder of a shape's inputs.
        baseline: the suite's launches.
    """

    suite: Suite
    gpu: str
    seconds: float
    inputs: Path
    baseline: Future[Planned]
    count: int
    _one: Prepared = field(init=False)  # the candidate that is judged, as are the next two
    _verdict: Verdict = field(init=False)
    _until: float = 0.0
    _answers: Answers = field(init=False)
    _spare: deque[Process] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.inputs.mkdir(exist_ok=True)
        self._answers = Answers(self.count, self.inputs, self.gpu)
        self._refill()

    def _refill(self) -> None:
        """Starts processes for the next candidate, while nothing is timed."""
        while len(self._spare) < _SPARE:
            self._spare.append(Process(Path(tempfile.mkdtemp(dir=self.inputs.parent)), self.inputs, self.gpu))

    def close(self) -> None:
        """Ends all processes, and with them a candidate's verdict. The next verdict starts others."""
        self._answers.close()
        with contextlib.suppress(IndexError):  # the verdict's thread may take and start some meanwhile
            while True:
                self._spare.popleft().close()

    def judge(self, one: Prepared, verdict: Verdict) -> None:
        """Checks and times a candidate.

        Raises:
            UsageError: its launches are wrong.
            Exception: of the machine, the suite or us; its processes have ended.
        """
        self._one, self._verdict, self._until = one, verdict, time.monotonic() + self.seconds
        reasons = list[str]()
        try:
            if not self._spare:
                self.__post_init__()
            for stage in ("check", "bench"):
                for run in [] if reasons else self._runs(stage):
                    reasons += self._wrong(*run)
        except Exception:
            self.close()
            raise
        missing = [
            f"{result['shape']}: no {mode} floor is known"
            for result in verdict.shapes
            for mode in result["times"].keys() - result["floor"]
        ]
        if not any(result["times"] for result in verdict.shapes):
            missing = ["no shape of it is timed"]
        verdict.end("rejected" if reasons else "unmeasured" if missing else "accepted", *(reasons or missing))

    def _runs(self, stage: str) -> list[_Run]:
        """A candidate's runs on a stage's shapes until one fails. All processes of its kernels have ended then: from
        here on there may be answers."""
        runs = list[_Run]()
        taken = [self._spare.popleft() for _ in range(1 if stage == "check" else PROCESSES + 1)]
        try:
            for shape in self._one.shapes:
                if stage == "check" or stage in shape.stages:
                    runs.append(self._measured(shape, stage, taken, new=not runs))
                if any(trials.reasons for *_, trials in runs):
                    break
        finally:
            for each in taken:  # all at once: to free a context takes long
                each.kill()
            for each in taken:
                each.close()
        self._refill()
        return runs

    def _measured(self, shape: Shape, stage: str, taken: Sequence[Process], *, new: bool) -> _Run:
        """Draws inputs and runs the plan on them: to ``check`` or ``bench`` it, in turns with a rival. Processes are
        ``new`` on the first shape.

        Raises:
            UsageError: the plan is wrong.
            CapabilityError: the suite or the machine is at fault, or the time is up.
        """
        one, form = self._one, self._one.form
        case = KernelCall.of(self.suite, form.problem, shape, variant="candidate", tolerance=form.tolerance)
        kinds = _kinds(case, shape, stage, _PER_SAMPLE if form.deterministic else 1)
        tasks = [
            {"task": "make", "seed": _DICE.randrange(1 << 31), "kind": kind, "number": number}
            for number, kind in enumerate(kinds)
        ]
        inputs = self._answers.ask(case, tasks)
        trials = Trials(taken[:PROCESSES], one.state, form.deterministic, self._until, new)
        for each in (*taken, *(self._spare if stage != "check" else ())):  # to make contexts would disturb times
            each.ready()
        self._verdict.device = taken[0].device
        groups = grouped((tuple(given["scalars"].items()), number) for number, given in enumerate(inputs))
        for numbers, contents in groups.items():
            runnable = one.plans.runnable(case, dict(numbers))
            if stage == "check":
                trials.check(runnable, contents)
            elif len(groups) > 1:
                raise CapabilityError(f"{shape.name}: expected numbers that no seed changes", "fix the suite")
            else:
                ours = len(kinds) // (SAMPLES + 1)  # as many are the rival's: what it answers is on the GPU
                rival = self._rival(taken[-1], case, dict(numbers), contents[-ours:])
                most = max(_JUDGED // (1 + sum("bench" in s.stages for s in one.shapes)), _JUDGED_OF_SHAPE)
                processes = self.count + len(taken) + len(self._spare)
                trials.time(runnable, rival, contents[:-ours], most, processes)
        for file in self.inputs.iterdir():
            file.unlink()
        return case, inputs, trials

    def _rival(
        self, process: Process, case: KernelCall, scalars: Mapping[str, Any], contents: Sequence[int]
    ) -> Player | None:
        """The suite's baseline, to be timed in turns with a candidate."""
        rival = self._verdict.rival = self._verdict.rival or {"name": self.suite.baseline, "lacking": ""}
        try:
            return Player(process, self.baseline.result().runnable(case, scalars), itertools.cycle(contents))
        except FlashcoreError as error:
            rival["lacking"] = untrusted(error, 300)
            return None

    def _wrong(self, case: KernelCall, inputs: Sequence[Mapping[str, Any]], run: Trials) -> list[str]:
        """What is wrong on a shape, whose part it adds to the verdict."""
        tasks = [{**inputs[content], "task": "judge", "file": file} for content, file in run.outputs]
        right = {task["kind"]: list[str]() for task in tasks}
        for one in self._answers.ask(case, tasks):
            right[one["kind"]] += map(untrusted, one["complaints"])
        wrong = [f"{kind}: {texts[0]}" for kind, texts in right.items() if texts]
        roof, device, floor = self._one.form.roof, devices.find(self._verdict.device["name"]), dict[str, float]()
        for mode, figures in run.times.items():
            work = work_of(load_problem(case.root, case.problem_file), case.params, roof)
            bounds = roofline.bounds(work, roof, roofline.roofs(device))  # by the datasheet
            if (least := roofline.floor(bounds, _WITHOUT[mode])) and (us := least.us) is not None:
                floor[mode] = us
                if figures["us"] < _BELOW * us:
                    wrong.append(f"{mode}: {figures['us']:.2f} us is below the floor of {us:.2f} us")
        result = {
            **picked(case, "shape", "params"),
            "drawn": case.shape not in self.suite.shapes,
            "seeds": grouped((one["kind"], one["seed"]) for one in inputs),
            "right": {kind: texts[:3] for kind, texts in right.items()},
            "floor": floor,
            "calls_judged": len(tasks),
            "calls_compared": run.compared,
            **picked(run, "times", "gpu", "first_us"),
        }
        self._verdict.shapes.append(result)
        return [f"{case.shape}: {text}" for text in dict.fromkeys([*run.reasons, *wrong])]


def _kinds(case: KernelCall, shape: Shape, stage: str, most: int) -> list[str]:
    """The kind of each input of a stage, as drawn; of a sample at most so many."""
    problem = load_problem(case.root, case.problem_file)
    kinds = all_kinds(problem)
    given = [tensor for tensor in tensors_of(case).values() if tensor.role != "output"]
    mixable = any(t.dtype in MIXED_TYPES and t.sizes for t in given)
    mixed = [f"{a}+{b}" for a, b in itertools.permutations(problem.KINDS, 2) if mixable]
    if stage == "check":  # others than a check's are large
        is_small = "check" in shape.stages
        return kinds * _SEEDS + _DICE.sample(mixed, min(_MIXED, len(mixed))) if is_small else kinds
    size = sum(8 * math.prod(t.sizes) for t in given)
    count = max(1, min(most, _TIMED_BYTES // max(size * SAMPLES, 1)))
    usual = [kinds[0], *mixed[: len(problem.KINDS) - 1]]  # those that begin with the first kind come first
    return [_DICE.choice(usual) for _ in range(1 + count * (SAMPLES + 1))]
