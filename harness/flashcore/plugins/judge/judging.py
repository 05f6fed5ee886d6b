"""From candidates' folders to verdicts: each is prepared, then checked on every shape, then timed if it is right."""

from __future__ import annotations

import contextlib
import math
import secrets
import shutil
import statistics
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flashcore.chips import devices
from flashcore.errors import CapabilityError, UsageError
from flashcore.explain import roofline
from flashcore.measure.context import Say
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.model import intervals
from flashcore.model.suite import Suite
from flashcore.plugins.judge import candidate
from flashcore.plugins.judge.answers import Answers
from flashcore.plugins.judge.measuring import Measured, Trials
from flashcore.plugins.judge.preparing import Prepared, case_of, prepared
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import Verdict
from flashcore.plugins.launcher.plan import tensors_of

#: Samples of each process and mode.
ROUNDS = 10
#: Inputs that timed calls draw from at most, and their bytes; seeds of each kind of input.
_TIMED, _TIMED_BYTES, _SEEDS = 320, 1 << 30, 2
#: Candidates that are prepared while one is measured.
_AHEAD = 4
#: A time this far below its floor is not a kernel's.
_BELOW = 0.97
_Content = tuple[int, str]  # seed and kind of an input


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
        contextlib.closing(Answers("cpu" if settings.arch else "cuda")) as answers,
        tempfile.TemporaryDirectory(prefix="flashcore-judge-") as place,
        ThreadPoolExecutor(2) as ahead,
    ):
        built_for = arch or suite.archs[-1]
        pending: deque[Future[Prepared]] = deque()
        for i in range(len(folders) + _AHEAD):
            if i < len(folders):
                pending.append(ahead.submit(prepared, suite, built_for, folders[i], Path(place, str(i))))
            if i < _AHEAD:
                continue
            say(f"judge {i - _AHEAD + 1}/{len(folders)} {untrusted(folders[i - _AHEAD].name)}")
            one = pending.popleft().result()
            if not arch and not one.verdict.reasons:
                yield replace(one.verdict, reasons=("no GPU of the suite's archs on this machine",))
            else:
                yield _judged(suite, one, gpu, settings, answers)
            shutil.rmtree(Path(place, str(i - _AHEAD)), ignore_errors=True)


def _judged(suite: Suite, one: Prepared, gpu: Gpu | None, settings: Settings, answers: Answers) -> Verdict:
    if one.candidate is None or one.verdict.reasons:
        return one.verdict
    problem = load_problem(suite.root, suite.problems[one.candidate.form.problem].file)
    results: dict[str, dict[str, Any]] = {}
    reasons: list[str] = []
    try:
        device: Mapping[str, Any] = {}
        for stage in ("check", "bench"):
            cases = [case_of(suite, one.candidate, s) for s, _ in one.shapes if stage == "check" or stage in s.stages]
            runs = [_Run(problem, one, case, stage == "bench") for case in cases if not reasons]
            for run in runs:
                run.measure(settings, answers)
            # Every process of the candidate's kernels has ended: from here on there are answers.
            for run in runs:
                device = run.measured.device or device
                reasons += [
                    f"{run.case.shape}: {untrusted(text, 300)}" for text in run.judge(results, device, gpu, answers)
                ]
            answers.forget()
    except UsageError as error:
        reasons = [untrusted(error, 1000)]
    except Exception as error:  # of the machine, the suite or us: the next candidate may not pay for it
        return replace(one.verdict, reasons=(untrusted(f"{type(error).__name__}: {error}", 1000),))
    timed = any(result["times"] for result in results.values())
    return replace(
        one.verdict,
        status="rejected" if reasons else "accepted" if timed else "unmeasured",
        reasons=tuple(reasons) if reasons or timed else ("no shape of it is timed",),
        device=device,
        shapes=tuple(results.values()),
    )


class _Run:
    """A prepared candidate on a shape, checked or timed."""

    def __init__(self, problem: Any, one: Prepared, case: Any, is_timed: bool) -> None:
        assert one.candidate
        self.case, self._problem, self._one, self._is_timed = case, problem, one, is_timed
        self._form, self._given = one.candidate.form, one.launches[case.shape]
        self._folder = one.candidate.folder.parent / f"{case.shape}.{is_timed}"
        self._contents: list[_Content] = []
        self.measured = Measured()

    def measure(self, settings: Settings, answers: Answers) -> None:
        """Draws inputs and runs the plan on them.

        Raises:
            UsageError: the plan is wrong.
            CapabilityError: the suite or the machine is at fault.
        """
        self._folder.mkdir()
        kinds = [k for k in self._problem.KINDS for _ in range(_SEEDS)] + [*getattr(self._problem, "EDGE_KINDS", ())]
        if self._is_timed:
            size = sum(8 * math.prod(t.sizes) for t in tensors_of(self.case).values())
            kinds = kinds[:1] * (1 + max(2, min(_TIMED, _TIMED_BYTES // max(size, 1))))
        self._contents = [(secrets.randbits(31), kind) for kind in kinds]
        tasks = [
            {"task": "make", "seed": seed, "kind": kind, "folder": str(self._folder), "number": number}
            for number, (seed, kind) in enumerate(self._contents)
        ]
        scalars = [answer["scalars"] for answer in answers.ask(self.case, tasks)]
        if any(numbers != scalars[0] for numbers in scalars):
            raise CapabilityError(
                f"{self.case.shape}: expected numbers that do not depend on the seed", "fix the suite"
            )
        plan = candidate.plan(self.case, self._given.launches, self._given.workspaces, scalars[0])
        for name in {launch.cubin for launch in plan.launches}:
            shutil.copyfile(self._given.folder / name, self._folder / name)
        trials = Trials(plan, self._folder, self._form.deterministic, settings.environment)
        self.measured = trials.measured
        trials.run(len(self._contents), settings.rounds if self._is_timed else 0, self._one.state)

    def judge(
        self, results: dict[str, dict[str, Any]], device: Mapping[str, Any], gpu: Gpu | None, answers: Answers
    ) -> list[str]:
        """Adds to the shape's result; returns what is wrong."""
        measured, shape = self.measured, self.case.shape
        contents = [self._contents[output.content] for output in measured.outputs]
        tasks = [
            {"task": "judge", "files": output.files, "seed": seed, "kind": kind}
            for output, (seed, kind) in zip(measured.outputs, contents, strict=True)
        ]
        right: dict[str, list[str]] = {}
        for (_, kind), answer in zip(contents, answers.ask(self.case, tasks), strict=True):
            right.setdefault(f"{kind}, timed" if self._is_timed else kind, []).extend(answer["complaints"])
        shutil.rmtree(self._folder)
        drawn = {s.name: is_drawn for s, is_drawn in self._one.shapes}[shape]
        made = results.setdefault(
            shape, {"shape": shape, "params": dict(self.case.params), "drawn": drawn, "seeds": {}, "right": {}}
        )
        for kind, complaints in right.items():
            made["right"][kind] = [untrusted(text, 300) for text in complaints[:3]]
        for seed, kind in self._contents:
            made["seeds"].setdefault(kind, []).append(seed)
        made["times"] = {mode: _time(series) for mode, series in measured.times.items() if all(series)}
        made["calls_judged"] = made.get("calls_judged", 0) + len(tasks)
        made["calls_compared"] = measured.compared
        floor = made["floor"] = self._floor(device, gpu) if made["times"] else {}
        wrong = [f"{kind}: {text}" for kind, complaints in right.items() for text in complaints[:1]]
        for mode, time in made["times"].items():
            if time["us"] < _BELOW * floor.get(mode, 0.0):
                wrong.append(f"{mode}: {time['us']:.2f} us is below the floor of {floor[mode]:.2f} us")
        return [*measured.reasons, *wrong]

    def _floor(self, device: Mapping[str, Any], gpu: Gpu | None) -> dict[str, Any]:
        """us that no kernel can be below, by mode: from the datasheet; inputs may be in L2 in the isolated mode."""
        model = devices.find(gpu.name if gpu else str(device.get("name", "")))
        if model is None:
            return {}
        work, roof = work_of(self._problem, self.case.params, self._form.roof), self._form.roof
        bounds = roofline.bounds(work, roof, roofline.roofs(model))
        made: dict[str, Any] = {}
        for mode, without in (("cold", ()), ("isolated", ("dram", "l2"))):
            if floor := roofline.floor(bounds, (*without, "launch")):
                made |= {mode: floor.us, f"{mode}_by": floor.resource}
        return made


def _time(series: Sequence[Sequence[float]]) -> dict[str, float]:
    """The median of all samples with its 95 % interval, and the ratio of the two processes' medians with its."""
    every = sorted(sample for samples in series for sample in samples)
    away = math.ceil(0.98 * math.sqrt(len(every)))  # of ranks: the binomial's normal approximation
    middle = len(every) // 2
    ratio = intervals.ratio(*series, paired=False)
    return {
        "us": round(statistics.median(every), 4),
        "low": round(every[max(middle - away, 0)], 4),
        "high": round(every[min(middle + away, len(every) - 1)], 4),
        "samples": len(every),
        "a_a": round(ratio.value, 5),
        "a_a_low": round(ratio.low, 5),
        "a_a_high": round(ratio.high, 5),
    }
