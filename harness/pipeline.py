"""The straight line: suite → build → check → bench → profile → record → report → gate.

This is the one place that knows the order of the stages and what each hands to the next. What needs a
GPU is left out on a machine without one, and joined from a recorded run where that is still fresh.
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness import build, join, launch_plan, planner, roofs, store, toolchain
from harness import static as static_stage
from harness.errors import CapabilityError, RecordError, UsageError
from harness.metrics import CHIPS, FACTS
from harness.model import (
    SCHEMA_VERSION,
    Artifact,
    CaseOutcome,
    Fact,
    Facts,
    Origin,
    Plan,
    Record,
    Roof,
    Shape,
    Source,
    StageNote,
    StageResult,
    Subject,
    Suite,
    Variant,
)
from harness.suite import load, runs_on, select

if TYPE_CHECKING:
    from harness.operators import Case

#: The stages that need a GPU, in order; asking for one asks for those before it. Sanitize stands for itself.
GPU_STAGES = ("check", "bench", "profile", "sanitize")
_SETTINGS = "settings.json"
_MOST_RUNS = 8  # that are read to join from, should each be of a few variants


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose. Paths are as given on the command line."""

    suite: str
    profiles: str = "profiles"
    build: str = "build"
    variant: str | None = None
    shapes: tuple[str, ...] = ()
    upto: str | None = "profile"  # the last GPU stage; None: static only
    sanitize: bool = False  # besides, under compute-sanitizer
    join: bool = True
    clock_control: Literal["none", "base"] = "none"
    keep_report: bool = False
    time_limit: float = 60.0
    repeats: int = 20
    samples: int = 100
    seconds: float = 1.5  # of sampling for each shape and mode
    modes: tuple[str, ...] = ("warm", "cold", "eager")
    roofs: str | None = "kernels/roofs"  # the suite that measures roofs; None: draw without measured ones
    command: str = ""


@dataclass
class Line:
    """A run under way: what it knows so far, and how it tells the user."""

    settings: Settings
    suite: Suite
    say: Callable[[str], None]
    gpu: toolchain.Gpu | None
    gpu_arch: str | None
    options: build.Options
    variants: list[Variant]
    shapes: list[Shape]
    companions: frozenset[str] = frozenset()  # measured for comparison, not profiled
    nvcc: str | None = None
    ncu: str | None = None
    artifacts: list[Artifact] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    outcomes: list[CaseOutcome] = field(default_factory=list)
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    notes: list[StageNote] = field(default_factory=list)

    def cases(self, stage: str) -> list[tuple[Variant, Shape]]:
        """The chosen cases that use this stage, shape by shape."""
        return [
            (v, s)
            for s in self.shapes
            if stage in s.stages or (stage == "sanitize" and s.name in self.settings.shapes)
            for v in self.variants
            if runs_on(v, s)
            and not (stage in ("profile", "sanitize") and v.name in self.companions)
            and not (stage == "sanitize" and v.is_peer)
        ]


def printer() -> Callable[[str], None]:
    """Prints progress lines to standard error, at once, with or without a terminal."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", file=sys.stderr, flush=True)

    return say


def start(settings: Settings, say: Callable[[str], None]) -> Line:
    """Loads the suite and looks at the machine.

    Raises:
        UsageError, ManifestError: see :mod:`harness.suite`.
    """
    suite = load(settings.suite, Path(settings.build))
    options = build.Options.from_environment(suite)
    variants, shapes = select(suite, settings.variant, settings.shapes)
    gpu = toolchain.find_gpu()
    arch = gpu.arch_of(options.archs or suite.archs) if gpu else None
    if gpu and arch and settings.upto == "profile" and (chip := CHIPS.get(gpu.capability)) in planner.chips():
        # A limit on what the chip cannot count is a mistake to hear of now, not after the run.
        planner.require_budgets(suite, planner.table(chip), arch, gpu.name)
    shapes = [_fitted(suite, s, gpu) for s in shapes]
    suite = dataclasses.replace(suite, shapes={**suite.shapes, **{s.name: s for s in shapes}})
    companions: list[Variant] = []
    if settings.variant is not None and settings.upto in ("bench", "profile"):
        # A time says little alone: the baseline, the parents and the peers are timed beside it.
        names = {suite.baseline, *(v.parent for v in variants)}
        companions = [v for v in suite.variants.values() if (v.is_peer or v.name in names) and v not in variants]
    names_of = frozenset(v.name for v in companions)
    return Line(settings, suite, say, gpu, arch, options, [*variants, *companions], shapes, names_of)


def _fitted(suite: Suite, shape: Shape, gpu: toolchain.Gpu | None) -> Shape:
    """The shape as its problem cuts it for this machine, if the problem has a ``fit``: the roofs suite
    loads every SM alike and keeps its working sets within whatever L2 there is."""
    if gpu is None or shape.params.get("SMS", 1) == 1:
        return shape
    from harness.operators import load_problem

    problem = load_problem(suite.root, suite.problems[shape.problem].file)
    if not hasattr(problem, "fit"):
        return shape
    return dataclasses.replace(shape, params=problem.fit(dict(shape.params), gpu.sms, gpu.l2_bytes))


def compile_all(line: Line) -> None:
    """Build, plans and static facts, for the variants chosen (in every shape that they support)."""
    started = time.monotonic()
    count = sum(not v.is_peer for v in line.variants)
    archs = line.options.archs or line.suite.archs
    line.say(f"build: {count} variants for {', '.join(archs)}")
    line.nvcc = toolchain.find_nvcc(Path(line.settings.build)).version
    line.artifacts = build.build(
        line.suite,
        Path(line.settings.build),
        line.options,
        variants=line.variants,
        gpu_arch=line.gpu_arch,
        say=lambda text: line.say(f"build: {text}"),
    )
    failed = [a for a in line.artifacts if a.status == "failed"]
    for artifact in failed:
        line.say(f"build: {artifact.variant} for {artifact.arch} FAILED\n{artifact.message}")
    line.plans = launch_plan.plans(line.suite, line.artifacts, list(line.suite.shapes.values()))
    crashed = [p for p in line.plans if p.crashed]
    for plan in crashed:
        line.say(f"build: {plan.variant} on {plan.shape} FAILED: {plan.error}")
    for i, artifact in enumerate(line.artifacts):
        found, code = static_stage.facts(artifact, Path(line.suite.root))
        line.artifacts[i] = dataclasses.replace(artifact, code=code)
        line.facts += found
        own: dict[Subject, dict[str, Fact]] = {}
        for fact in found:
            own.setdefault(fact.subject, {})[fact.name] = fact
        sms = line.gpu.sms if line.gpu and artifact.arch == line.gpu_arch else None
        for plan in line.plans:
            if plan.variant == artifact.variant and artifact.status == "ok":
                line.facts += static_stage.plan_facts(artifact, plan, own, sms)
    line.facts += _formulas(line.suite, line.variants, line.shapes)
    cached = sum(a.cached for a in line.artifacts)
    compiled = sum(a.status == "ok" for a in line.artifacts) - cached
    seconds = time.monotonic() - started
    line.say(f"build: {compiled} compiled, {cached} unchanged, {len(failed)} failed in {seconds:.1f} s")
    reasons = [f"{len(failed)} of {len(line.artifacts)} did not compile"] if failed else []
    reasons += [f"{len(crashed)} launch plans crashed"] if crashed else []
    status = "failed" if reasons else "ok"
    line.notes.append(StageNote("build", status, round(seconds, 3), ", ".join(reasons)))  # type: ignore[arg-type]


def _formulas(suite: Suite, variants: Sequence[Variant], shapes: Sequence[Shape]) -> list[Fact]:
    """The problem's own counts, for each case: ``formula_<key>`` for every key of its ``work``."""
    from harness.operators import load_problem

    modules = {n: load_problem(suite.root, p.file) for n, p in suite.problems.items()}
    facts: list[Fact] = []
    for shape in shapes:
        work: dict[str, float] = modules[shape.problem].work(dict(shape.params))
        names = {f"formula_{key}": float(value) for key, value in work.items()}
        for name in names:
            if name not in FACTS:
                known = ", ".join(n.removeprefix("formula_") for n in FACTS if n.startswith("formula_"))
                raise UsageError(f"{suite.problems[shape.problem].file}: work() gives {name[8:]!r}: expected {known}")
        facts += [
            Fact(Subject(v.name, shape=shape.name), name, value, FACTS[name].unit, Source.FORMULA)
            for v in variants
            if runs_on(v, shape)
            for name, value in names.items()
        ]
    return facts


def measure(line: Line, folder: Path) -> None:
    """The GPU stages up to the one asked for. A case that fails one is not taken to the next."""
    upto = line.settings.upto
    wanted = GPU_STAGES[: GPU_STAGES.index(upto) + 1] if upto else ()
    wanted = (*wanted, "sanitize") if line.settings.sanitize else wanted
    if not wanted:
        return
    reason = _why_not(line)
    if reason:
        line.say(f"{', '.join(wanted)}: left out: {reason}")
        line.notes += [StageNote(stage, "skipped", 0.0, reason) for stage in wanted]
        return
    for stage in wanted:
        started = time.monotonic()
        pairs = line.cases(stage)
        failed = {o.case: o.reason for o in line.outcomes if o.status != "ok"}
        ready = []
        for variant, shape in pairs:
            why = _not_ready(line, variant, shape, failed)
            if why is None:
                ready.append((variant, shape))
            else:
                status, text = why
                line.outcomes.append(
                    CaseOutcome(variant.name, shape.name, stage, status, text)  # type: ignore[arg-type]
                )
        line.say(
            f"{stage}: {len(ready)} cases"
            + (f", {len(pairs) - len(ready)} left out" if len(pairs) > len(ready) else "")
        )
        try:
            result = _run_stage(line, stage, ready, folder / stage)
        except CapabilityError as error:
            seconds = time.monotonic() - started
            line.say(f"{stage}: {error}")
            line.notes.append(StageNote(stage, "failed", round(seconds, 3), str(error)))
            if stage == wanted[0]:  # nothing was measured
                raise
            return
        line.facts += result.facts
        line.outcomes += result.outcomes
        line.samples.update(result.samples)
        bad = [o for o in result.outcomes if o.status == "failed"]
        for outcome in bad:
            line.say(f"{stage}: {outcome.case} FAILED: {outcome.reason}")
        seconds = time.monotonic() - started
        line.say(f"{stage}: {len(result.outcomes) - len(bad)} ok, {len(bad)} failed in {seconds:.1f} s")
        text = f"{len(bad)} of {len(result.outcomes)} cases failed" if bad else ""
        line.notes.append(StageNote(stage, "failed" if bad else "ok", round(seconds, 3), text))


def _why_not(line: Line) -> str:
    if line.gpu is None:
        return "no GPU on this machine"
    if line.gpu_arch is None:
        return f"{line.gpu.name} runs none of the suite's archs ({', '.join(line.suite.archs)})"
    if line.options.debug:
        return "a debug build (-G) is never timed"
    if toolchain.torch_root() is None:
        return "torch is not installed"
    return ""


def _not_ready(line: Line, variant: Variant, shape: Shape, failed: dict[str, str]) -> tuple[str, str] | None:
    if (case := f"{variant.name}/{shape.name}") in failed:
        return "skipped", f"failed before: {failed[case]}"
    # A variant that is wrong on one shape is trusted on none.
    wrong = next(
        (o for o in line.outcomes if o.variant == variant.name and o.stage == "check" and o.status == "failed"), None
    )
    if wrong is not None:
        return "skipped", f"wrong on {wrong.shape}: {wrong.reason}"
    if variant.is_peer:
        return None
    artifact = next((a for a in line.artifacts if a.variant == variant.name and a.arch == line.gpu_arch), None)
    if artifact is None or artifact.status == "unsupported":
        return "unsupported", artifact.message if artifact else f"not built for {line.gpu_arch}"
    if artifact.status == "failed":
        return "skipped", f"did not compile for {artifact.arch}"
    plan = next((p for p in line.plans if p.variant == variant.name and p.shape == shape.name), None)
    if plan is not None and plan.error:
        return "failed" if plan.crashed else "unsupported", plan.error
    return None


def child_cases(line: Line, pairs: Sequence[tuple[Variant, Shape]]) -> list[Case]:
    """What the processes that run kernels are told of each case."""
    from harness.operators import Case

    libraries = {a.variant: a for a in line.artifacts if a.arch == line.gpu_arch}
    return [
        Case(
            variant=v.name,
            shape=shape.name,
            suite=line.suite.name,
            root=str(Path(line.suite.root).resolve()),
            problem_file=line.suite.problems[v.problem].file,
            params=dict(shape.params),
            arguments=line.suite.problems[v.problem].arguments,
            library=None if v.is_peer else str(Path(libraries[v.name].library or "").resolve()),
            callable=v.callable,
            tolerance=v.tolerance,
            seeds=line.suite.problems[v.problem].seeds,
            roof=v.roof,
        )
        for v, shape in pairs
    ]


def _run_stage(line: Line, stage: str, pairs: list[tuple[Variant, Shape]], folder: Path) -> StageResult:
    from harness import bench, check, ncu, profile, sanitize

    s = line.settings
    cases = child_cases(line, pairs)
    folder.mkdir(parents=True, exist_ok=True)
    progress = _progress(line, stage, len(cases))
    if stage == "check":
        return check.run(cases, folder, time_limit=s.time_limit, repeats=s.repeats, progress=progress)
    if stage == "bench":
        return bench.run(
            cases,
            folder,
            baseline=line.suite.baseline,
            min_samples=s.samples,
            seconds=s.seconds,
            modes=s.modes,
            progress=progress,
        )
    if stage == "sanitize":
        return sanitize.run(
            cases, folder, sanitizer=sanitize.find_sanitizer(), time_limit=5 * s.time_limit, progress=progress
        )
    program = ncu.find_ncu()
    line.ncu = ncu.version(program)
    assert line.gpu is not None
    return profile.run(
        cases,
        folder,
        ncu=program,
        chip=profile.chip_of(line.gpu.capability),
        plans={f"{p.variant}/{p.shape}": p for p in line.plans},
        clock_control=s.clock_control,
        keep_report=s.keep_report,
        time_limit=s.time_limit,
        progress=progress,
    )


def _progress(line: Line, stage: str, total: int) -> Callable[[str], None]:
    """Counts a stage's cases and estimates what is left from their pace, the start-up left out."""
    done = 0
    first = 0.0

    def progress(text: str) -> None:
        nonlocal done, first
        done = min(done + 1, total)  # a case that is measured again is still one case
        now = time.monotonic()
        first = first or now
        left = (now - first) / (done - 1) * (total - done) if done > 1 else 0.0
        line.say(f"{stage} {done}/{total} {text}" + (f" (about {left:.0f} s left)" if left >= 1 else ""))

    return progress


def record_of(line: Line, run_id: str, *, before: str | None) -> Record:
    """Puts together what was measured here and what recorded runs of the same GPU add, newest first.

    A run of one variant adds what it measured of that variant; what it did not measure comes from the
    runs before it. Without a GPU the newest measured run says which GPU the record is about.
    """
    suite = line.suite
    created = datetime.datetime.strptime(run_id.split("-")[0], "%Y%m%dT%H%M%SZ").isoformat() + "Z"
    recorded = _recorded(line, before)
    arch = line.gpu_arch or (recorded[0].gpu_arch if recorded else None) or suite.archs[-1]
    pairs = [(v, s) for s in line.shapes for v in line.variants if runs_on(v, s)]
    keys = join.case_keys(suite, pairs, line.artifacts, line.plans, arch, line.nvcc or "")
    facts, outcomes, samples = list(line.facts), list(line.outcomes), dict(line.samples)
    done: set[tuple[str, str]] = {(o.case, o.stage) for o in line.outcomes if o.status in ("ok", "failed")}
    # What a case that is wrong today once took is no result.
    wrong = {o.case for o in line.outcomes if o.stage == "check" and o.status == "failed"}
    done |= {(case, stage) for case in wrong for stage in GPU_STAGES}
    stale: dict[str, str] = {}
    joined: list[Origin] = []
    for run in recorded:
        more, earlier, old, reasons, origin = join.join(run, keys, done)
        for case, reason in reasons.items():
            stale.setdefault(case, reason)
        facts += more
        outcomes += earlier
        samples = {**old, **samples}
        done |= {(o.case, o.stage) for o in earlier}
        if origin is not None:
            joined.append(origin)
            line.say(f"join: {origin.what} from run {origin.run} on {origin.machine}")
    stale = {case: reason for case, reason in stale.items() if not any((case, stage) in done for stage in GPU_STAGES)}
    if stale:
        line.say(f"join: {len(stale)} cases are stale or were never measured, and count as unmeasured")
    environment = toolchain.environment(
        Path(suite.root), toolchain.find_nvcc(Path(line.settings.build)), line.gpu, line.gpu_arch, line.ncu
    )
    return Record(
        id=run_id,
        created=created,
        command=line.settings.command,
        suite=suite,
        environment=environment,
        artifacts=tuple(line.artifacts),
        plans=tuple(line.plans),
        outcomes=tuple(outcomes),
        stages=tuple(line.notes),
        facts=Facts(facts),
        keys=keys,
        stale=stale,
        joined=tuple(joined),
        samples=samples,
        roofs=_drawn_against(line, recorded),
    )


def _recorded(line: Line, before: str | None) -> list[Record]:
    """Measured runs of this suite before that one, newest first, all of one GPU: this machine's, or without
    one that of the newest. None if the user wants none joined."""
    found: list[Record] = []
    if not line.settings.join:
        return found
    for run in measured_runs(Path(line.settings.profiles), line.suite.name, before=before):
        gpu = line.gpu.name if line.gpu else found[0].gpu if found else run.gpu
        if run.gpu != gpu:
            continue
        found.append(run)
        own = [o for o in run.outcomes if not o.origin]
        whole = set(run.suite.variants) <= {o.variant for o in own} and set(GPU_STAGES) <= {o.stage for o in own}
        if whole or len(found) == _MOST_RUNS:
            break
    return found


def latest(profiles: Path, suite: str, *, before: str | None = None) -> Record | None:
    """The newest run of this suite that a GPU measured."""
    return next(measured_runs(profiles, suite, before=before), None)


def measured_runs(profiles: Path, suite: str, *, before: str | None = None) -> Iterator[Record]:
    """The runs of this suite that a GPU measured, newest first."""
    for folder in store.runs(profiles):
        if before is not None and folder.name >= before:
            continue
        try:
            header = json.loads((folder / store.HEADER).read_bytes())
            if header["schema_version"] != SCHEMA_VERSION or header["suite"]["name"] != suite:
                continue
            if not header["environment"]["gpu"] or not header["outcomes"]:
                continue
            record = store.read(folder)
        except (OSError, ValueError, LookupError, TypeError, RecordError) as error:
            # A damaged old run must not take down a new one; `report RUN` says what is wrong with it.
            print(f"flashcore: passed over run {folder.name}: {error}", file=sys.stderr)
            continue
        yield record


def run(settings: Settings, say: Callable[[str], None], *, resume: bool = False) -> tuple[Record, Path]:
    """Everything up to the stage asked for, recorded. Gives the record and its folder.

    Raises:
        FlashcoreError: see the stages; what was measured until then stays in ``<id>.partial``.
    """
    profiles = Path(settings.profiles)
    if resume:
        folder, settings = _unfinished(profiles, settings)
        run_id = folder.name.removesuffix(store.PARTIAL)
        say(f"resume: {run_id}")
    line = start(settings, say)
    _refuse_debug(line)
    compile_all(line)
    if not resume:
        run_id = store.new_id()
        folder = store.begin(profiles, run_id)
    closures = {f"{a.variant} {a.arch}": a.closure for a in line.artifacts}
    with store.claimed(folder):
        _remember(folder, settings, closures, resume)
        measure(line, folder)
        record = record_of(line, run_id, before=run_id)
        _keep_raw(line, folder)
        store.write(record, folder)
        (folder / _SETTINGS).unlink(missing_ok=True)
        final = store.complete(folder)
    say(f"record: {final}")
    return record, final


def _refuse_debug(line: Line) -> None:
    if line.options.debug:
        raise UsageError(
            "DEBUG=1: expected a build that may be timed and gated, found a debug build (-G)\n"
            "  to mend: leave DEBUG out here; `DEBUG=1 flashcore build` is what it is for"
        )


def _remember(folder: Path, settings: Settings, closures: dict[str, str], resume: bool) -> None:
    path = folder / _SETTINGS
    if resume:
        if json.loads(path.read_bytes())["closures"] != closures:
            raise UsageError(
                f"{folder}: expected the sources that the run began with, found others\n"
                "  to mend: record a new run (without --resume); the old folder can be deleted"
            )
        return
    data = {"settings": dataclasses.asdict(settings), "closures": closures}
    store.write_atomically(path, json.dumps(data).encode())


def _unfinished(profiles: Path, settings: Settings) -> tuple[Path, Settings]:
    for folder in store.unfinished(profiles):
        try:
            data: dict[str, Any] = json.loads((folder / _SETTINGS).read_bytes())["settings"]
        except (OSError, ValueError, KeyError):
            continue
        if data["suite"] == settings.suite:
            data["shapes"] = tuple(data["shapes"])
            return folder, Settings(**data)
    raise UsageError(f"{profiles}: expected an unfinished run of {settings.suite} to resume, found none")


def _keep_raw(line: Line, folder: Path) -> None:
    """Keeps what the tools said, compressed: ptxas's logs (ninja will not print them again), the stages'
    journals and logs. The run is whole by now, so nothing has to be read from them again."""
    logs = folder / "ptxas"
    with store.writing(logs):
        logs.mkdir(exist_ok=True)
        for artifact in line.artifacts:
            if artifact.log is not None:
                shutil.copyfile(artifact.log, logs / f"{artifact.variant}-{artifact.arch}.log")
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.parent != folder and path.suffix not in (".gz", ".ncu-rep"):
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
                path.unlink()


def present(settings: Settings, say: Callable[[str], None]) -> Record:
    """The present sources' static facts, joined with measured ones that are still fresh; not stored."""
    line = start(settings, say)
    _refuse_debug(line)
    compile_all(line)
    return record_of(line, store.new_id(), before=None)


def measure_roofs(
    settings: Settings, say: Callable[[str], None], *, fresh: bool = False
) -> tuple[Record, list[roofs.Measured]]:
    """The roofs of this machine: those recorded for it, or measured now.

    Args:
        settings: of the run that is drawn against them; ``roofs`` names their suite.
        fresh: measure even if there is a record of the same machine.

    Raises:
        CapabilityError: there is no GPU.
    """
    assert settings.roofs is not None
    own = Settings(
        suite=settings.roofs,
        profiles=settings.profiles,
        build=settings.build,
        upto="bench",
        join=False,
        repeats=3,
        samples=30,
        seconds=0.2,
        modes=("warm", "eager"),
        roofs=None,
        command=settings.command,
    )
    suite = load(settings.roofs)
    gpu = toolchain.find_gpu()
    recorded = None if fresh else latest(Path(settings.profiles), suite.name)
    if recorded is not None and gpu is not None and not _is_of(recorded, gpu):
        recorded = None
    if recorded is None:
        require_gpu(own)
        say("roofs: measuring this machine")
        recorded, _ = run(own, lambda text: say(f"roofs: {text}"))
    return recorded, _ceilings(recorded)


def _is_of(record: Record, gpu: toolchain.Gpu) -> bool:
    """Whether a run was measured by this kind of machine: GPU, memory, highest clock, driver."""
    e = record.environment
    machine = (e.gpu, e.gpu_memory_bytes, e.gpu_sm_clock_mhz, e.driver)
    return machine == (gpu.name, gpu.memory_bytes, gpu.max_sm_clock_mhz, gpu.driver)


def _ceilings(record: Record) -> list[roofs.Measured]:
    from harness.operators import load_problem

    amounts = {}
    for shape in record.suite.shapes.values():
        problem = load_problem(record.suite.root, record.suite.problems[shape.problem].file)
        if hasattr(problem, "ceiling"):
            amounts[shape.name] = problem.ceiling(dict(shape.params))
    return roofs.measured(record, amounts)


def _drawn_against(line: Line, recorded: Sequence[Record]) -> tuple[Roof, ...]:
    """The measured roofs of the machine that the facts are of: this one's, or the joined run's."""
    settings = line.settings
    if settings.upto == "profile" and not _why_not(line) and settings.roofs and Path(settings.roofs).is_dir():
        record, found = measure_roofs(settings, line.say)
        line.say(f"roofs: run {record.id}")
        return roofs.ceilings(record, found)
    return next((r.roofs for r in recorded if r.roofs), ())


def require_gpu(settings: Settings) -> None:
    """For the commands that make no sense without a GPU.

    Raises:
        CapabilityError: says what is missing.
    """
    reason = _why_not(start(settings, lambda _: None))
    if reason:
        mend = "run it on a machine with a GPU; `flashcore gate` and `flashcore report` work without one"
        raise CapabilityError(reason, mend)


def matching(suite: Suite, glob: str) -> list[str]:
    """The CUDA variants whose names match."""
    return [n for n, v in suite.variants.items() if fnmatchcase(n, glob) and not v.is_peer]
