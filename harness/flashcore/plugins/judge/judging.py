"""From a candidate's folder to its verdict: sealing, drawing, planning, inspection, inputs, measuring, judging."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from flashcore import __version__
from flashcore.chips import devices
from flashcore.errors import CapabilityError, UsageError
from flashcore.explain import roofline
from flashcore.measure.context import Say
from flashcore.measure.machine import python_process
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.workers.kernel_call import Case
from flashcore.measure.workers.problem_file import load_problem, work_of
from flashcore.model import intervals
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge import candidate, draws, inspection, measuring, planning
from flashcore.plugins.judge.candidate import Candidate
from flashcore.plugins.judge.measuring import Measured
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import OnShape, Status, Verdict
from flashcore.plugins.launcher.plan import tensors_of

#: Inputs that timed calls draw from at most, and their bytes; seeds of each kind of input.
_TIMED, _TIMED_BYTES, _SEEDS = 320, 1 << 30, 2
#: A time this far below its floor is not a kernel's.
_BELOW = 0.97
#: Samples of each process and mode.
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """How to judge. ``arch``, ``environment``: of a machine without a GPU, for tests."""

    rounds: int = ROUNDS
    arch: str = ""
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    """A sealed candidate with its shapes and their launches, or why it has none."""

    digest: str
    texts: Mapping[str, str]
    sealed: Candidate | None = None
    shapes: Sequence[tuple[Shape, bool]] = ()
    launches: Mapping[str, planning.Launches] = field(default_factory=dict)
    kernels: Sequence[Mapping[str, Any]] = ()
    reasons: Sequence[str] = ()
    failed: str = ""


def judge_all(suite: Suite, folders: Sequence[Path], settings: Settings, say: Say) -> Iterator[Verdict]:
    """The verdict on each candidate. The next ones are sealed and compiled while one is measured."""
    gpu = Gpu.find()
    arch = settings.arch or (gpu and gpu.arch_of(suite.archs)) or ""
    answers = Answers("cpu" if settings.arch else "cuda")
    with (
        contextlib.closing(answers),
        tempfile.TemporaryDirectory(prefix="flashcore-judge-") as place,
        ThreadPoolExecutor(2) as ahead,
    ):
        prepare = partial(_prepare, suite, arch or suite.archs[-1])
        work = [ahead.submit(prepare, source, Path(place, str(i))) for i, source in enumerate(folders)]
        for i, (source, future) in enumerate(zip(folders, work, strict=True)):
            say(f"judge {i + 1}/{len(folders)} {untrusted(source.name)}")
            yield _judged(suite, future.result(), gpu, arch, settings, answers)
            shutil.rmtree(Path(place, str(i)), ignore_errors=True)


def _prepare(suite: Suite, arch: str, source: Path, folder: Path) -> _Planned:
    """Seals a candidate, draws its shapes, and makes, reads and inspects its launches."""
    folder.mkdir()
    digest, texts = hashlib.sha256(str(source).encode()).hexdigest(), {"name": untrusted(source.name)}
    try:
        one = candidate.sealed(source, folder / "sealed")
        digest, texts = one.digest, {"name": untrusted(one.form.name)}
        variants = [v for v in suite.variants.values() if v.problem == one.form.problem]
        for key, allowed in (("tolerance", {v.tolerance for v in variants}), ("roof", {v.roof for v in variants})):
            if getattr(one.form, key) not in allowed:
                raise UsageError(f"{key}: expected one of {', '.join(sorted(allowed)) or 'no problem of the suite'}")
        shapes = draws.shapes(suite, one.form.problem, one.form.shapes)
        if not shapes:
            raise UsageError("shapes: expected some of the problem's, found none")
        launches = planning.launches(suite, one, shapes, arch)
        for shape, _ in shapes:
            case, given = _case(suite, one, shape), launches[shape.name]
            candidate.plan(case, given.launches, given.workspaces, {a.name: 1 for a in case.arguments})
        reasons, kernels = [], []
        for path in sorted({each.folder / x["cubin"] for each in launches.values() for x in each.launches}):
            wrong, facts = inspection.inspect(path, arch)
            reasons += wrong
            kernels += facts
        return _Planned(digest, texts, one, shapes, launches, kernels, reasons)
    except UsageError as error:
        return _Planned(digest, texts, reasons=[untrusted(error, 1000)])
    except Exception as error:
        return _Planned(digest, texts, failed=untrusted(f"{type(error).__name__}: {error}", 1000))


def _judged(
    suite: Suite, planned: _Planned, gpu: Gpu | None, arch: str, settings: Settings, answers: Answers
) -> Verdict:
    files = [Path(suite.root, "suite.toml"), *(Path(suite.root, p.file) for p in suite.problems.values())]
    made = Verdict(
        candidate=planned.digest,
        suite=suite.name,
        suite_hash=hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest(),
        status="rejected",
        reasons=tuple(planned.reasons),
        untrusted=planned.texts,
        kernels=tuple(planned.kernels),
        made_by=f"flashcore {__version__}",
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    if planned.failed:
        return replace(made, status="unmeasured", reasons=(planned.failed,))
    if planned.sealed is None or planned.reasons:
        return made
    if not arch:
        return replace(made, status="unmeasured", reasons=("no GPU of the suite's archs on this machine",))
    try:
        return _measured(suite, planned, planned.sealed, gpu, settings, made, answers)
    except UsageError as error:
        return replace(made, reasons=(untrusted(error, 1000),))
    except Exception as error:  # of the machine, the suite or us: the next candidate may not pay for it
        return replace(made, status="unmeasured", reasons=(untrusted(f"{type(error).__name__}: {error}", 1000),))


def _measured(
    suite: Suite,
    planned: _Planned,
    one: Candidate,
    gpu: Gpu | None,
    settings: Settings,
    verdict: Verdict,
    answers: Answers,
) -> Verdict:
    """Checks the candidate on every shape, then times it if it is right."""
    problem = load_problem(suite.root, suite.problems[one.form.problem].file)
    edges = tuple(getattr(problem, "EDGE_KINDS", ()))
    kinds = [*(kind for kind in problem.KINDS for _ in range(_SEEDS)), *edges]
    on_shapes: dict[str, OnShape] = {}
    reasons: list[str] = []
    device: dict[str, Any] = {}
    for stage in ("check", "bench"):
        runs = []
        for shape, drawn in planned.shapes if not reasons else ():
            if stage == "check" or stage in shape.stages:
                run = _Run(
                    _case(suite, one, shape),
                    one.folder.parent / stage / shape.name,
                    drawn,
                    planned.launches[shape.name],
                )
                run.measure(problem, kinds if stage == "check" else None, one, settings, answers)
                runs.append(run)
        # Every process of the candidate's kernels has ended: from here on there are answers.
        for run in runs:
            device = run.measured.device or device
            floor = _floor(problem, one, run.case, device, gpu) if stage == "bench" else {}
            shape_result, wrong = run.judged(floor, answers)
            before = on_shapes.get(run.case.shape)
            on_shapes[run.case.shape] = before.joined(shape_result) if before else shape_result
            reasons += [f"{run.case.shape}: {untrusted(text, 300)}" for text in wrong]
        if runs:
            answers.ask(runs[0].case, [{"task": "forget"}])
    timed = any(one.times for one in on_shapes.values())
    status: Status = "rejected" if reasons else "accepted" if timed else "unmeasured"
    reasons += ["no shape of it is timed"] if status == "unmeasured" else []
    return replace(verdict, status=status, reasons=tuple(reasons), device=device, shapes=tuple(on_shapes.values()))


class _Run:
    """A candidate on a shape, in one stage."""

    def __init__(self, case: Case, folder: Path, drawn: bool, launches: planning.Launches) -> None:
        self.case, self._folder, self._drawn, self._launches = case, folder, drawn, launches
        self._contents: list[tuple[int, str]] = []
        self.measured = Measured()

    def measure(
        self, problem: Any, kinds: Sequence[str] | None, one: Candidate, settings: Settings, answers: Answers
    ) -> None:
        """Draws inputs and runs the plan on them: once on each, or, without ``kinds``, timed."""
        self._folder.mkdir(parents=True)
        bytes_ = sum(8 * math.prod(t.sizes) for t in tensors_of(self.case).values())
        timed = max(2, min(_TIMED, _TIMED_BYTES // max(bytes_, 1)))
        self._contents = [(draws.seed(), kind) for kind in kinds or [problem.KINDS[0]] * (timed + 1)]
        tasks = [
            {"task": "make", "seed": seed, "kind": kind, "folder": str(self._folder), "number": number}
            for number, (seed, kind) in enumerate(self._contents)
        ]
        scalars = [answer["scalars"] for answer in answers.ask(self.case, tasks)]
        if any(numbers != scalars[0] for numbers in scalars):
            raise CapabilityError(
                f"{self.case.shape}: expected numbers that do not depend on the seed", "fix the suite"
            )
        plan = candidate.plan(self.case, self._launches.launches, self._launches.workspaces, scalars[0])
        for name in {launch.cubin for launch in plan.launches}:
            shutil.copyfile(self._launches.folder / name, self._folder / name)
        self.measured = measuring.measure(
            plan,
            self._folder,
            len(self._contents),
            0 if kinds else settings.rounds,
            one.form.deterministic,
            settings.environment,
        )

    def judged(self, floor: Mapping[str, Any], answers: Answers) -> tuple[OnShape, list[str]]:
        """The shape's part of the verdict, and what is wrong."""
        measured = self.measured
        tasks = [
            {"task": "judge", "files": output.files, "seed": seed, "kind": kind}
            for output in measured.outputs
            for seed, kind in [self._contents[output.content]]
        ]
        right: dict[str, list[str]] = {}
        for output, answer in zip(measured.outputs, answers.ask(self.case, tasks), strict=True):
            kind = self._contents[output.content][1]
            right.setdefault(f"{kind}, timed" if measured.times else kind, []).extend(answer["complaints"])
        shutil.rmtree(self._folder)
        times = {mode: _time(series) for mode, series in measured.times.items() if all(series)}
        wrong = [f"{kind}: {text}" for kind, complaints in right.items() for text in complaints[:1]]
        early = [
            f"{mode}: {time['us']:.2f} us is below the floor of {floor[mode]:.2f} us"
            for mode, time in times.items()
            if time["us"] < _BELOW * floor.get(mode, 0.0)
        ]
        result = OnShape(
            shape=self.case.shape,
            params=dict(self.case.params),
            drawn=self._drawn,
            seeds={kind: [seed for seed, k in self._contents if k == kind] for _, kind in self._contents},
            right={kind: [untrusted(text, 300) for text in complaints[:3]] for kind, complaints in right.items()},
            times=times,
            floor=floor,
            calls_compared=measured.compared,
            calls_judged=len(measured.outputs),
        )
        return result, [*measured.reasons, *wrong, *early]


def _case(suite: Suite, one: Candidate, shape: Shape) -> Case:
    problem = suite.problems[one.form.problem]
    return Case(
        variant="candidate",
        shape=shape.name,
        suite=suite.name,
        root=str(Path(suite.root).resolve()),
        problem_file=problem.file,
        params=dict(shape.params),
        arguments=problem.arguments,
        library=None,
        callable=None,
        tolerance=one.form.tolerance,
        seeds=(),
        flop=None,
    )


class Answers:
    """The process that runs the suite's code. It has answers from the first task to judge to one to forget."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, case: Case, tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answer to each task.

        Raises:
            CapabilityError: it did not answer: the suite or the machine is at fault, not the candidate.
        """
        if self._process is None:
            command = python_process.command("flashcore.plugins.judge.answers")
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._log, env=python_process.environment()
            )
        assert self._process.stdin and self._process.stdout
        made = []
        for task in tasks:
            line = json.dumps({**task, "case": asdict(case), "device": self._device})
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
            answer = self._process.stdout.readline()
            if not answer:
                self._log.seek(0)
                message = self._log.read()[-1000:].decode(errors="replace")
                raise CapabilityError(f"the suite's process failed: {message}", "run flashcore check on the suite")
            made.append(json.loads(answer))
        return made

    def close(self) -> None:
        self._log.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _time(series: Sequence[Sequence[float]]) -> dict[str, float]:
    """The median of all samples with its 95 % interval, and the ratio of the first two processes' medians with its."""
    every = sorted(sample for samples in series for sample in samples)
    away = math.ceil(0.98 * math.sqrt(len(every)))  # of ranks: the binomial's normal approximation
    middle = len(every) // 2
    ratio = intervals.ratio(series[0], series[1], paired=False)
    return {
        "us": round(statistics.median(every), 4),
        "low": round(every[max(middle - away, 0)], 4),
        "high": round(every[min(middle + away, len(every) - 1)], 4),
        "samples": len(every),
        "a_a": round(ratio.value, 5),
        "a_a_low": round(ratio.low, 5),
        "a_a_high": round(ratio.high, 5),
    }


def _floor(problem: Any, one: Candidate, case: Case, device: Mapping[str, Any], gpu: Gpu | None) -> dict[str, Any]:
    """us that no kernel can be below, by mode: from the datasheet; inputs may be in L2 in the isolated mode."""
    model = devices.find(gpu.name if gpu else str(device.get("name", "")))
    if model is None:
        return {}
    bounds = roofline.bounds(work_of(problem, case.params, one.form.roof), one.form.roof, roofline.roofs(model))
    made: dict[str, Any] = {}
    for mode, without in (("cold", ()), ("isolated", ("dram", "l2"))):
        if floor := roofline.floor(bounds, (*without, "launch")):
            made |= {mode: floor.us, f"{mode}_by": floor.resource}
    return made
