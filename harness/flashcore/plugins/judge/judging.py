"""From a candidate's folder to its verdict: sealing, drawing, planning, inspection, inputs, measuring, judging."""

from __future__ import annotations

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
from flashcore.plugins.judge.text import untrusted
from flashcore.plugins.judge.verdict import OnShape, Verdict
from flashcore.plugins.launcher.plan import tensors_of

#: Inputs that timed calls draw from, and their bytes at most; seeds of each kind of input.
_TIMED, _TIMED_BYTES, _SEEDS = 12, 1 << 30, 2
#: A time this far below its floor is not a kernel's.
_BELOW = 0.97
_ANSWERS_S = 1800.0
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


def judge_all(suite: Suite, folders: Sequence[Path], settings: Settings, say: Say) -> Iterator[Verdict]:
    """The verdict on each candidate. The next ones are sealed and compiled while one is measured."""
    gpu = Gpu.find()
    arch = settings.arch or (gpu and gpu.arch_of(suite.archs)) or ""
    with tempfile.TemporaryDirectory(prefix="flashcore-judge-") as place, ThreadPoolExecutor(2) as ahead:
        prepare = partial(_prepare, suite, arch or suite.archs[-1])
        work = [ahead.submit(prepare, source, Path(place, str(i))) for i, source in enumerate(folders)]
        for i, (source, future) in enumerate(zip(folders, work, strict=True)):
            say(f"judge {i + 1}/{len(folders)} {untrusted(source.name)}")
            yield _judged(suite, future.result(), gpu, arch, settings)
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
        reasons, kernels = [], []
        for path in sorted({one.folder / x["cubin"] for each in launches.values() for x in each.launches}):
            wrong, facts = inspection.inspect(path, arch)
            reasons += wrong
            kernels += facts
        return _Planned(digest, texts, one, shapes, launches, kernels, reasons)
    except UsageError as error:
        return _Planned(digest, texts, reasons=[untrusted(error, 1000)])


def _judged(suite: Suite, planned: _Planned, gpu: Gpu | None, arch: str, settings: Settings) -> Verdict:
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
    if planned.sealed is None or planned.reasons:
        return made
    if not arch:
        return replace(made, status="unmeasured", reasons=("no GPU of the suite's archs on this machine",))
    try:
        return _measured(suite, planned, planned.sealed, gpu, settings, made)
    except UsageError as error:
        return replace(made, reasons=(untrusted(error, 1000),))
    except CapabilityError as error:
        return replace(made, status="unmeasured", reasons=(untrusted(error, 1000),))


def _measured(
    suite: Suite, planned: _Planned, one: Candidate, gpu: Gpu | None, settings: Settings, verdict: Verdict
) -> Verdict:
    problem = load_problem(suite.root, suite.problems[one.form.problem].file)
    device = "cpu" if settings.arch else "cuda"
    edges = tuple(getattr(problem, "EDGE_KINDS", ()))
    kinds = [*(kind for kind in problem.KINDS for _ in range(_SEEDS)), *edges]
    cases, contents, tasks = [], [], []
    for shape, _ in planned.shapes:
        folder = one.folder / "shapes" / shape.name
        folder.mkdir(parents=True)
        case = _case(suite, one, shape)
        bytes_ = sum(math.prod(t.sizes) * 8 for t in tensors_of(case).values())
        timed = max(2, min(_TIMED, _TIMED_BYTES // max(bytes_, 1))) if "bench" in shape.stages else 0
        each = [(draws.seed(), kind) for kind in (*kinds, *[problem.KINDS[0]] * timed)]
        cases.append((case, folder, len(kinds)))
        contents.append(each)
        for number, (seed, kind) in enumerate(each):
            tasks.append(_task("make", case, seed, kind, device, folder=str(folder), number=number))
    made = iter(_answers(tasks))
    results = []
    for (case, folder, checks), each in zip(cases, contents, strict=True):
        scalars = [next(made)["scalars"] for _ in each]
        if any(numbers != scalars[0] for numbers in scalars):
            raise CapabilityError(
                f"{case.shape}: expected numbers that do not depend on the seed", "judge another problem"
            )
        given = planned.launches[case.shape]
        plan = candidate.plan(case, given.launches, given.workspaces, scalars[0])
        for name in {launch.cubin for launch in plan.launches}:
            shutil.copyfile(one.folder / name, folder / name)
        results.append(
            measuring.measure(
                plan,
                folder,
                list(range(checks)),
                list(range(checks, len(each))),
                settings.rounds,
                one.form.deterministic,
                settings.environment,
            )
        )
    # Every process of the candidate's kernels has ended: from here on there are answers.
    tasks = [
        _task("judge", case, *each[output.content], device, files=output.files)
        for (case, _, _), each, result in zip(cases, contents, results, strict=True)
        for output in result.outputs
    ]
    judged = iter(_answers(tasks))
    on_shapes, reasons, status = [], [], verdict.status
    for (case, _, _), each, result, (shape, drawn) in zip(cases, contents, results, planned.shapes, strict=True):
        right: dict[str, list[str]] = {}
        for output in result.outputs:
            kind = each[output.content][1]
            right.setdefault(f"{kind}, timed" if output.timed else kind, []).extend(next(judged)["complaints"])
        floor = _floor(problem, one, case, result.device, gpu)
        times = {mode: _time(series) for mode, series in result.times.items() if all(series)}
        on_shapes.append(
            OnShape(
                shape=shape.name,
                params=dict(shape.params),
                drawn=drawn,
                seeds={kind: [seed for seed, k in each if k == kind] for kind in dict.fromkeys(k for _, k in each)},
                right={kind: [untrusted(text, 300) for text in complaints[:3]] for kind, complaints in right.items()},
                times=times,
                floor=floor,
                calls_compared=result.compared,
                calls_judged=len(result.outputs),
            )
        )
        wrong = [f"{kind}: {text}" for kind, complaints in right.items() for text in complaints[:1]]
        early = [
            f"{mode}: {time['us']:.2f} us is below the floor of {floor[mode]:.2f} us"
            for mode, time in times.items()
            if time["us"] < _BELOW * floor.get(mode, 0.0)
        ]
        reasons += [f"{shape.name}: {untrusted(text, 300)}" for text in (*result.reasons, *wrong, *early)]
    status = "rejected" if reasons else "accepted" if any(o.times for o in on_shapes) else "unmeasured"
    reasons += ["no shape of it is timed"] if status == "unmeasured" else []
    return replace(verdict, status=status, reasons=tuple(reasons), device=results[0].device, shapes=tuple(on_shapes))


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


def _task(task: str, case: Case, seed: int, kind: str, device: str, **more: Any) -> dict[str, Any]:
    return {"task": task, "case": asdict(case), "seed": seed, "kind": kind, "device": device, **more}


def _answers(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Asks a new process that runs the suite's code.

    Raises:
        CapabilityError: it did not answer: the suite or the machine is at fault, not the candidate.
    """
    if not tasks:
        return []
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    done = subprocess.run(
        python_process.command("flashcore.plugins.judge.answers"),
        input=lines.encode(),
        capture_output=True,
        env=python_process.environment(),
        timeout=_ANSWERS_S,
        check=False,
    )
    if done.returncode or done.stdout.count(b"\n") != len(tasks):
        raise CapabilityError(
            f"the suite's process failed: {done.stderr.decode(errors='replace')[-1000:]}", "run check"
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


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
