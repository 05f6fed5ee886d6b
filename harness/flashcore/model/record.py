"""What each stage passes to the next, as frozen data: facts and what they are about, up to the run record.

Units are named once, in :attr:`Fact.unit`; times are microseconds (``us``) everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal, TypeVar

from flashcore.model.cause_text import text
from flashcore.model.causes import Cause, Detail, PlanRefused, Stale
from flashcore.model.groups import grouped
from flashcore.model.suite import Stage, Suite
from flashcore.model.text import Value as Value

SCHEMA_VERSION = 3
#: A Python file of a suite → each file that was read while it ran, by its path in the suite's folder → its SHA-256.
Reads = Mapping[str, Mapping[str, str]]
_Item = TypeVar("_Item", covariant=True)


class Source(StrEnum):
    """The source of a fact."""

    PTXAS = "ptxas"
    CUBIN = "cubin"
    SASS = "sass"
    PLAN = "plan"
    OCCUPANCY = "occupancy"  # computed from cubin and plan
    NCU = "ncu"
    CUPTI = "cupti"  # by a tracer, in the program's run
    EVENTS = "events"  # CUDA events and graph replay
    KERNEL = "kernel"  # a kernel's own counters: cycles, the chip's nanoseconds
    NVML = "nvml"
    CHECK = "check"
    FORMULA = "formula"  # the problem's own FLOP and byte counts
    SANITIZER = "sanitizer"


@dataclass(frozen=True, slots=True)
class Subject:
    """A fact's subject.

    Static facts are about (variant, arch, kernel); with ``shape`` when the launch plan enters
    (theoretical occupancy). Measured facts are about (variant, shape, kernel, launch): a case as a
    whole has no kernel, a kernel summed over its launches no launch. The variant is empty of a kernel that a command
    launched and that was not measured by itself.
    """

    variant: str
    arch: str | None = None
    shape: str | None = None
    kernel: str | None = None
    launch: int | None = None

    @property
    def case(self) -> str:
        """``variant/shape``, the name of the NVTX range too."""
        return f"{self.variant}/{self.shape}"

    def __str__(self) -> str:
        parts = [self.variant]
        if self.shape:
            parts.append(self.shape)
        if self.kernel:
            parts.append(self.kernel + (f"#{self.launch}" if self.launch is not None else ""))
        return "/".join(parts) + (f" ({self.arch})" if self.arch else "")


@dataclass(frozen=True, slots=True)
class Fact:
    """One measured value, or the statement that it could not be measured.

    ``value`` is ``None`` exactly when the fact is unmeasured; ``detail`` is then its cause. Of a measured value it is a
    remark for people, or a :class:`~flashcore.model.causes.Basis` where programs need to know how it was measured. A
    value that is not finite is never stored: it is unmeasured.
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
    def note(self) -> str:
        """The detail in words, for people."""
        return text(self.detail)

    @property
    def number(self) -> float | None:
        """The value as a float, ``None`` if unmeasured or not a number."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            return None
        return float(self.value)


class Lazy(Collection[_Item]):
    """Items that are read at the first access, since most readers of a record need only some of its files.

    Args:
        make: reads them; every access raises what it raises.
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
    """Facts, found by name and subject. The indexes are made at the first look-up: most readers only iterate.

    :class:`Lazy` facts are read at the first access.

    Iteration gives them in the order they were recorded. A later fact of the same name, subject
    and source replaces an earlier one in look-ups.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._all: Collection[Fact] = facts if isinstance(facts, Lazy) else tuple(facts)

    @cached_property
    def _by_subject(self) -> dict[Subject, dict[str, Fact]]:
        index: dict[Subject, dict[str, Fact]] = {}
        last: Subject | None = None
        named: dict[str, Fact] = {}  # a subject's facts follow each other: it is looked up once
        for fact in self._all:
            if fact.subject is not last:
                last = fact.subject
                named = index.setdefault(last, {})
            named[fact.name] = fact
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
        """Its value as a float; ``None`` if absent or unmeasured."""
        fact = self.get(name, subject)
        return None if fact is None else fact.number


# --- what the stages hand on --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch of a plan: dimensions in blocks, threads, blocks per cluster, bytes; whether it may start
    before its predecessor ends, and whether all its blocks run at once."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem: int
    programmatic: bool = False
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A variant's launches on a shape, and its workspace in bytes.

    With a ``cause`` there are no launches: the variant refuses the shape, or its plan function crashed or did not
    return. It is the plan of the code compiled for each of ``archs``; older runs have one for all archs, which names
    none.
    """

    variant: str
    shape: str
    launches: tuple[Launch, ...]
    workspace_bytes: int
    cause: Cause | None = None
    archs: tuple[str, ...] = ()

    @property
    def error(self) -> str:
        """Why there are no launches, for people."""
        return text(self.cause)

    @property
    def crashed(self) -> bool:
        """Whether the plan function failed, rather than refused the shape."""
        return self.cause is not None and not isinstance(self.cause, PlanRefused)


def plans_for(plans: Iterable[Plan], arch: str | None) -> dict[tuple[str, str], Plan]:
    """The plans for an arch by variant and shape; without an arch, the last of each."""
    return {(p.variant, p.shape): p for p in plans if arch in (None, *p.archs) or not p.archs}


@dataclass(frozen=True, slots=True)
class Artifact:
    """The result of building one (variant, arch).

    ``status`` is ``ok``, ``failed`` or ``unsupported``, the last two with their ``cause``. ``closure`` hashes the text
    of the user's files without comments, the flags and the config; ``code`` hashes the kernels' code sections, ``host``
    the host's, made by ``cxx``: they decide freshness. ``host`` and ``plan_library`` are shared by the archs
    that have the same host code.

    A callable with kernels has ``cubins`` in place of ``cubin``: file by kernel; ``calls`` hashes, for each shape, the
    code of what is launched there with its grid and arguments, and ``cxx`` is its compiler.
    """

    variant: str
    arch: str
    status: Literal["ok", "failed", "unsupported"]
    cause: Cause | None = None
    closure: str = ""
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

    @property
    def message(self) -> str:
        """Why there is no code, for people; of a failed build the compiler's message."""
        return text(self.cause)


CaseStatus = Literal["ok", "failed", "skipped", "unsupported"]


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of one case in one stage. Only an ``ok`` one has no ``cause``."""

    variant: str
    shape: str
    stage: Stage
    status: CaseStatus
    cause: Cause | None = None
    seconds: float | None = None
    origin: str = ""  # the run it was joined from; empty: this one

    @property
    def case(self) -> str:
        return f"{self.variant}/{self.shape}"

    @property
    def reason(self) -> str:
        """The cause in words, for people."""
        return text(self.cause)


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
    gpu_sm_clock_mhz: float | None = None  # the highest the driver names
    gpu_uuid: str | None = None  # of one GPU
    gpu_limits: str | None = None  # of its power and clocks: 700 W, 1980 MHz
    driver: str | None = None
    cuda_runtime: str | None = None
    nvcc: str | None = None
    ncu: str | None = None
    torch: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    git_commit: str | None = None
    git_dirty: bool | None = None


@dataclass(frozen=True, slots=True)
class SharingGpu:
    """One of several GPUs that shared the cases of a run.

    Args:
        host: where it is; ``None`` is unknown.
        spread: A/A: the largest relative difference of two medians of the same call, timed in turns while the others
            were busy too. ``None``: nothing was timed.
        reference: us that it took for each reference call.
        sm_clock_mhz, temperature, throttle: median, highest and all that was seen while it was benching.
        cases: stage → the cases (``variant/shape``) whose results are this GPU's.
        remark: why it was not used any further, or why cases were moved away from it; empty: neither.
        roofs: those measured on this very GPU; none: the run's are those of another of its kind.
    """

    uuid: str
    host: str | None
    spread: float | None
    reference: Mapping[str, float]
    sm_clock_mhz: float | None
    temperature: float | None
    throttle: tuple[str, ...]
    cases: Mapping[str, tuple[str, ...]]
    remark: str = ""
    roofs: tuple[Roof, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseKey:
    """A case's key: recorded facts are fresh while it is unchanged.

    ``code`` hashes the kernels' code sections, ``host`` the host code that launches them; both also the launch plan
    with its attributes, the problem file, the shape and the tolerance. A comment changes neither. ``code``
    compares only within one ``nvcc`` release and ``host`` within one ``cxx``; across them ``closure`` does (the
    sources' text without comments, and the flags). Peers have ``peer`` set, carry library versions in their run's
    environment, and are never stale.
    ``settings`` hashes what else a result depends on: seeds, repeats, the mode that ranks; empty in older runs.
    """

    code: str
    closure: str
    nvcc: str
    peer: bool = False
    host: str = ""
    cxx: str = ""
    settings: str = ""


@dataclass(frozen=True, slots=True)
class StageNote:
    """A stage's outcome and duration in seconds. ``detail`` is why it failed, or a remark for people."""

    stage: str
    status: Literal["ok", "failed", "skipped"]
    seconds: float
    detail: Cause | str = ""

    @property
    def reason(self) -> str:
        """The detail in words, for people."""
        return text(self.detail)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where facts that were joined into a run come from: its id, its GPU and arch, what was taken."""

    run: str
    machine: str
    arch: str
    what: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction of a profiled kernel, the source line that it comes from, and what was counted.

    Args:
        offset: in bytes from the kernel's start.
        text: the disassembler's.
        file, line: relative to the suite; empty and 0 where none is known. ``source`` is that line's text.
        values: by :data:`COUNTED`; what is absent was not counted.
        calls: where it was inlined, the nearest call first: file, line and text.
    """

    offset: int
    text: str
    file: str
    line: int
    source: str
    values: Mapping[str, float]
    calls: tuple[tuple[str, int, str], ...] = ()


#: What is counted of an instruction: how often a warp was found at it, stalled or not; how often warps executed it; its
#: passes through shared memory, and how many it would take without bank conflicts. Besides ``stall_<reason>``: how
#: often a warp was found stalled there.
COUNTED = ("samples", "executed", "wavefronts", "wavefronts_ideal")


@dataclass(frozen=True, slots=True)
class Listing:
    """The instructions of one kernel of a case, in the order of the code, its launches added up.

    ``files`` has the text of their source files by name; a run from before they were recorded has none.
    """

    subject: Subject
    instructions: tuple[Instruction, ...]
    files: Mapping[str, str] = field(default_factory=dict)


RoofOrigin = Literal["datasheet", "at clock seen", "measured"]

#: What one unit of a roof's value does in a microsecond.
_PER_US = {"TFLOP/s": 1e6, "GB/s": 1e3, "Gop/s": 1e3}


@dataclass(frozen=True, slots=True)
class Roof:
    """A ceiling of a machine.

    Args:
        resource: a dtype (``fp16_tensor``, ``fp32``), a level (``dram``, ``l2``, ``l1``), or
            ``shared``, ``exp``, ``launch``.
        value: in ``unit``: TFLOP/s, GB/s, Gop/s, or us (``launch``: the least time of one launch).
        clock_mhz: the SM clock that the value holds at; ``None`` if it does not follow that clock.
        note: the datasheet, or what was measured and how.
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
        """As a legend names it: ``fp16_tensor, at clock seen (1,970 MHz)``."""
        clock = f" ({self.clock_mhz:,.0f} MHz)" if self.clock_mhz else ""
        return f"{self.resource}, {self.origin}{clock}"

    def us(self, amount: float) -> float:
        """The least time in microseconds for ``amount`` FLOPs, bytes, operations or launches."""
        return amount * self.value if self.unit == "us" else amount / (self.value * _PER_US[self.unit])

    def percent(self, amount: float, us: float) -> float:
        """The least time for ``amount`` as a share of ``us``, %."""
        return 100 * self.us(amount) / us


@dataclass(frozen=True, slots=True)
class Record:
    """Everything one invocation recorded; all that analysis, report and gate ever see.

    ``keys`` maps a case (``variant/shape``) to its freshness key on :attr:`gpu_arch`. ``stale`` maps a
    case to why recorded facts were not joined. ``samples`` maps ``case/mode`` to the bench samples in
    microseconds, in the order of the rounds. ``listings`` are those of the kernels whose warps were sampled.
    ``reads`` has what Python read in the suite's folder while cases were checked; older runs have none.
    ``recording`` is the same in all runs that one command recorded, one for each kind of GPU; empty where it recorded
    one.
    """

    id: str
    command: str
    suite: Suite
    environment: Environment
    artifacts: tuple[Artifact, ...]
    plans: tuple[Plan, ...]
    outcomes: tuple[CaseOutcome, ...]
    stages: tuple[StageNote, ...]
    facts: Facts
    keys: Mapping[str, CaseKey] = field(default_factory=dict)
    stale: Mapping[str, Stale] = field(default_factory=dict)
    joined: tuple[Origin, ...] = ()
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    roofs: tuple[Roof, ...] = ()  # measured ones, copied from the roof record that this run was drawn against
    schema_version: int = SCHEMA_VERSION
    listings: Collection[Listing] = ()
    gpus: tuple[SharingGpu, ...] = ()  # where several shared the cases; a run of one GPU has none here
    recording: str = ""
    reads: Reads = field(default_factory=dict)

    @property
    def created(self) -> str:
        """When it was recorded, by its id: UTC, as ``2026-11-21T09:30:00Z``."""
        day, time = self.id[:8], self.id[9:15]
        return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z"

    def roofs_by(self, stage: Stage) -> Callable[[Subject], tuple[Roof, ...]]:
        """The measured roofs of a case: of the GPU that did the stage for it, else the run's."""
        roofs = {case: gpu.roofs for gpu in self.gpus if gpu.roofs for case in gpu.cases.get(stage, ())}
        return lambda subject: roofs.get(subject.case, self.roofs)

    @property
    def gpu(self) -> str | None:
        """The GPU that the measured facts are about: this machine's, else that of the joined run."""
        if self.environment.gpu:
            return self.environment.gpu
        return self.joined[0].machine if self.joined else None

    @property
    def gpu_arch(self) -> str | None:
        """The suite's arch of :attr:`gpu`."""
        if self.environment.gpu_arch:
            return self.environment.gpu_arch
        return self.joined[0].arch if self.joined else None


@dataclass(frozen=True, slots=True)
class Built:
    """A build of a suite's variants without a GPU: objects, launch plans, static facts and its outcome."""

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
        return plans_for(self.plans, arch).get((variant, shape))

    @property
    def closures(self) -> dict[str, str]:
        """The hash of the sources, headers and flags of each build, by ``variant arch``."""
        return {f"{a.variant} {a.arch}": a.closure for a in self.artifacts}


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage that runs kernels returns: facts, the outcome of each case, raw samples (us); ``ncu`` is the version
    that profiled."""

    facts: tuple[Fact, ...] = ()
    outcomes: tuple[CaseOutcome, ...] = ()
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    listings: tuple[Listing, ...] = ()
    ncu: str | None = None
    reads: Reads = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured(StageResult):
    """The results of all GPU stages of a run, how each of them went, and the GPUs that shared the cases."""

    notes: tuple[StageNote, ...] = ()
    gpus: tuple[SharingGpu, ...] = ()

    def plus(self, result: StageResult, note: StageNote) -> Measured:
        """With the results of one more stage."""
        return Measured(
            (*self.facts, *result.facts),
            (*self.outcomes, *result.outcomes),
            {**self.samples, **result.samples},
            (*self.listings, *result.listings),
            result.ncu or self.ncu,
            result.reads or self.reads,
            (*self.notes, note),
            self.gpus,
        )
