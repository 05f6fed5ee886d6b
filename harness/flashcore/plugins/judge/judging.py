"""From candidates' folders to verdicts: each is prepared, then checked on every shape, then timed if it is right."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flashcore.chips import devices
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.explain import roofline
from flashcore.measure.context import Say
from flashcore.measure.machine import gpu_choice
from flashcore.measure.machine.gpu import Gpu, uuids
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.model.groups import grouped
from flashcore.model.suite import Suite
from flashcore.plugins.judge import candidate, planning
from flashcore.plugins.judge.answers import Answers
from flashcore.plugins.judge.measuring import Runnable, Trials
from flashcore.plugins.judge.planning import Planned
from flashcore.plugins.judge.preparing import Prepared, case_of, prepared
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import Verdict
from flashcore.plugins.launcher.plan import tensors_of

#: Samples of each process and mode.
ROUNDS = 10
#: Inputs for each replay, a quarter of them for rivals; the bytes of all at most; seeds of each kind of input.
_PER_REPLAY, _TIMED_BYTES, _SEEDS = 22, 2 << 30, 2
#: Candidates that are prepared while one is measured.
_AHEAD = 4
#: A time this far below its floor is not a kernel's.
_BELOW = 0.97


@dataclass(frozen=True, slots=True)
class Settings:
    """How to judge. ``arch``, ``environment``: of a machine without a GPU, for tests."""

    rounds: int = ROUNDS
    arch: str = ""
    environment: Mapping[str, str] | None = None


def judge_all(suite: Suite, folders: Sequence[Path], settings: Settings, say: Say) -> Iterator[Verdict]:
    """The verdict on each candidate. The next ones are sealed and compiled while one is measured."""
    gpu = Gpu.find()
    arch = settings.arch or (gpu and gpu.arch_of(suite.archs)) or ""
    with (
        gpu_choice.leases(uuids()[:1], say),
        contextlib.closing(Answers("cpu" if settings.arch else "cuda")) as answers,
        tempfile.TemporaryDirectory(prefix="flashcore-judge-") as place,
        ThreadPoolExecutor(2) as ahead,
    ):
        built_for = arch or suite.archs[-1]
        judge = _Judge(suite, built_for, gpu, settings, answers, Path(place))
        pending: deque[Future[Prepared | Verdict]] = deque()
        for i in range(len(folders) + _AHEAD):
            if i < len(folders):
                pending.append(ahead.submit(prepared, suite, built_for, folders[i], Path(place, str(i))))
            if i < _AHEAD:
                continue
            say(f"judge {i - _AHEAD + 1}/{len(folders)} {untrusted(folders[i - _AHEAD].name)}")
            one = pending.popleft().result()
            if isinstance(one, Verdict):
                yield one
            elif arch:
                yield judge.verdict(one)
            else:
                yield replace(one.verdict, reasons=("no GPU of the suite's archs on this machine",))
            shutil.rmtree(Path(place, str(i - _AHEAD)), ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Judge:
    suite: Suite
    arch: str
    gpu: Gpu | None
    settings: Settings
    answers: Answers
    place: Path
    _baselines: dict[str, Planned] = field(default_factory=dict)
    _lacking: dict[str, str] = field(default_factory=dict)

    def verdict(self, one: Prepared) -> Verdict:
        """Checks and times a candidate."""
        form = one.candidate.form
        shapes: list[dict[str, Any]] = []
        reasons: list[str] = []
        device: dict[str, Any] = {}
        try:
            problem = load_problem(self.suite.root, self.suite.problems[form.problem].file)
            for stage in ("check", "bench"):
                cases = [case_of(self.suite, one.candidate, s) for s in one.shapes if stage in ("check", *s.stages)]
                runs = [_Run(self, one, problem, case, stage == "bench") for case in cases if not reasons]
                for run in runs:
                    run.measure()
                # Every process of the candidate's kernels has ended: from here on there are answers.
                for run in runs:
                    device = run.trials.device or device
                    result, wrong = run.judged()
                    shapes.append(result)
                    reasons += [f"{run.case.shape}: {untrusted(text, 300)}" for text in wrong]
                self.answers.forget()
        except UsageError as error:
            reasons = [untrusted(error, 1000)]
        except Exception as error:  # of the machine, the suite or us: the next candidate may not pay for it
            return replace(one.verdict, reasons=(untrusted(f"{type(error).__name__}: {error}", 1000),))
        timed = any(result["times"] for result in shapes)
        return replace(
            one.verdict,
            status="rejected" if reasons else "accepted" if timed else "unmeasured",
            reasons=tuple(reasons) if reasons or timed else ("no shape of it is timed",),
            device=device,
            rival={"name": self.suite.baseline, "lacking": self._lacking.get(form.problem, "")} if timed else {},
            shapes=tuple(shapes),
        )

    def rival(self, case: Case, problem: str, scalars: Mapping[str, Any]) -> Runnable | None:
        """The suite's baseline, to be timed in turns with candidates; it is planned once."""
        try:
            if problem not in self._baselines:
                folder = self.place / f"baseline.{problem}"
                self._baselines[problem] = Planned({}, folder)
                self._baselines[problem] = planning.baseline(self.suite, problem, self.arch, folder)
            return _runnable(case, self._baselines[problem], scalars)
        except FlashcoreError as error:
            self._lacking.setdefault(problem, untrusted(error, 300))
            return None


def _runnable(case: Case, planned: Planned, scalars: Mapping[str, Any]) -> Runnable:
    if case.shape not in planned.shapes:
        raise UsageError(f"it does not run on {case.shape}")
    given = planned.shapes[case.shape]
    return Runnable(candidate.plan(case, given.launches, given.workspaces, scalars), planned.cubins)


class _Run:
    """A prepared candidate on a shape, checked or timed."""

    trials: Trials

    def __init__(self, judge: _Judge, one: Prepared, problem: Any, case: Case, is_timed: bool) -> None:
        self.case, self._judge, self._one, self._form = case, judge, one, one.candidate.form
        self._problem, self._is_timed = problem, is_timed
        self._folder = one.candidate.folder.parent / f"{case.shape}.{is_timed}"
        self._contents: list[tuple[int, str]] = []  # seeds and kinds of inputs

    def measure(self) -> None:
        """Draws inputs and runs the plan on them.

        Raises:
            UsageError: the plan is wrong.
            CapabilityError: the suite or the machine is at fault.
        """
        self._folder.mkdir()
        settings = self._judge.settings
        rounds = settings.rounds if self._is_timed else 0
        kinds = [k for k in self._problem.KINDS for _ in range(_SEEDS)] + [*getattr(self._problem, "EDGE_KINDS", ())]
        if self._is_timed:
            size = sum(8 * math.prod(t.sizes) for t in tensors_of(self.case).values() if t.role != "output")
            wanted = _PER_REPLAY * (2 * rounds + 2)  # samples in two modes, and those between events
            kinds = kinds[:1] * (1 + max(4, min(wanted, _TIMED_BYTES // max(size, 1))))
        self._contents = [(secrets.randbits(31), kind) for kind in kinds]
        tasks = [
            {"task": "make", "seed": seed, "kind": kind, "folder": str(self._folder), "number": number}
            for number, (seed, kind) in enumerate(self._contents)
        ]
        made = self._judge.answers.ask(self.case, tasks)
        groups = grouped((json.dumps(one["scalars"]), number) for number, one in enumerate(made))
        if rounds and len(groups) > 1:
            raise CapabilityError(
                f"{self.case.shape}: expected numbers that do not depend on the seed", "fix the suite"
            )
        self.trials = Trials(self._folder, self._one.state, self._form.deterministic, settings.environment)
        for text, contents in groups.items():
            scalars = json.loads(text)
            rival = self._judge.rival(self.case, self._form.problem, scalars) if rounds else None
            self.trials.run(_runnable(self.case, self._one.planned, scalars), rival, contents, rounds)

    def judged(self) -> tuple[dict[str, Any], list[str]]:
        """The shape's part of the verdict, and what is wrong."""
        trials = self.trials
        contents = [self._contents[output.content] for output in trials.outputs]
        tasks = [
            {"task": "judge", "files": output.files, "seed": seed, "kind": kind}
            for output, (seed, kind) in zip(trials.outputs, contents, strict=True)
        ]
        seeds, right = dict[str, list[int]](), dict[str, list[str]]()
        for seed, kind in self._contents:
            seeds.setdefault(kind, []).append(seed)
        for (_, kind), answer in zip(contents, self._judge.answers.ask(self.case, tasks), strict=True):
            right.setdefault(kind, []).extend(untrusted(text, 300) for text in answer["complaints"])
        shutil.rmtree(self._folder)
        floor = self._floor() if trials.times else {}
        wrong = [f"{kind}: {text}" for kind, complaints in right.items() for text in complaints[:1]]
        for mode, time in trials.times.items():
            if time["us"] < _BELOW * floor.get(mode, 0.0):
                wrong.append(f"{mode}: {time['us']:.2f} us is below the floor of {floor[mode]:.2f} us")
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
