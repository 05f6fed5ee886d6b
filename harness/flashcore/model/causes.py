"""Typed causes: why something failed, was skipped or could not be measured.

Each cause is a frozen dataclass; :mod:`flashcore.model.cause_text` has its text for people. Records store a cause by
its ``code``, so a renamed class must keep its code. A :class:`Basis` states how a value was measured, where programs
need to know. Plugins add classes and texts in the same way.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Literal, dataclass_transform

from flashcore.model import plugin

#: Every cause and basis by its code.
DETAILS: dict[str, type[Detail]] = {}


@dataclass_transform(frozen_default=True)
class Detail:
    """A typed statement about an outcome.

    Its ``code`` is the class's name in snake case, unless the class sets another.

    Subclasses are frozen dataclasses that inherit these methods: generating them for each of 100 classes would double
    the start-up time of every command.
    """

    code: ClassVar[str]
    __match_args__: ClassVar[tuple[str, ...]] = ()  # the fields of a subclass, set by `dataclass`

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        if abstract:
            return
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        if DETAILS.setdefault(cls.code, cls).__qualname__ != cls.__qualname__:
            raise ValueError(f"{cls.__qualname__}: expected a unique code, found {cls.code!r}, which is in use")

    def __init__(self, *values: Any, **keywords: Any) -> None:
        fields, kind = self.__match_args__, type(self)
        arguments = dict(zip(fields, values, strict=False)) | keywords
        if len(values) + len(keywords) > len(arguments) or not arguments.keys() <= set(fields):
            raise TypeError(f"{kind.__name__}: expected the arguments {fields}, found {values} and {keywords}")
        missing = [name for name in fields if name not in arguments and not hasattr(kind, name)]
        if missing:
            raise TypeError(f"{kind.__name__}: missing the arguments {missing}")
        vars(self).update({name: arguments.get(name, getattr(kind, name, None)) for name in fields})

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.__match_args__)))

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # slow: with pydantic, a quarter of a command's start-up time

        if "code" in vars(cls):
            return handler(source)
        return core_schema.no_info_plain_validator_function(lambda data: _expect(from_json(data), cls))


class Cause(Detail, abstract=True):
    """The reason for a missing value, or an outcome other than success."""


class Basis(Detail, abstract=True):
    """How a value was measured."""


def as_json(detail: Detail) -> dict[str, Any]:
    """``{"cause": code, …details}``."""
    if isinstance(detail, Unknown):
        return dict(json.loads(detail.recorded))
    return {"cause": detail.code, **{f.name: _plain(getattr(detail, f.name)) for f in dataclasses.fields(detail)}}  # type: ignore[arg-type]


def from_json(data: Any) -> Detail:
    """The cause or basis that :func:`as_json` wrote; :class:`Unknown` if its code is a missing plugin's.

    Raises:
        ValueError: the data has another form.
    """
    if isinstance(data, Detail):
        return data
    if not isinstance(data, dict) or not isinstance(data.get("cause"), str):
        raise ValueError(f"expected a cause with its code, found {type(data).__name__}")
    if data["cause"] not in DETAILS:
        reference = plugin.entry("causes", data["cause"])
        if reference is None:
            return Unknown(json.dumps(data))
        plugin.resolve(reference)  # registers the class
    detail: Detail = _reader(data["cause"])({name: value for name, value in data.items() if name != "cause"})
    return detail


@cache
def _reader(code: str) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(DETAILS[code]).validate_python


def _expect(detail: Detail, kind: type[Detail]) -> Detail:
    if not isinstance(detail, kind):
        raise ValueError(f"expected a {kind.__name__.lower()}, found {detail.code}")
    return detail


def _plain(value: Any) -> Any:
    if isinstance(value, Detail):
        return as_json(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


class Unknown(Cause):
    """A recorded cause of a plugin that is not loaded."""

    recorded: str


class Message(Cause):
    """A message from a tool, a library, the user's code or an older record. Programs do not interpret it."""

    message: str


class Several(Cause):
    """More than one cause."""

    causes: tuple[Cause, ...]


# --- processes ------------------------------------------------------------------------------------------


class Hang(Cause):
    """A task did not finish within its time limit."""

    seconds: float
    step: str = ""


class NoStart(Cause):
    """A process started no task within its time limit."""

    seconds: float
    output: str = ""


class Crash(Cause):
    """A process ended without a result. ``exit_code`` is negative for a signal."""

    exit_code: int
    output: str = ""


class NeverBegan(Cause):
    """The processes for a task ended before any task started."""

    because: Cause


class WorkerLost(Cause):
    """A task's worker was lost ``times`` times."""

    times: int
    message: str


class Raised(Cause):
    """The task raised an exception. ``kind`` is its type; empty for an error of this package."""

    kind: str
    message: str


class InStep(Cause):
    """A task failed in this step."""

    step: str
    because: Cause


class HungBefore(Cause):
    """The variant hung on another shape, so this case is not run."""

    shape: str
    because: Cause


class Unanswered(Cause):
    """A process ended normally without a result for this task."""


class Interrupted(Cause):
    """The work was stopped."""


def hangs(cause: Cause | None) -> bool:
    """Whether the cause, or one nested in it, is a task's time limit."""
    nested = [getattr(cause, f.name) for f in dataclasses.fields(cause)] if cause else []
    causes = [c for value in nested for c in (value if isinstance(value, tuple) else (value,)) if isinstance(c, Cause)]
    return isinstance(cause, Hang) or any(map(hangs, causes))


# --- builds and launch plans ----------------------------------------------------------------------------


class NotBuilt(Cause):
    """Nothing was built for this arch."""

    arch: str = ""


class CompileFailed(Cause):
    """The build failed. ``file`` and ``line`` locate its first error, if the tool does."""

    message: str
    file: str = ""
    line: int = 0


class MachineStopped(Cause, abstract=True):
    """The machine caused it, not the code. It is retried once; then the command exits with 4."""


class CompilerStopped(MachineStopped):
    """The source was neither compiled nor rejected: out of space, memory or files, or the compiler was killed."""

    message: str


class LibraryMissing(MachineStopped):
    """This machine lacks a library or a package that the variant names."""

    message: str
    hint: str


class DidNotCompile(Cause):
    """The build failed, so everything that needs it is skipped."""

    arch: str = ""


class UnsupportedArch(Cause):
    """The manifest declares the arch unsupported. ``reason`` is the manifest's."""

    archs: tuple[str, ...] = ()
    reason: str = ""


class PlanRefused(Cause):
    """The variant's launch plan refuses the shape, with its own message."""

    message: str


class PlanCrashed(Cause):
    """The launch plan's process crashed. ``exit_code`` is negative for a signal."""

    exit_code: int
    output: str = ""


class PlanStopped(MachineStopped):
    """The launch plan's process was killed, for example because memory ran out."""

    exit_code: int
    output: str = ""


class PlanHung(Cause):
    """The launch plan did not return within its time limit."""

    seconds: float


class PlanUnknown(Cause):
    """The launcher calls something that only a GPU can answer, so its launches are unknown without one."""

    call: str


class LibraryLaunches(PlanUnknown):
    """All kernels are launched by the libraries that the variant is linked with; ``call`` names them."""


class LaunchRefused(Cause):
    """The launcher launches a kernel as no GPU of the arch accepts it."""

    kernel: str
    because: Cause


class NotOptedIn(Cause):
    """A launch needs a larger value of this attribute, which ``cudaFuncSetAttribute`` sets."""

    attribute: str
    needed: int
    value: int


class LaunchesNothing(Cause):
    """The launcher launches no kernel."""


class OtherStream(Cause):
    """The launcher puts a kernel, or this call, on a stream that is not ordered after the given one."""

    work: str


class StreamNotJoined(Cause):
    """The given stream does not wait for this work on another one."""

    work: str


class NotCapturable(Cause):
    """The launcher makes a call that a CUDA graph cannot contain, not only the first time."""

    call: str


class NoPlan(Cause):
    """There is no launch plan. ``profiled``: the case is a reference, or its plan could not be read."""

    profiled: bool = False


class PlanFailed(Cause):
    """The value needs the launch plan, which failed."""

    because: Cause
    shape: str = ""


# --- stages ---------------------------------------------------------------------------------------------


class NoGpu(Cause):
    """This machine cannot run kernels, or the suite is not built for its GPU."""

    message: str


class Incapable(Cause):
    """This machine lacks something that a stage needs."""

    message: str
    hint: str = ""


class FailedBefore(Cause):
    """An earlier stage failed on this case, or skipped it."""

    because: Cause


class WrongBefore(Cause):
    """The variant is wrong, or hangs, on another shape."""

    shape: str
    because: Cause


class CasesFailed(Cause):
    """Some cases of a stage failed."""

    failed: int
    cases: int


class BuildsFailed(Cause):
    """Some variants did not compile, or their launch plans failed."""

    failed: int
    builds: int
    plans: int = 0


# --- check and sanitize ---------------------------------------------------------------------------------


class WrongElements(Basis):
    """The wrong elements of an output for the first input that has any.

    Args:
        wrong, total: numbers of elements.
        first: the index of the first wrong element; ``expected`` and ``actual`` are its values.
        pattern: see :func:`flashcore.measure.workers.wrong_elements.pattern`.
    """

    code = "wrong_elements"
    output: str
    wrong: int
    total: int
    first: tuple[int, ...]
    expected: str
    actual: str
    pattern: str


class WrongAnswer(Cause):
    """The answer is wrong, in these ways. Older runs have no ``elements``."""

    complaints: tuple[str, ...]
    elements: Detail | None = None


class OutOfBounds(WrongAnswer):
    """The kernel writes outside its tensors."""


class NotCompared(Cause):
    """There was no answer to compare."""

    because: Cause | None = None


class NotFinite(Cause):
    """The error of a result is not a finite number."""

    value: str
    seed: int
    kind: str


class SanitizerErrors(Cause):
    """A sanitizer's tool reports errors or warnings; ``first`` is its first message."""

    tool: str
    errors: int
    warnings: int
    first: str


class NotSanitized(Cause):
    """A sanitizer's tool has no result for the case."""

    tool: str
    because: Cause


class BatchNotClean(Cause):
    """The tool reports errors in a process that ran several cases."""

    errors: int
    warnings: int


# --- times ----------------------------------------------------------------------------------------------


class VoidTiming(Cause, abstract=True):
    """The timing is invalid: it cannot be the time of the work."""


class OtherProcesses(VoidTiming):
    """Other processes used the GPU."""

    count: int


class ClocksDisagree(VoidTiming):
    """The times by difference and by events around single calls disagree (µs)."""

    difference_us: float
    events_us: float


class LaunchesMissing(VoidTiming):
    """The captured graph of a call contains fewer kernels than the plan."""

    kernels: int
    planned: int


class BelowEmptyKernel(VoidTiming):
    """The time is below that of an empty kernel (µs)."""

    regime: str
    us: float
    empty_us: float


class WrongTimedAnswer(VoidTiming):
    """A timed call returned a wrong answer."""

    complaint: str
    regime: str
    turn: int
    seed: int


class SlowOnNewData(VoidTiming):
    """A call takes longer on new data than on data of an earlier call (µs): it reuses results."""

    new_us: float
    known_us: float


class BelowFloor(VoidTiming):
    """The time is below what a resource allows (µs)."""

    fact: str
    us: float
    resource: str
    floor_us: float


class NotTimed(Cause):
    """The case was not timed in ``regime``; empty: not at all."""

    regime: str = ""


class ReferenceNotTimed(Cause):
    """The baseline ``reference`` was not timed; empty: no reference was."""

    reference: str = ""


class NoInterval(Cause):
    """The ratio of two times has no interval. They were taken ``apart``, not alternately on one GPU: in different runs,
    on different GPUs or in different rounds; or the samples of one are missing."""

    apart: Literal["runs", "gpus", "rounds", "samples"]


class NoFormula(Cause):
    """The problem does not define this amount."""

    name: str


class OneSample(Cause):
    """One sample has no deviation."""


class NotRanked(Cause):
    """Not measured, since the case cannot be among the first of its shape."""


class TooFewCalls(Cause):
    """Too few single calls for a percentile."""

    calls: int


class BelowMedian(Cause):
    """A percentile of single calls is below the median by difference (µs)."""

    calls: int
    us: float


class NoNvml(Cause):
    """NVML gave no such reading."""

    message: str = ""


# --- static facts and counters --------------------------------------------------------------------------


class NoTool(Cause):
    """A tool is missing on this machine."""

    tool: str


class Unreadable(Cause):
    """A tool could not read the machine code."""

    tool: str


class NotInLog(Cause):
    """The compiler's log does not name the kernel, and the cubin lists no spills of it."""


class SpillsDisagree(Cause):
    """The cubin lists more bytes of spill stores or loads than the compiler's log has."""

    logged_stores: int
    logged_loads: int
    listed_stores: int
    listed_loads: int


class CalledSeparately(Cause):
    """A function with spills is compiled separately, and its callers are unknown."""

    function: str


class NotLinked(Cause):
    """The kernel calls functions, and the object is not linked."""


class StackUnknown(Cause):
    """No compiler knows the depth of the stack."""


class UnknownArch(Cause):
    """The limits of the arch are unknown."""

    arch: str


class NoMachineCode(Cause):
    """There is no machine code to read."""


class NoLines(Cause):
    """The machine code has no line information, or none that fits the source file here."""

    file: str = ""


class NoPiece(Cause):
    """The source has no such function, mark or quote, or several, or no instruction comes from its lines."""

    piece: str
    lines: tuple[str, ...] = ()


class NotOnArch(Cause):
    """The arch has no such instruction."""

    name: str
    arch: str


class GridUnknown(Cause):
    """The grid is unknown: the kernel was recorded."""


class KernelNotBuilt(Cause):
    """The launch plan names a kernel that the cubin does not have."""

    kernel: str


class ClusterUnknown(Cause):
    """Only the driver knows how many clusters of this size fit."""

    blocks: int


class DoesNotFit(Cause):
    """The kernel cannot be launched: it needs more resources than an SM has."""

    message: str


class NoCounter(Cause):
    """The chip has no such counter."""

    chip: str


class CounterRefused(Cause):
    """ncu refuses the metric, with this message."""

    metric: str
    message: str


class NotReturned(Cause):
    """ncu or its report does not have the metric. ``many_passes``: it is requested only in runs of few cases."""

    report: bool = False
    many_passes: bool = False


class NoNumber(Cause):
    """A counter's text is not a valid number."""

    text: str
    expected: str = ""


class CounterContradicts(Cause):
    """A counter contradicts other counters, the launch or the code, as ``evidence`` states."""

    evidence: str


class ZeroDenominator(Cause):
    """The denominator of a ratio is 0."""

    name: str


class NoneOf(Cause):
    """The chip has none of the counters that the value is computed from."""

    names: tuple[str, ...]


class PartUnmeasured(Cause):
    """A counter that the value is computed from is unmeasured."""

    name: str
    because: Cause


class LaunchUnmeasured(Cause):
    """The value of one of several launches is unmeasured."""

    launch: int
    because: Cause


class CannotCombine(Cause):
    """The values of several launches cannot be combined: their weight is unmeasured, or 0."""

    launches: int
    weight: str
    zero: bool


class NotAdditive(Cause):
    """The value does not add up over launches."""


class NoSamples(Cause):
    """No warp was sampled; ``stalls``: none stalled."""

    stalls: bool = False


class NotProfiled(Cause):
    """The case has no counters."""

    because: Cause


class NoRows(Cause):
    """The case ran, but ncu returned no launch of it; ``output`` is ncu's last message."""

    output: str


class RowsMissing(Cause):
    """Dropped rows of ncu's report may belong to the case."""

    rows: tuple[str, ...]


class NotRun(Cause):
    """The case was not run."""


class PhasesUnknown(Cause):
    """The samples cannot be attributed to the phases of the code; ``evidence`` says why."""

    evidence: str


class Impossible(Cause):
    """The fact cannot have this value, so it was not recorded."""

    expected: str
    found: str


class OtherCompiler(Cause):
    """The static facts and the values they are compared with come from different compiler releases."""

    message: str


class OtherGpu(Cause):
    """A budget is for other GPUs than the record's."""

    wanted: str
    gpu: str


class NoStage(Cause):
    """The record has no result of this stage for the case."""

    stage: str


class NoCubin(Cause):
    """The imported report has no cubin."""


class Renamed(Cause):
    """No kernel matches a budget's names. ``fact``: no limit on it names this kernel."""

    kernels: tuple[str, ...] = ()
    fact: str = ""


class NotLaunched(Cause):
    """A budget names kernels that its variants launch on no shape."""

    kernels: tuple[str, ...]


class Gone(Cause):
    """The baseline has a kernel or fact that no longer exists."""


# --- records --------------------------------------------------------------------------------------------


class NotRecorded(Cause):
    """The record does not have it. ``what``: the requested stage or arch."""

    what: str = ""


class Stale(Cause, abstract=True):
    """The recorded results belong to other code."""


class NeverMeasured(Stale):
    """No run measured the case."""


class ReferenceChanged(Stale):
    """The reference's code or the problem changed, or another variant is the baseline."""


class FilesChanged(Stale):
    """Files changed that the problem or the variant's Python code read while it was checked."""

    files: tuple[str, ...]


class SettingsChanged(Stale):
    """The problem's operator or ``seeds``, or the shape's ``repeats`` or ``rank_by``, changed."""


class NoHostHash(Stale):
    """The ``recorded`` run, or the present build (``built``), has no hash of the host code."""

    part: str


class CodeChanged(Stale):
    """The machine code (``device`` or ``host``), the launch plan or the problem changed: those that ``changed``, if
    that is known. Each of ``compilers``, which differ: part, recorded release, present release."""

    part: str
    changed: tuple[str, ...] = ()
    compilers: tuple[tuple[str, str, str], ...] = ()


class SourcesChanged(Stale):
    """The compilers and the sources changed. Each of ``compilers``: part, recorded release, present release."""

    compilers: tuple[tuple[str, str, str], ...]


# --- how a value was measured ---------------------------------------------------------------------------


class OverReference(Basis):
    """A ratio over a reference variant's time."""

    reference: str
    regime: str
    rounds: int


class FirstRound(Basis):
    """Samples of a case that was timed no further after a first round."""


class Caches(Basis):
    """ncu did not flush the caches before a kernel (``kept``), or the report does not say."""

    kept: bool | None


class Sampled(Basis):
    """A share of sampled warps; its standard error in percentage points."""

    samples: float
    error: float


class WorstInput(Basis):
    """The input with the largest error."""

    seed: int
    kind: str


class SpillsNotListed(Basis):
    """Spill bytes from the compiler's log. The cubin lists fewer: it omits the registers that a function saves."""

    logged_stores: int
    logged_loads: int
    listed_stores: int
    listed_loads: int


class Decided(Basis):
    """How the compiler translated the code that a budget on its decisions names.

    Args:
        file, line: of the first name that does not hold, else of the piece; empty and 0 without line information.
        missed: the names that do not hold.
        code_has: the instructions that do, or might have done, what the budget is about: ``LDG.E ×4``.
        before: those in the newest recorded run in which all names held.
    """

    file: str = ""
    line: int = 0
    missed: tuple[str, ...] = ()
    code_has: str = ""
    before: str = ""


class SourceLine(Basis):
    """The source line that the value names."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
