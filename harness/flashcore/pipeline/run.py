"""The straight line: suite → build → check → bench → profile → record → report → gate.

This is the one place that knows the order of the stages and what each passes to the next. What needs a
GPU is left out on a machine without one, and joined from a recorded run where that is still fresh.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.errors import CapabilityError, UsageError
from flashcore.measure.build import build
from flashcore.measure.machine import gpu_choice, toolchain
from flashcore.measure.machine.environment import of_this_machine
from flashcore.measure.machine.gpu import Gpu
from flashcore.measure.workers.gpus import LocalGpu
from flashcore.measure.workers.limits import Place
from flashcore.model.catalogue import CHIPS, FACTS
from flashcore.model.files import PARTIAL
from flashcore.model.progress import prefixed
from flashcore.model.record import Built, Fact, Measured, Origin, Record, Roof, Source, Subject
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.pipeline import companions
from flashcore.pipeline.compile_ahead import Compiling, compile_all
from flashcore.pipeline.state import Job, Settings
from flashcore.records import lookup, store
from flashcore.suites.find import roofs_suite
from flashcore.suites.load import load, select

if TYPE_CHECKING:
    from flashcore.explain import measured_roofs

# What a build does not need is imported where it is used, so that a build with nothing to do ends quickly.


def start(settings: Settings, say: Callable[[str], None] = lambda _: None) -> Job:
    """Loads the suite and looks at the machine; ``say`` is called with the GPUs that ``all`` leaves out.

    Raises:
        UsageError, ManifestError: see :mod:`flashcore.suites.load`.
    """
    suite = load(settings.suite, Path(settings.build))
    options = build.Options.from_environment(suite)
    if options.archs:  # what is not selected is neither built nor judged
        suite = dataclasses.replace(suite, archs=tuple(a for a in suite.archs if a in options.archs))
    variants, shapes = select(suite, settings.variant, settings.shapes)
    gpus, places = _places(settings, say)
    gpu = next(iter(gpus.values()), None) or Gpu.find()
    arch = gpu.arch_of(options.archs or suite.archs) if gpu else None
    if gpu and arch and settings.upto == "profile":
        _require_budgets(suite, gpu, arch)
    shapes = [_fitted(suite, s, gpu) for s in shapes]
    suite = dataclasses.replace(suite, shapes={**suite.shapes, **{s.name: s for s in shapes}})
    beside: list[Variant] = []
    if settings.variant is not None and settings.upto in ("bench", "profile"):
        beside = companions.of(suite, variants)
        if not settings.shapes:  # where none of the chosen runs, there is nothing to compare
            shapes = [s for s in shapes if any(v.runs_on(s) for v in variants)]
    names_of = frozenset(v.name for v in beside)
    here = () if settings.cluster else tuple(gpus)
    return Job(settings, suite, gpu, arch, options, (*variants, *beside), tuple(shapes), names_of, here, places)


def _places(
    settings: Settings, say: Callable[[str], None] = lambda _: None
) -> tuple[dict[str, Gpu], tuple[Place, ...]]:
    """The GPUs that the user asks for, by UUID; and, if they are not simply this host's only one, as places."""
    if settings.cluster:
        from flashcore.plugins.cluster import cluster

        held = cluster.connect(settings.cluster)
        gpus = gpu_choice.chosen(settings.gpus, {p.gpu: gpu for p in held if (gpu := p.description.gpu)}, say)
        for place in [p for p in held if p.gpu not in gpus]:  # others may want them
            place.release()
            held.remove(place)
        return gpus, tuple(sorted(held, key=lambda p: list(gpus).index(p.gpu)))
    gpus = gpu_choice.chosen(settings.gpus, gpu_choice.visible(), say)
    return gpus, tuple(map(LocalGpu, gpus)) if len(gpus) > 1 or settings.gpus != gpu_choice.ALL else ()


def _require_budgets(suite: Suite, gpu: Gpu, arch: str) -> None:
    """A limit on what the chip cannot count is a mistake to report now, not after the run."""
    from flashcore.chips.metric_tables import lookup

    if (chip := CHIPS.get(gpu.capability)) in lookup.chips():
        lookup.require_budgets(suite, lookup.table(chip), arch, gpu.name)


def _fitted(suite: Suite, shape: Shape, gpu: Gpu | None) -> Shape:
    """The shape as its problem cuts it for this machine, if the problem has a ``fit``: the roofs suite
    loads every SM alike and keeps its working sets within whatever L2 there is."""
    if gpu is None or shape.params.get("SMS", 1) == 1:
        return shape
    from flashcore.measure.workers.problem_file import load_problem

    problem = load_problem(suite.root, suite.problems[shape.problem].file)
    if not hasattr(problem, "fit"):
        return shape
    return dataclasses.replace(shape, params=problem.fit(dict(shape.params), gpu.sms, gpu.l2_bytes))


def _formulas(job: Job) -> list[Fact]:
    """The problem's own counts, for each case: ``formula_<key>`` for every key of its ``work``."""
    from flashcore.measure.workers.problem_file import load_problem, work_of

    suite = job.suite
    modules = {n: load_problem(suite.root, p.file) for n, p in suite.problems.items()}
    facts: list[Fact] = []
    for shape, variant in ((s, v) for s in job.shapes for v in job.variants if v.runs_on(s)):
        work = work_of(modules[shape.problem], shape.params, variant.roof)
        for key, value in work.items():
            name = f"formula_{key}"
            if name not in FACTS:
                known = ", ".join(n.removeprefix("formula_") for n in FACTS if n.startswith("formula_"))
                raise UsageError(f"{suite.problems[shape.problem].file}: work() gives {key!r}: expected {known}")
            subject = Subject(variant.name, shape=shape.name)
            facts.append(Fact(subject, name, float(value), FACTS[name].unit, Source.FORMULA))
    return facts


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, and what the user chose when it began, which may differ from the choice that resumes it."""

    record: Record
    folder: Path
    settings: Settings


def runs(settings: Settings, say: Callable[[str], None], *, resume: bool = False, needed: bool = False) -> list[Run]:
    """A run for each kind of GPU that the user asks for, the first one's first.

    Args:
        resume: go on with the newest run of this suite that did not end. If its command records several and the GPUs
            are not chosen anew, those that ended are read, and those that were not begun are recorded.
        needed: whether it makes no sense without a GPU.

    Raises:
        FlashcoreError: see :func:`run`; what ended before is recorded.
    """
    each = [settings] if resume else each_kind(settings, say)
    for one in each if needed else ():
        require_gpu(one)
    if resume:
        return _continued(settings, say)
    if len(each) > 1:
        recording, kinds = store.new_id(), tuple(one.gpus for one in each)
        each = [dataclasses.replace(one, recording=recording, kinds=kinds) for one in each]
    return [run(one, say) for one in each]


def _continued(settings: Settings, say: Callable[[str], None]) -> list[Run]:
    from flashcore.pipeline import resume as resuming

    _, began = resuming.unfinished(settings)
    if began.gpus not in began.kinds:
        return [run(settings, say, resume=True)]
    rest = began.kinds[began.kinds.index(began.gpus) + 1 :]
    if resuming.chosen_anew(settings):
        if rest:
            say(f"resume: only the run that did not end; not begun: {'; '.join(f'--gpus {gpus}' for gpus in rest)}")
        return [run(settings, say, resume=True)]
    ended = lookup.recorded_with(Path(began.profiles), load(began.suite).name, {began.recording})
    found = [Run(store.read(folder), Path(str(folder)), began) for folder, _ in reversed(ended)]
    for one in found:
        say(f"resume: {one.record.id} on {one.record.gpu} had ended")
    found.append(run(settings, say, resume=True))
    for gpus in rest:
        say(f"resume: --gpus {gpus}: a run of its own, which had not begun")
        found.append(run(dataclasses.replace(began, gpus=gpus), say))
    return found


def each_kind(settings: Settings, say: Callable[[str], None]) -> list[Settings]:
    """The settings for each kind of GPU: a run is of one. A kind that runs none of the suite's archs is named and left
    out, unless there is no other. Of a cluster's GPUs those of the first kind share one run.
    """
    kinds = [] if settings.cluster else gpu_choice.by_kind(settings.gpus, gpu_choice.visible())
    if len(kinds) < 2:
        return [settings]
    suite = load(settings.suite, Path(settings.build))
    archs = build.Options.from_environment(suite).archs or suite.archs
    able = [kind for kind in kinds if next(iter(kind.values())).arch_of(archs)]
    for kind in kinds if able else ():
        fit = "a run of its own" if kind in able else f"left out: runs none of {', '.join(archs)}"
        say(f"{gpu_choice.listed(kind)}: {fit}")
    return [dataclasses.replace(settings, gpus=",".join(kind)) for kind in able or kinds[:1]]


def each_gpu(settings: Settings) -> list[Settings]:
    """The settings for each GPU that the user asks for, whatever its kind. Of a cluster's GPUs the first one."""
    kinds = [] if settings.cluster else gpu_choice.by_kind(settings.gpus, gpu_choice.visible())
    uuids = [uuid for kind in kinds for uuid in kind]
    return [dataclasses.replace(settings, gpus=uuid) for uuid in uuids] if len(uuids) > 1 else [settings]


def run(settings: Settings, say: Callable[[str], None], *, resume: bool = False) -> Run:
    """Everything up to the stage asked for, recorded.

    Args:
        resume: go on with the newest run of this suite that did not end, as it was begun.

    Raises:
        FlashcoreError: see the stages; what was measured until then stays in ``<id>.partial``.
    """
    from flashcore.measure.workers.ahead import Ahead
    from flashcore.pipeline import resume as resuming
    from flashcore.pipeline.gpu_stages import measure, start_ahead

    if resume:
        folder, began = resuming.unfinished(settings)
        # The GPUs may be chosen anew: one that it began on may no longer be there.
        if resuming.chosen_anew(settings):
            began = dataclasses.replace(began, gpus=settings.gpus, cluster=settings.cluster)
        settings = began
        run_id = folder.name.removesuffix(PARTIAL)
        say(f"resume: {run_id}, begun as: {settings.command}")
    job = _job_to_record(settings, say)
    formulas = _formulas(job)
    if not resume:
        run_id = store.new_id()
        folder = store.begin(Path(settings.profiles), run_id)
    with store.claimed(folder), Ahead() as ahead:
        start_ahead(job, folder, ahead)
        with _compiled(job, say, folder, resume) as compiling:
            recorded = _to_join(job, before=run_id)
            known = companions.known_right(job, compiling.first, recorded)
            measured = measure(job, compiling.first, folder, say, compiling.finish, ahead, known)
            built = compiling.finish()
            measured, roofs = _drawn_against(job, measured, say)
            record = _record(job, run_id, formulas, built, measured, say, recorded=recorded, roofs=roofs)
            store.keep_raw(folder, built.artifacts)
            store.write(record, folder)
            resuming.forget(folder)
            final = store.complete(folder)
    say(f"record: {final}")
    return Run(record, final, settings)


@contextlib.contextmanager
def _compiled(job: Job, say: Callable[[str], None], folder: Path, resume: bool) -> Iterator[Compiling]:
    """The build of a run, whose folder holds what it began with from then on. Of a run that cannot even be built
    nothing is left."""
    from flashcore.pipeline import resume as resuming

    try:
        compiling = Compiling(job, say, ahead=job.settings.upto is not None)
        if resume:
            resuming.require_same(folder, compiling.first.closures)
        else:
            resuming.remember(folder, job.settings, compiling.first.closures)
    except BaseException:
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    with compiling:
        yield compiling


def present(settings: Settings, say: Callable[[str], None]) -> Record:
    """The present sources' static facts, joined with measured ones that are still fresh; not stored."""
    job = _job_to_record(settings)
    built = compile_all(job, say)
    return _present(job, store.new_id(), built, say, _to_join(job, before=None))


def each_present(settings: Settings, say: Callable[[str], None]) -> list[Record]:
    """As :func:`present`; where one command recorded the runs to join from, one for each kind of GPU, one record for
    each of these GPUs whose arch is asked about."""
    from flashcore.records import assemble

    job = _job_to_record(settings)
    built, run_id = compile_all(job, say), store.new_id()
    gpu = job.gpu.name if job.gpu else None
    own, *others = assemble.each_to_join(settings.places, job.suite.name, gpu) if settings.join else [[]]
    each = [own, *(recorded for recorded in others if recorded[0].gpu_arch in job.suite.archs)]
    if len(each) == 1:
        return [_present(job, run_id, built, say, each[0])]
    return [_present_of(recorded, job, run_id, built, say) for recorded in each]


def _present_of(recorded: Sequence[Record], job: Job, run_id: str, built: Built, say: Callable[[str], None]) -> Record:
    """The present sources joined with the runs of one GPU of several."""
    newest = recorded[0]
    name = newest.gpu or ""
    if job.gpu is None or job.gpu.name != name:
        job = dataclasses.replace(job, gpu=None, gpu_arch=None)
    record = _present(job, run_id, built, lambda text: say(prefixed(f"{name}: ", text)), recorded)
    if record.gpu is None:  # none of it is fresh, and what is missing is of this GPU all the same
        record = dataclasses.replace(record, joined=(Origin(newest.id, name, newest.gpu_arch or "", "nothing"),))
    return record


def _present(job: Job, run_id: str, built: Built, say: Callable[[str], None], recorded: Sequence[Record]) -> Record:
    return _record(job, run_id, _formulas(job), built, Measured(), say, recorded=recorded, roofs=None)


def _to_join(job: Job, *, before: str | None) -> list[Record]:
    """The recorded runs to join from, those before a run or all."""
    from flashcore.records import assemble

    s, gpu = job.settings, job.gpu.name if job.gpu else None
    return assemble.to_join(s.places, job.suite.name, gpu, before=before) if s.join else []


def _job_to_record(settings: Settings, say: Callable[[str], None] = lambda _: None) -> Job:
    """The job of a run that may be recorded.

    Raises:
        UsageError: the build is one for a debugger.
    """
    job = start(settings, say)
    if job.options.debug:
        raise UsageError(
            "DEBUG=1: expected a build that may be timed and gated, found a debug build (-G)\n"
            "  hint: leave DEBUG out here; `DEBUG=1 flashcore build` is what it is for"
        )
    return job


def _record(
    job: Job, run_id: str, formulas: list[Fact], built: Built, measured: Measured, say: Callable[[str], None],
    *, recorded: Sequence[Record], roofs: tuple[Roof, ...] | None,
) -> Record:  # fmt: skip
    """The record of what was found, joined with recorded runs; says what was joined and what is stale."""
    from flashcore.explain import clocks
    from flashcore.records import assemble

    s, suite = job.settings, job.suite
    nvcc = toolchain.find_nvcc(Path(s.build)) if suite.uses_nvcc else None
    machine = of_this_machine(Path(suite.root), nvcc, job.gpu, job.gpu_arch, measured.ncu)
    cases = [(v, shape) for shape in job.shapes for v in job.variants if v.runs_on(shape)]
    found = assemble.Findings(s.command, suite, cases, machine, formulas, built, measured, s.recording)
    record = clocks.agreed(assemble.record_of(run_id, found, recorded, roofs))
    if s.records and not recorded:
        say(f"join: no measured run of {suite.name} in {', '.join(map(str, s.places))}")
    for origin in record.joined:
        say(f"join: {origin.what} from run {origin.run} on {origin.machine}")
    if record.stale:
        say(f"join: {len(record.stale)} cases are stale or were never measured, and count as unmeasured")
    return record


def measure_roofs(
    settings: Settings, say: Callable[[str], None], *, fresh: bool = False
) -> tuple[Record, list[measured_roofs.Measured]]:
    """The roofs of this machine: those recorded for it, or measured now.

    Args:
        settings: of the run that is drawn against them; ``roofs`` names their suite.
        fresh: measure even if there is a record of the same machine.

    Raises:
        CapabilityError: there is no GPU.
    """
    folder = settings.roofs or str(roofs_suite())
    own = Settings(
        suite=folder,
        profiles=settings.profiles,
        build=settings.build,
        upto="bench",
        join=False,
        # In seconds, not minutes: a ceiling is one number. Whether torch accepts the operators is tested by `flashcore
        # check`.
        repeats=3,
        opcheck=False,
        samples=20,
        seconds=0.2,
        modes=("back_to_back", "eager"),
        roofs=None,
        cluster=settings.cluster,
        command=settings.command,
    )
    suite = load(folder)
    gpus, _ = _places(settings)
    if len(gpus) > 1 or settings.gpus != gpu_choice.ALL:  # ceilings of one GPU, not the best of several
        own = dataclasses.replace(own, gpus=next(iter(gpus), own.gpus))
    gpu = next(iter(gpus.values()), None) or Gpu.find()
    known = () if fresh else lookup.measured_runs(Path(settings.profiles), suite.name)
    recorded = next((r for r in known if gpu is None or _is_of(r, gpu, next(iter(gpus), ""))), None)
    if recorded is None:
        require_gpu(own)
        say("roofs: measuring this machine")
        recorded = run(own, lambda text: say(prefixed("roofs: ", text))).record
    return recorded, _ceilings(recorded, folder)


def _is_of(record: Record, gpu: Gpu, uuid: str) -> bool:
    """Whether a run was measured by this kind of machine (GPU, memory, highest clock, driver), and by this very GPU if
    it names one."""
    e = record.environment
    if uuid and record.gpus and uuid not in {g.uuid for g in record.gpus}:
        return False
    machine = (e.gpu, e.gpu_memory_bytes, e.gpu_sm_clock_mhz, e.driver)
    return machine == (gpu.name, gpu.memory_bytes, gpu.max_sm_clock_mhz, gpu.driver)


def _ceilings(record: Record, folder: str) -> list[measured_roofs.Measured]:
    from flashcore.explain import measured_roofs
    from flashcore.measure.workers.problem_file import load_problem

    amounts = {}
    for shape in record.suite.shapes.values():
        problem = load_problem(folder, record.suite.problems[shape.problem].file)
        if hasattr(problem, "ceiling"):
            amounts[shape.name] = problem.ceiling(dict(shape.params))
    return measured_roofs.measured(record, amounts)


def _drawn_against(
    job: Job, measured: Measured, say: Callable[[str], None]
) -> tuple[Measured, tuple[Roof, ...] | None]:
    """The measured roofs of this machine (``None`` if it profiles nothing); where several GPUs of this host shared the
    run, each has its own with it, and these are the first one's."""
    settings = job.settings
    if settings.upto != "profile" or job.cannot_measure or settings.roofs is None:
        return measured, None
    from flashcore.explain import measured_roofs

    def roofs(of: Settings) -> tuple[Roof, ...]:
        record, found = measure_roofs(of, say)
        say(f"roofs: run {record.id}")
        return measured_roofs.ceilings(record, found)

    sharing = [g.uuid for g in measured.gpus if g.uuid in job.uuids and any(g.cases.values())]
    own = {uuid: roofs(dataclasses.replace(settings, gpus=uuid)) for uuid in sharing}
    gpus = tuple(dataclasses.replace(g, roofs=own.get(g.uuid, ())) for g in measured.gpus)
    return dataclasses.replace(measured, gpus=gpus), next(iter(own.values())) if own else roofs(settings)


def require_gpu(settings: Settings) -> None:
    """For the commands that need a GPU.

    Raises:
        CapabilityError: says what is missing.
    """
    reason = start(settings).cannot_measure
    if reason:
        mend = "run it on a machine with a GPU; `flashcore gate` and `flashcore report` work without one"
        raise CapabilityError(reason, mend)
