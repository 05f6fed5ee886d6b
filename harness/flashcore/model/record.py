"""The results that stages pass on, as frozen data: facts, their subjects, and the run record.

Each fact names its unit in :attr:`Fact.unit`; all times are in microseconds (``us``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal, TypeVar

from flashcore.model.case import Case, TimeKey
from flashcore.model.cause import Cause, Detail, Noted, cause_text
from flashcore.model.causes import (
    IMPORTED,
    NO_STAGE,
    NOT_FOR_STAGE,
    NOT_RECORDED,
    NOT_TIMED,
    STAGE_ENDED,
    HungBefore,
    PlanRefused,
    PlanUnknown,
    compilers,
)
from flashcore.model.groups import grouped
from flashcore.model.suite import Stage, Suite
from flashcore.model.text import Value as Value
from flashcore.model.text import abbreviated

SCHEMA_VERSION = 4
#: A Python file of a suite → the files read while it ran, by path in the suite's folder → their SHA-256.
Reads = Mapping[str, Mapping[str, str]]
#: The samples of times: us per call.
TimeSamples = Mapping[TimeKey, tuple[float, ...]]
#: x, y and z of a grid, block or cluster.
Dim3 = tuple[int, int, int]
#: A file, the number of a line, and the line's text.
SourcePlace = tuple[str, int, str]
_Item = TypeVar("_Item", covariant=True)


class Source(StrEnum):
    """The source of a fact."""

    PTXAS = "ptxas"
    CUBIN = "cubin"
    SASS = "sass"
    PLAN = "plan"
    OCCUPANCY = "occupancy"  # computed from cubin and plan
    NCU = "ncu"
    CUPTI = "cupti"  # traced while the program ran
    EVENTS = "events"  # CUDA events and graph replay
    HOST = "host"  # the host's clock around calls
    KERNEL = "kernel"  # counters that the kernel reads: cycles, the chip's nanoseconds
    NVML = "nvml"
    CHECK = "check"
    FORMULA = "formula"  # the problem's FLOP and byte counts
    SANITIZER = "sanitizer"


@dataclass(frozen=True, slots=True)
class CodeSubject:
    """The subject of what compilation determines: the code of a variant for an arch, or one kernel of it."""

    variant: str
    arch: str | None = None
    kernel: str | None = None

    @property
    def case(self) -> None:
        return None

    @property
    def shape(self) -> None:
        return None

    @property
    def launch(self) -> None:
        return None

    def __str__(self) -> str:
        return "/".join(filter(None, (self.variant, self.kernel))) + (f" ({self.arch})" if self.arch else "")


@dataclass(frozen=True, slots=True)
class CaseSubject:
    """The subject of what depends on a case: the case as a whole, or one kernel of it.

    The variant is empty for a captured command's kernel that was not measured by itself.

    Args:
        launch: one of the kernel's launches; ``None``: their sum.
        arch: of what follows from the launch plan for an arch, such as the theoretical occupancy.
    """

    case: Case
    kernel: str | None = None
    launch: int | None = None
    arch: str | None = None

    @property
    def variant(self) -> str:
        return self.case.variant

    @property
    def shape(self) -> str:
        return self.case.shape

    def __str__(self) -> str:
        kernel = f"/{self.kernel}" if self.kernel else ""
        launch = f"#{self.launch}" if self.kernel and self.launch is not None else ""
        return f"{self.case}{kernel}{launch}" + (f" ({self.arch})" if self.arch else "")


#: What a fact is about.
Subject = CodeSubject | CaseSubject


def subject_of(
    variant: str, shape: str | None, kernel: str | None = None, launch: int | None = None, arch: str | None = None
) -> Subject:
    """The subject with that shape: of a case, or of code without one."""
    if shape is None:
        return CodeSubject(variant, arch, kernel)
    return CaseSubject(Case(variant, shape), kernel, launch, arch)


@dataclass(frozen=True, slots=True)
class Fact(Noted):
    """One measured value, or the statement that it could not be measured.

    ``value`` is ``None`` exactly if the fact is unmeasured; ``detail`` is then its cause. A measured value's ``detail``
    is a remark for people, or a :class:`~flashcore.model.cause.Basis` if programs need to know how it was measured. A
    value that is not finite is recorded as unmeasured.
    """

    subject: Subject
    name: str
    value: Value | None
    unit: str
    source: Source
    detail: Detail | str = ""

    @property
    def cause(self) -> Cause | None:
        """Why it is unmeasured."""
        return self.detail if isinstance(self.detail, Cause) else None

    @property
    def number(self) -> float | None:
        """The value as a float, ``None`` if unmeasured or not a number."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            return None
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Time:
    """A recorded time of a case in one timing mode, or why it is unmeasured.

    Args:
        us: the median; ``None`` if unmeasured.
        samples: us per call, in the order of the rounds; empty if unmeasured or not recorded.
        cause: why it is unmeasured.
        run: the run that took it, by its id.
        gpu: the UUID of the GPU that took it; empty if the run does not name its GPUs.
        empty_us: the median time of an empty launch in the same rounds, if it was timed.
        in_turns: whether cases of one shape were timed alternately; imported benchmarks ran one after the other.
    """

    subject: CaseSubject
    mode: str
    us: float | None = None
    samples: tuple[float, ...] = ()
    cause: Cause | None = None
    run: str = ""
    gpu: str = ""
    empty_us: float | None = None
    in_turns: bool = True


class Lazy(Collection[_Item]):
    """Items that are read at the first access: most readers of a record need only some of its files.

    Args:
        make: reads the items; its exceptions are raised by every access.
    """

    def __init__(self, make: Callable[[], Iterable[_Item]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> tuple[_Item, ...]:
        return tuple(self._make())

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, item: object) -> bool:
        return item in self._made


class Facts:
    """Facts, indexed by name and subject.

    The indexes are built at the first lookup, because most readers only iterate. Iteration keeps the recorded order. In
    lookups by subject, a later fact replaces an earlier one of the same name.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._all: Collection[Fact] = facts if isinstance(facts, Lazy) else tuple(facts)

    @cached_property
    def _by_subject(self) -> dict[Subject, dict[str, Fact]]:
        index: dict[Subject, dict[str, Fact]] = {}
        last: Subject | None = None
        by_name: dict[str, Fact] = {}  # a subject's facts are consecutive: one lookup for all of them
        for fact in self._all:
            if fact.subject is not last:
                last = fact.subject
                by_name = index.setdefault(last, {})
            by_name[fact.name] = fact
        return index

    @cached_property
    def _by_name(self) -> dict[str, list[Fact]]:
        return grouped((fact.name, fact) for fact in self._all)

    @cached_property
    def _by_variant(self) -> dict[str, list[Fact]]:
        return grouped((fact.subject.variant, fact) for fact in self._all)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def named(self, name: str) -> list[Fact]:
        """All facts of one name."""
        return self._by_name.get(name, [])

    def of(self, variant: str) -> list[Fact]:
        """All facts of one variant."""
        return self._by_variant.get(variant, [])

    def about(self, subject: Subject) -> Iterable[Fact]:
        """The facts about exactly that subject, the last of each name."""
        return self._by_subject.get(subject, {}).values()

    def get(self, name: str, subject: Subject) -> Fact | None:
        """The fact of that name about exactly that subject."""
        return self._by_subject.get(subject, {}).get(name)

    def number(self, name: str, subject: Subject) -> float | None:
        """The fact's value as a float; ``None`` if absent or unmeasured."""
        fact = self.get(name, subject)
        return None if fact is None else fact.number


# --- results of stages --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch of a plan.

    ``grid`` and ``cluster`` are in blocks, ``block`` in threads, ``dynamic_smem`` in bytes per block.
    A ``programmatic`` launch may start before its predecessor ends; all blocks of a ``cooperative`` one run at once.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_smem: int
    programmatic: bool = False
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A variant's launches on a shape, and its workspace in bytes.

    With a ``cause`` there are no launches: the variant refuses the shape, its launches cannot work or are unknown, or
    its plan function crashed or did not return. It applies to the code compiled for each of ``archs``; older runs have
    one plan for all archs, and no ``archs``.
    """

    variant: str
    shape: str
    launches: tuple[Launch, ...]
    workspace_bytes: int
    cause: Cause | None = None
    archs: tuple[str, ...] = ()

    @property
    def case(self) -> Case:
        return Case(self.variant, self.shape)

    @property
    def error(self) -> str:
        """Why there are no launches, for people."""
        return cause_text(self.cause)

    @property
    def can_run(self) -> bool:
        """Whether nothing is known that prevents a run."""
        return self.cause is None or isinstance(self.cause, PlanUnknown)

    @property
    def failed(self) -> bool:
        """Whether it cannot run, for another reason than that the variant refuses the shape."""
        return not self.can_run and not isinstance(self.cause, PlanRefused)


def plans_for(plans: Iterable[Plan], arch: str | None) -> dict[Case, Plan]:
    """The plans for an arch by case; without an arch, the last of each."""
    return {p.case: p for p in plans if arch in (None, *p.archs) or not p.archs}


def unlaunched_of(plans: Collection[Plan | None], kernels: Iterable[str]) -> tuple[str, ...]:
    """The kernels of a build that its variant launches on no shape: those of a file that other variants are for.

    None if a plan is missing, so that any kernel may be launched, or if the plans do not fit the kernels.

    Args:
        plans: of each shape that the variant runs on.
    """
    built = dict.fromkeys(kernels)
    launched = {launch.kernel for plan in plans if plan for launch in plan.launches}
    if not launched or not launched <= built.keys() or not all(plan and plan.cause is None for plan in plans):
        return ()
    return tuple(kernel for kernel in built if kernel not in launched)


@dataclass(frozen=True, slots=True)
class Artifact:
    """The result of building one (variant, arch).

    A status other than ``ok`` has a ``cause``. ``source_hash`` covers the user's comment-stripped files, the flags
    and the config. ``code`` hashes the kernels' code sections, ``host`` the host code, compiled by ``cxx``; both
    determine freshness. Archs with the same host code share ``host`` and ``plan_library``.

    A compiled callable has ``cubins`` (file by kernel) instead of ``cubin``. Its ``calls`` has a hash per shape, of the
    launched code with grid and arguments; ``cxx`` is its compiler. ``unlaunched`` are the kernels of
    :func:`unlaunched_of`; no fact is about them. Host code that may launch others than it declares has none.
    """

    variant: str
    arch: str
    status: Literal["ok", "failed", "unsupported"]
    cause: Cause | None = None
    source_hash: str = ""
    code: str = ""
    flags: tuple[str, ...] = ()
    cubin: str | None = None
    log: str | None = None
    library: str | None = None  # the torch operator's .so, for the host arch only
    plan_library: str | None = None
    seconds: float | None = None
    cached: bool = False
    host: str = ""
    cxx: str = ""
    cubins: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, str] = field(default_factory=dict)
    unlaunched: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Why there is no code, for people; after a failed build, the compiler's message."""
        return cause_text(self.cause)


def unlaunched_note(artifacts: Iterable[Artifact]) -> list[str]:
    """A line that counts the unlaunched kernels, if there are any."""
    names = list(dict.fromkeys(f"{a.variant}/{kernel}" for a in artifacts for kernel in a.unlaunched))
    return [f"left out: {abbreviated(names, 1)}, which the variant does not launch on any shape"] if names else []


CaseStatus = Literal["ok", "failed", "skipped", "unsupported"]


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of one case in one stage. Every status but ``ok`` has a ``cause``."""

    variant: str
    shape: str
    stage: Stage
    status: CaseStatus
    cause: Cause | None = None
    seconds: float | None = None
    origin: str = ""  # the run it was joined from; empty: this run

    @property
    def case(self) -> Case:
        return Case(self.variant, self.shape)

    @property
    def reason(self) -> str:
        """The cause in words, for people."""
        return cause_text(self.cause)


def outcome_of(case: Case, stage: Stage, cause: Cause | None, seconds: float | None = None) -> CaseOutcome:
    """The outcome of a case that a stage ran, or skipped because its variant hung before."""
    status: CaseStatus = "ok" if cause is None else "skipped" if isinstance(cause, HungBefore) else "failed"
    return CaseOutcome(case.variant, case.shape, stage, status, cause, seconds)


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the tools a run used. ``None`` is unknown or absent."""

    host: str | None
    os: str
    cpu: str
    python: str
    harness: str
    gpu: str | None = None
    gpu_arch: str | None = None
    gpu_sms: int | None = None
    gpu_memory_bytes: int | None = None
    gpu_l2_bytes: int | None = None
    gpu_sm_clock_mhz: float | None = None  # the driver's maximum
    gpu_uuid: str | None = None  # of a run on one GPU
    gpu_limits: str | None = None  # power and clocks: 700 W, 1980 MHz
    driver: str | None = None
    cuda_runtime: str | None = None
    nvcc: str | None = None
    ncu: str | None = None
    torch: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    git_commit: str | None = None
    git_dirty: bool | None = None
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables that changed the build


def throttle_value(reasons: Iterable[str]) -> str:
    """The value of the fact ``throttle``: the driver's reasons for a lower clock, as codes; see
    :func:`throttle_reasons`."""
    return ", ".join(dict.fromkeys(reasons)) or "none"


def throttle_reasons(facts: Iterable[Fact | None]) -> set[str]:
    """The reasons in the values of facts ``throttle``."""
    return {code for fact in facts if fact and fact.value is not None for code in str(fact.value).split(", ")} - {
        "none"
    }


@dataclass(frozen=True, slots=True)
class SharingGpu:
    """One of several GPUs that shared the cases of a run.

    Args:
        host: its host; ``None`` if unknown.
        sm_clock_mhz, temperature, throttle: the median, the highest, and all reasons during the bench stage.
        cases: stage → the cases that ran on this GPU.
        remark: why it was lost; empty: it was not.
        roofs: measured on this GPU; empty: the run's roofs apply, measured on another GPU of this model.
    """

    uuid: str
    host: str | None
    sm_clock_mhz: float | None
    temperature: float | None
    throttle: tuple[str, ...]
    cases: Mapping[str, tuple[Case, ...]]
    remark: str = ""
    roofs: tuple[Roof, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseKey:
    """A case's freshness key: recorded facts are fresh while it is unchanged.

    ``code`` hashes the kernels' code sections, ``host`` the host code that launches them. Both also cover the launch
    plan with its attributes, the problem file, the shape and the tolerance; comments change neither. ``code`` is
    comparable within one ``nvcc`` release, ``host`` within one ``cxx``. Across releases ``source_hash`` is compared, of
    comment-stripped sources and flags. References have ``is_reference`` set, and only ``code``: the hash of their file
    and the problem. ``settings`` hashes the other inputs of a result: seeds, repeats, rank_by; empty in older runs.
    """

    code: str
    source_hash: str
    nvcc: str
    is_reference: bool = False
    host: str = ""
    cxx: str = ""
    settings: str = ""


@dataclass(frozen=True, slots=True)
class StageNote:
    """A stage's outcome and duration in seconds. ``detail`` is the cause of a failure, or a remark for people."""

    stage: str
    status: Literal["ok", "failed", "skipped"]
    seconds: float
    detail: Cause | str = ""

    @property
    def reason(self) -> str:
        """The detail in words, for people."""
        return cause_text(self.detail)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of facts that were joined into a run: the run's id, its GPU and arch, and the joined facts.

    ``compilers`` are those of its code that differ from the present ones: part, its release, the present release.
    """

    run: str
    machine: str
    arch: str
    what: str
    compilers: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CountedInstruction:
    """One machine instruction of a profiled kernel, with its source line and counters.

    Args:
        offset: bytes from the kernel's start.
        text: its disassembly.
        file, line: its source line, relative to the suite; empty and 0 if unknown. ``source`` is the line's text.
        values: counters by name, see :data:`COUNTED`; one that is absent was not counted.
        calls: the calls that it was inlined through, innermost first: file, line and text.
    """

    offset: int
    text: str
    file: str
    line: int
    source: str
    values: Mapping[str, float]
    calls: tuple[SourcePlace, ...] = ()


#: Counters of an instruction: warp samples at it, stalled or not; executions by warps; shared-memory wavefronts, and
#: the wavefronts without bank conflicts. Also ``stall_<reason>``: samples of warps stalled for that reason.
COUNTED = ("samples", "executed", "wavefronts", "wavefronts_ideal")


@dataclass(frozen=True, slots=True)
class Listing:
    """The instructions of one kernel of a case in code order, summed over its launches.

    ``files`` has the text of their source files by name; older runs have none.
    """

    subject: CaseSubject
    instructions: tuple[CountedInstruction, ...]
    files: Mapping[str, str] = field(default_factory=dict)


RoofOrigin = Literal["datasheet", "at clock seen", "measured"]

#: FLOPs, bytes or operations in a microsecond at one unit.
_PER_US = {"TFLOP/s": 1e6, "GB/s": 1e3, "Gop/s": 1e3}


@dataclass(frozen=True, slots=True)
class Roof:
    """A ceiling of a machine.

    Args:
        resource: a dtype (``fp16_tensor``, ``fp32``), a level (``dram``, ``l2``, ``l1``), or
            ``shared``, ``exp``, ``launch``.
        value: in ``unit``: TFLOP/s, GB/s, Gop/s, or us (``launch``: the least time of one launch).
        clock_mhz: the SM clock at which the value applies; ``None`` if it does not depend on that clock.
        note: the datasheet, or the measurement.
    """

    resource: str
    value: float
    unit: str
    origin: RoofOrigin
    device: str
    clock_mhz: float | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """The label in legends: ``fp16_tensor, at clock seen (1,970 MHz)``."""
        clock = f" ({self.clock_mhz:,.0f} MHz)" if self.clock_mhz else ""
        return f"{self.resource}, {self.origin}{clock}"

    def us(self, amount: float) -> float:
        """The least time in microseconds for ``amount`` FLOPs, bytes, operations or launches."""
        return amount * self.value if self.unit == "us" else amount / (self.value * _PER_US[self.unit])

    def percent(self, amount: float, us: float) -> float:
        """The least time for ``amount`` in percent of ``us``."""
        return 100 * self.us(amount) / us


#: The stages whose processes could change the figures that they measure.


@dataclass(frozen=True)
class Record:
    """Everything one invocation recorded: the only input of analysis, report and gate.

    ``keys`` maps a case to its freshness key on :attr:`gpu_arch`, ``stale`` to why recorded facts were not joined.
    ``raw_samples`` maps a case and timing mode to the bench samples (us) in the order of the rounds, as they were
    measured: void ones too. Readers use :meth:`time` or :attr:`samples`. ``listings`` are of the kernels whose warps
    were sampled. ``reads`` are the files that Python read in the suite's folder while cases were checked; older runs
    have none.
    """

    id: str
    command: str
    suite: Suite
    environment: Environment
    artifacts: tuple[Artifact, ...] = ()
    plans: tuple[Plan, ...] = ()
    outcomes: tuple[CaseOutcome, ...] = ()
    stages: tuple[StageNote, ...] = ()
    facts: Facts = field(default_factory=Facts)
    keys: Mapping[Case, CaseKey] = field(default_factory=dict)
    stale: Mapping[Case, Cause] = field(default_factory=dict)
    joined: tuple[Origin, ...] = ()
    raw_samples: TimeSamples = field(default_factory=dict)
    roofs: tuple[Roof, ...] = ()  # measured, copied from the roof record
    schema_version: int = SCHEMA_VERSION
    listings: Collection[Listing] = ()
    gpus: tuple[SharingGpu, ...] = ()  # those that shared the cases; empty for a single GPU
    reads: Reads = field(default_factory=dict)

    @cached_property
    def samples(self) -> TimeSamples:
        """The samples of times that are not void."""
        return _valid(self.raw_samples, self.facts, self.outcomes)

    @cached_property
    def _outcomes(self) -> Mapping[tuple[Case, Stage], CaseOutcome]:
        return {(o.case, o.stage): o for o in self.outcomes}

    @cached_property
    def _timed_on(self) -> Mapping[Case, str]:
        return {case: gpu.uuid for gpu in self.gpus for case in gpu.cases.get("bench", ())}

    def outcome(self, case: Case, stage: Stage) -> CaseOutcome | None:
        """The outcome of a case in a stage."""
        return self._outcomes.get((case, stage))

    def missing(self, case: Case, stage: Stage) -> Cause:
        """Why a result of a stage is missing in a case; only the fact itself may have a closer cause."""
        if stale := self.stale.get(case):
            return stale
        variant, shape = self.suite.variants.get(case.variant), self.suite.shapes.get(case.shape)
        if outcome := self.outcome(case, stage):
            main = {"check": "max_error", "profile": "ncu_duration"}.get(stage, shape.time if shape else "")
            fact = self.facts.get(main, CaseSubject(case))
            return outcome.cause or (fact.cause if fact else None) or NOT_RECORDED()
        if stage == "bench" and variant and variant.imported:
            return IMPORTED()
        if shape and stage not in shape.stages:
            return NOT_FOR_STAGE(shape.name, stage)
        note = next((s for s in self.stages if s.stage == stage and s.status != "ok"), None)
        return STAGE_ENDED(stage, note.status, note.detail) if note else NO_STAGE(stage)

    def time(self, subject: CaseSubject, mode: str) -> Time:
        """The time of a case in a timing mode. A void one is unmeasured, with its cause."""
        case = subject.case
        outcome = self.outcome(case, "bench")
        median = self.facts.get(f"{mode}_p50", subject)
        failure = outcome.cause if outcome and outcome.status == "failed" else None
        if failure or median is None or median.number is None:
            return Time(subject, mode, cause=failure or (median.cause if median else None) or NOT_TIMED(mode))
        run = (outcome.origin if outcome else "") or self.id
        gpu = self._timed_on.get(case, "") if run == self.id else ""
        empty = self.facts.number(f"{mode}_launch_floor", subject)
        variant, samples = self.suite.variants.get(case.variant), self.samples.get((case, mode), ())
        in_turns = not (variant and variant.imported)
        return Time(subject, mode, median.number, samples, None, run, gpu, empty, in_turns)

    @property
    def created(self) -> str:
        """The time of recording, from the id: UTC, as ``2026-11-21T09:30:00Z``."""
        day, time = self.id[:8], self.id[9:15]
        return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z"

    def environment_notes(self) -> list[str]:
        """A note on what distinguishes this build from one of the same sources elsewhere, if anything does."""
        parts = [f"{name}={value}" for name, value in self.environment.variables.items()]
        parts += [f"compilers differ from run {o.run}: {compilers(o.compilers)}" for o in self.joined if o.compilers]
        return [f"environment: {'; '.join(parts)}"] if parts else []

    def roofs_by(self, stage: Stage) -> Callable[[CaseSubject], tuple[Roof, ...]]:
        """A lookup of a case's measured roofs: those of the GPU that ran the stage for it, else the run's."""
        roofs = {case: gpu.roofs for gpu in self.gpus if gpu.roofs for case in gpu.cases.get(stage, ())}
        return lambda subject: roofs.get(subject.case, self.roofs)

    @property
    def gpu(self) -> str | None:
        """The GPU of the measured facts: this machine's, else the joined run's."""
        if self.environment.gpu:
            return self.environment.gpu
        return self.joined[0].machine if self.joined else None

    @property
    def gpu_arch(self) -> str | None:
        """The suite's arch of :attr:`gpu`."""
        if self.environment.gpu_arch:
            return self.environment.gpu_arch
        return self.joined[0].arch if self.joined else None


def _valid(raw: TimeSamples, facts: Facts, outcomes: Iterable[CaseOutcome]) -> TimeSamples:
    """The samples without those of a case that bench failed, or of a time that is unmeasured."""
    failed = {o.case for o in outcomes if o.stage == "bench" and o.status == "failed"}
    modes = {mode for _, mode in raw}
    void = {(f.subject.case, mode) for mode in modes for f in facts.named(f"{mode}_p50") if f.number is None}
    return {key: times for key, times in raw.items() if key not in void and key[0] not in failed}


@dataclass(frozen=True, slots=True)
class Built:
    """The build of a suite's variants, which needs no GPU: artifacts, launch plans, static facts and outcomes."""

    nvcc: str
    artifacts: tuple[Artifact, ...]
    plans: tuple[Plan, ...]
    facts: tuple[Fact, ...] = ()
    notes: tuple[StageNote, ...] = ()

    def artifact(self, variant: str, arch: str | None) -> Artifact | None:
        """The artifact of a variant for an arch."""
        return next((a for a in self.artifacts if (a.variant, a.arch) == (variant, arch)), None)

    def plan(self, variant: str, shape: str, arch: str | None) -> Plan | None:
        """A variant's launch plan for a shape."""
        return plans_for(self.plans, arch).get(Case(variant, shape))

    @property
    def source_hashes(self) -> dict[str, str]:
        """The source hash of each build, by ``variant arch``."""
        return {f"{a.variant} {a.arch}": a.source_hash for a in self.artifacts}


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a GPU stage: facts, each case's outcome, samples (us) as measured; ``ncu`` is ncu's version."""

    facts: tuple[Fact, ...] = ()
    outcomes: tuple[CaseOutcome, ...] = ()
    raw_samples: TimeSamples = field(default_factory=dict)
    listings: tuple[Listing, ...] = ()
    ncu: str | None = None
    reads: Reads = field(default_factory=dict)

    @property
    def samples(self) -> TimeSamples:
        """The samples of times that are not void."""
        return _valid(self.raw_samples, Facts(self.facts), self.outcomes)


@dataclass(frozen=True, slots=True)
class Measured(StageResult):
    """The results of all GPU stages of a run, a note on each stage, and the GPUs that shared the cases."""

    notes: tuple[StageNote, ...] = ()
    gpus: tuple[SharingGpu, ...] = ()

    def plus(self, result: StageResult, note: StageNote) -> Measured:
        """A copy with the result of one more stage."""
        return Measured(
            (*self.facts, *result.facts),
            (*self.outcomes, *result.outcomes),
            {**self.raw_samples, **result.raw_samples},
            (*self.listings, *result.listings),
            result.ncu or self.ncu,
            result.reads or self.reads,
            (*self.notes, note),
            self.gpus,
        )
