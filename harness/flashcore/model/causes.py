"""The causes of this package: classes that programs ask for, and templates of all others.

:mod:`flashcore.model.cause` describes the forms of their texts.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any

from flashcore.model.cause import Basis, Cause, Detail, Reason, Template
from flashcore.model.compiler_decisions import meanings
from flashcore.model.text import count

_MOST_COMPLAINTS = 3


def ending(exit_code: int) -> str:
    """How a process ended: ``exit code 3``, ``killed by SIGKILL (out of memory?)``."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _after(data: Mapping[str, Any], name: str) -> str:
    return f": {data[name]}" if data.get(name) else ""


#: A message of a tool, a library, the user's code or an older record.
MESSAGE = Template("message", "{message}")


class Several(Cause):
    """More than one cause."""

    causes: tuple[Cause, ...]

    @property
    def text(self) -> str:
        return "; ".join(cause.text for cause in self.causes)


# --- processes ------------------------------------------------------------------------------------------


class Hang(Cause):
    """A task did not finish within its time limit."""

    form = "no answer within {seconds:g} s[ in step {step}]: hang?"
    seconds: float
    step: str = ""


class NeverBegan(Cause):
    """The processes for a task ended before any task started."""

    form = "the process never started a task: {because}"
    because: Cause


class HungBefore(Cause):
    """The variant hung on another shape, so this case is not run."""

    form = "skipped: hung on {shape}: {because}"
    shape: str
    because: Cause


def hangs(cause: Cause | None) -> bool:
    """Whether the cause, or one nested in it, is a task's time limit."""
    nested = [cause.data[name] for name in cause.data] if cause else []
    causes = [c for value in nested for c in (value if isinstance(value, tuple) else (value,)) if isinstance(c, Cause)]
    return isinstance(cause, Hang) or any(map(hangs, causes))


def _crash(data: Mapping[str, Any]) -> str:
    code = data.get("exit_code", 0)
    return (ending(code) if code else "ended with exit code 0 without a result") + _after(data, "output")


NO_START = Template("no_start", "no task started within {seconds:g} s[: {output}]")
#: A process ended without a result. ``exit_code`` is negative for a signal.
CRASH = Template("crash", _crash, ("exit_code", "output"))
WORKER_LOST = Template("worker_lost", "its worker was lost {times} times: {message}")
#: ``kind`` is the exception's type; empty for an error of this package.
RAISED = Template("raised", "[{kind}: ]{message}")
IN_STEP = Template("in_step", "{because} (in: {step})", ("step", "because"))
#: A process ended normally without a result for this task.
UNANSWERED = Template("unanswered", "its process returned no result")
NOT_RUN = Template("not_run", "it was not run")


# --- builds and launch plans ----------------------------------------------------------------------------


class CompileFailed(Cause):
    """The build failed. ``file`` and ``line`` locate its first error, if the tool does."""

    form = "{message}"
    message: str
    file: str = ""
    line: int = 0


class MachineStopped(Cause, abstract=True):
    """The machine caused it, not the code. It is retried once; then the command exits with 4."""


class CompilerStopped(MachineStopped):
    """The source was neither compiled nor rejected: out of space, memory or files, or the compiler was killed."""

    form = (
        "the compiler neither accepted nor rejected the source:\n{message}\n"
        "  hint: free disk space and memory, or set MAX_JOBS lower"
    )
    message: str


class LibraryMissing(MachineStopped):
    """This machine lacks a library or a package that the variant names."""

    form = "{message}\n  hint: {hint}"
    message: str
    hint: str


class DidNotCompile(Cause):
    """The build failed, so everything that needs it is skipped."""

    form = "did not compile[ for {arch}]"
    arch: str = ""


class PlanRefused(Cause):
    """The variant's launch plan refuses the shape, with its own message."""

    form = "{message}"
    message: str


class PlanStopped(MachineStopped):
    """The launch plan's process was killed, for example because memory ran out."""

    exit_code: int
    output: str = ""

    @property
    def text(self) -> str:
        return f"{_plan_ended(self.data)}\n  hint: free memory"


class PlanHung(Cause):
    """The launch plan did not return within its time limit."""

    form = "the launch plan did not return within {seconds:.0f} s"
    seconds: float


class PlanUnknown(Cause):
    """The launcher calls something that only a GPU can answer, so its launches are unknown without one."""

    form = "the launcher calls {call}, which cannot be answered without a GPU: declare its plan"
    call: str


class LibraryLaunches(PlanUnknown):
    """All kernels are launched by the libraries that the variant is linked with; ``call`` names them."""

    form = "it launches no kernel of its own; those of {call} are known only on a GPU"


class NotOptedIn(Cause):
    """A launch needs a larger value of this attribute, which ``cudaFuncSetAttribute`` sets."""

    form = (
        "expected cudaFuncAttribute{attribute} of at least {needed:,}, found {value:,}: set it with "
        "cudaFuncSetAttribute"
    )
    attribute: str
    needed: int
    value: int


def _plan_ended(data: Mapping[str, Any]) -> str:
    code = data.get("exit_code", 0)
    how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
    why = ": it reads a tensor, perhaps, which has no memory without a GPU" if code == -signal.SIGSEGV else ""
    return f"the launch plan {how}{why}{_after(data, 'output')}"


NOT_BUILT = Template("not_built", "not built[ for {arch}]")
NOT_INSTALLED = Template("not_installed", "expected the Python package {package}, found none: install it")
#: ``reason`` is the manifest's.
UNSUPPORTED_ARCH = Template(
    "unsupported_arch",
    lambda data: data.get("reason") or f"declared for {', '.join(data.get('archs', ()))}",
    ("archs", "reason"),
)
PLAN_CRASHED = Template("plan_crashed", _plan_ended, ("exit_code", "output"))
#: The launcher launches a kernel as no GPU of the arch accepts it.
LAUNCH_REFUSED = Template("launch_refused", "the launch of {kernel} fails: {because}")
LAUNCHES_NOTHING = Template(
    "launches_nothing", "expected at least one kernel launch, found none: launch on every path, or return an error"
)
OTHER_STREAM = Template(
    "other_stream",
    "expected all work on the given stream, found {work} on another: pass it the stream, or have its stream wait for "
    "an event of the given one",
)
STREAM_NOT_JOINED = Template(
    "stream_not_joined",
    "expected the given stream to wait for all work, found {work} on another: record an event after it, and have the "
    "given stream wait for that",
)
NOT_CAPTURABLE = Template(
    "not_capturable",
    "expected calls that a CUDA graph can contain, found {call} in each: allocate once, or declare a workspace; do not "
    "synchronize; ask for a limit before a launch instead of trying it",
)
#: ``profiled``: the case is a reference, or its plan could not be read.
NO_PLAN = Template("no_plan", "no launch plan[{profiled:?}: it is a reference, or its plan could not be read]")
#: The value needs the launch plan, which failed.
PLAN_FAILED = Template("plan_failed", "no launch plan[ on {shape}]: {because}", ("because", "shape"))


# --- stages ---------------------------------------------------------------------------------------------

NO_GPU = Template("no_gpu", "{message}")
INCAPABLE = Template("incapable", "{message}[\n  hint: {hint}]")
#: An earlier stage failed on this case, or skipped it.
FAILED_BEFORE = Template("failed_before", "failed before: {because}")
#: The variant is wrong, or hangs, on another shape.
WRONG_BEFORE = Template("wrong_before", "wrong on {shape}: {because}")
CASES_FAILED = Template("cases_failed", "{failed} of {cases} cases failed")
BUILDS_FAILED = Template("builds_failed", "{failed} of {builds} did not compile[, {plans} launch plans failed]")
PLANS_FAILED = Template("plans_failed", "{plans} launch plans failed")


# --- check and sanitize ---------------------------------------------------------------------------------


class WrongElements(Basis):
    """The wrong elements of an output for the first input that has any.

    Args:
        wrong, total: numbers of elements.
        first: the index of the first wrong element; ``expected`` and ``actual`` are its values.
        pattern: see :func:`flashcore.runner.wrong_elements.pattern`.
    """

    form = "{wrong} of {total} elements of {output} are wrong ({pattern}): first {actual}, not {expected}"
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

    @property
    def text(self) -> str:
        more = len(self.complaints) - _MOST_COMPLAINTS
        return "; ".join(self.complaints[:_MOST_COMPLAINTS]) + (f"; and {more} more" if more > 0 else "")


class OutOfBounds(WrongAnswer):
    """The kernel writes outside its tensors."""


class NotSanitized(Cause):
    """A sanitizer's tool has no result for the case."""

    form = "{tool}: unmeasured: {because}"
    tool: str
    because: Cause


def reported(errors: int, warnings: int) -> str:
    """``2 errors, 1 warning``; zeros are omitted."""
    return ", ".join(count(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n)


def _of_tool(data: Mapping[str, Any]) -> str:
    return f"{data['tool']}: {reported(data.get('errors', 0), data.get('warnings', 0))}{_after(data, 'first')}"


def _of_batch(data: Mapping[str, Any]) -> str:
    return f"its batch is not clean: {reported(data.get('errors', 0), data.get('warnings', 0))}"


NOT_COMPARED = Template("not_compared", "not compared[: {because}]")
NOT_FINITE = Template("not_finite", "the error is {value} on seed {seed}, kind {kind}")
#: ``first`` is the tool's first message.
SANITIZER_ERRORS = Template("sanitizer_errors", _of_tool, ("tool", "errors", "warnings", "first"))
BATCH_NOT_CLEAN = Template("batch_not_clean", _of_batch, ("errors", "warnings"))


# --- times ----------------------------------------------------------------------------------------------


class VoidTiming(Reason, abstract=True):
    """The timing is invalid: it cannot be the time of the work."""


OTHER_PROCESSES = Template(
    "other_processes", "void: {count} other processes used the GPU while this shape was timed", of=VoidTiming
)
CLOCKS_DISAGREE = Template(
    "clocks_disagree",
    "void: two clocks disagree: {difference_us:.3f} µs by difference, {events_us:.3f} µs by events around calls",
    of=VoidTiming,
)
LAUNCHES_MISSING = Template(
    "launches_missing",
    "void: expected {planned} or more kernels in the captured graph of a call, found {kernels}: does the launcher use "
    "the stream passed to it?",
    of=VoidTiming,
)
BELOW_EMPTY_KERNEL = Template(
    "below_empty_kernel",
    "void: {mode} {us:.3f} µs is less than an empty kernel takes, {empty_us:.3f} µs",
    of=VoidTiming,
)
WRONG_TIMED_ANSWER = Template(
    "wrong_timed_answer",
    "void: a timed call returned a wrong answer: {complaint}, {mode}, seed {seed}",
    of=VoidTiming,
)
BELOW_FLOOR = Template(
    "below_floor",
    "void: {fact} {us:.6g} µs is below its {resource} floor of {floor_us:.6g} µs",
    of=VoidTiming,
)

NOT_TIMED = Template("not_timed", "not timed[ {mode}]")
REFERENCE_NOT_TIMED = Template("reference_not_timed", "baseline {reference} was not timed")
NO_REFERENCE_TIMED = Template("no_reference_timed", "no reference was timed on this shape")
#: The ratio of two times that were not taken alternately on one GPU.
OTHER_RUNS = Template("other_runs", "no interval: the times were taken in different runs")
OTHER_GPUS = Template("other_gpus", "no interval: the times were taken on different GPUs")
OTHER_ROUNDS = Template("other_rounds", "no interval: the times were not taken in the same rounds")
PROFILED = Template("profiled", "no interval: durations by a profiler have no samples")
SAMPLES_MISSING = Template("samples_missing", "no interval: the samples of one of the times were not recorded")
NO_FORMULA = Template("no_formula", "the problem's work() returns no {name}")
ONE_SAMPLE = Template("one_sample", "one sample")
NOT_RANKED = Template(
    "not_ranked",
    "not measured: the case cannot be among the first of its shape, and no budget or prediction needs it",
)
TOO_FEW_CALLS = Template(
    "too_few_calls", "events around each of {calls} calls, less the median of empty pairs: too few"
)
BELOW_MEDIAN = Template(
    "below_median",
    "events around each of {calls} calls, less the median of empty pairs: {us:.3f} µs is below the p50 by difference",
)
NO_NVML = Template("no_nvml", "NVML returned nothing[: {message}]")


# --- static facts ---------------------------------------------------------------------------------------


class NotLinked(Cause):
    """The kernel calls functions, and the object is not linked."""

    form = "the kernel calls functions, and the object is not linked: audit the linked library or program"


class DoesNotFit(Cause):
    """The kernel cannot be launched: it needs more resources than an SM has."""

    form = "{message}"
    message: str


_SPILLS = (
    "the ptxas log reports {logged_stores} B of spill stores and {logged_loads} B of spill loads, "
    "the cubin lists {listed_stores} B and {listed_loads} B"
)

NO_TOOL = Template("no_tool", "no {tool} on this machine")
UNREADABLE = Template("unreadable", "{tool} could not read it")
NOT_IN_LOG = Template("not_in_log", "the ptxas log does not name this kernel, and its cubin lists no spills")
SPILLS_DISAGREE = Template("spills_disagree", _SPILLS)
#: A function with spills is compiled separately, so it counts for unknown kernels.
CALLED_SEPARATELY = Template("called_separately", "{function} is compiled separately, and its callers are unknown")
STACK_UNKNOWN = Template(
    "stack_unknown", "the stack depends on values at run time: recursion, a call by pointer, or alloca"
)
UNKNOWN_ARCH = Template("unknown_arch", "the limits of {arch} are unknown")
NO_MACHINE_CODE = Template("no_machine_code", "no machine code to read")
NO_LINES = Template("no_lines", "no line information: compile with -lineinfo")
OTHER_LINES = Template(
    "other_lines",
    "the line table does not fit {file}: another file was compiled, or code is placed at lines that have none",
)
NO_PIECE = Template("no_piece", "expected one {piece} with machine code, found none")
NO_CODE_OF_PIECE = Template(
    "no_code_of_piece", "{piece} at {line} has no machine code: compiled away, or inlined elsewhere"
)
SEVERAL_PIECES = Template("several_pieces", "expected one {piece} with machine code, found {lines}")
NOT_ON_ARCH = Template("not_on_arch", "{arch} has no {name}", ("name", "arch"))
GRID_UNKNOWN = Template("grid_unknown", "the grid is unknown: the kernel was recorded")
KERNEL_NOT_BUILT = Template("kernel_not_built", "the launch plan names {kernel}, which the cubin does not contain")
CLUSTER_UNKNOWN = Template("cluster_unknown", "clusters of {blocks} blocks: only the driver knows how many fit")


# --- counters -------------------------------------------------------------------------------------------


class NotReturned(Cause):
    """ncu or its report does not have the metric. ``many_passes``: it is requested only in runs of few cases."""

    report: bool = False
    many_passes: bool = False

    @property
    def text(self) -> str:
        source = "the report does not have it" if self.report else "ncu did not return it"
        return source + (f": {MANY_PASSES}" if self.many_passes else "")


#: Why an expensive metric is left out.
MANY_PASSES = "it needs many passes or long ones; a run of many cases requests it only on a variant's first shape"

NO_COUNTER = Template("no_counter", "{chip} has no such metric")
COUNTER_REFUSED = Template("counter_refused", "{metric} is not counted: {message}")
#: ``value``: the counter's text.
NO_NUMBER = Template("no_number", "ncu gave {text}[, {expected}]")
#: A counter contradicts other counters, the launch or the code.
COUNTER_CONTRADICTS = Template("counter_contradicts", "{evidence}")
ZERO_DENOMINATOR = Template("zero_denominator", "nothing to divide by: {name} is 0")
NONE_OF = Template("none_of", "this chip has none of {names}")
PART_UNMEASURED = Template("part_unmeasured", "{name}: {because}")
LAUNCH_UNMEASURED = Template("launch_unmeasured", "launch {launch}: {because}")
#: ``state`` of the weight: unmeasured, or 0.
CANNOT_COMBINE = Template("cannot_combine", "cannot be combined over {launches} launches: {weight} is {state}")
NOT_ADDITIVE = Template("not_additive", "does not add up over launches")
NO_SAMPLES = Template("no_samples", "no warp was sampled: the kernel is too short")
NO_STALLS = Template("no_stalls", "no sampled warp was stalled: all stall reasons are 0")
NOT_PROFILED = Template("not_profiled", "not profiled: {because}")
#: ``output`` is ncu's last message.
NO_ROWS = Template(
    "no_rows",
    "it ran, but ncu returned no kernel launch for its range: ncu ended before writing its report, or the case "
    "launches no kernel ({output})",
)
ROWS_MISSING = Template("rows_missing", "its rows may be incomplete: {rows}")
#: Why samples cannot be attributed to the phases of the code.
PHASES_UNKNOWN = Template("phases_unknown", "{evidence}")
IMPOSSIBLE = Template("impossible", "expected {expected}, found {found}")


# --- budgets --------------------------------------------------------------------------------------------


class NotLaunched(Cause):
    """A budget names kernels that its variants launch on no shape."""

    form = "not launched on any shape: {kernels}"
    kernels: tuple[str, ...]


#: The static facts and the values they are compared with come from different compiler releases.
OTHER_COMPILER = Template("other_compiler", "{message}")
OTHER_GPU = Template("other_gpu", "only for {wanted}; this record is from {gpu}")
NO_STAGE = Template("no_stage", "no {stage} result of this case")
NOT_FOR_STAGE = Template("not_for_stage", "shape {shape} is not for {stage}")
STAGE_ENDED = Template("stage_ended", "{stage} {status}[: {because}]")
IMPORTED = Template("imported", "its kernels were imported; the time is ncu's duration of the median launch")
NO_CUBIN = Template("no_cubin", "the report contains no cubin")
#: No kernel matches a budget's names.
RENAMED = Template("renamed", 'no kernel matches {kernels}: renamed, or in a namespace ("*::NAME*")?')
NOT_LIMITED = Template(
    "not_limited", 'no limit on {fact} names this kernel: renamed? (name each, or add "*" to its `kernels`)'
)
GONE = Template(
    "gone",
    "this kernel or fact no longer exists (intended? flashcore baseline save, or audit --save-baseline)",
)
NOT_RECORDED = Template("not_recorded", "not recorded")


# --- stale results --------------------------------------------------------------------------------------

_Compilers = Iterable[tuple[str, str, str]]


def compilers(changes: _Compilers) -> str:
    """Each changed compiler. Object files name g++ as ``GCC: (Debian 12.2.0-14) 12.2.0``."""
    return ", ".join(
        f"{part} code compiled by {then.replace('GCC: ', 'g++ ', 1)}, now {now.replace('GCC: ', 'g++ ', 1)}"
        for part, then, now in changes
    )


class CodeChanged(Cause):
    """The machine code (``device`` or ``host``), the launch plan or the problem changed: those that ``changed``, if
    that is known. Each of ``compilers``, which differ: part, recorded release, present release."""

    part: str
    changed: tuple[str, ...] = ()
    compilers: tuple[tuple[str, str, str], ...] = ()

    @property
    def text(self) -> str:
        what = " and the ".join(self.changed) or f"{self.part} code, the plan or the problem"
        differ = f"; compilers differ: {compilers(self.compilers)}" if self.compilers else ""
        return f"stale: the {what} changed{differ}"


NEVER_MEASURED = Template("never_measured", "never measured")
#: The reference's code or the problem changed, or another variant is the baseline.
REFERENCE_CHANGED = Template("reference_changed", "stale: the reference or the problem changed")
#: Files that the problem or the variant's Python code read while it was checked.
FILES_CHANGED = Template("files_changed", "stale: files read by the recorded check changed, or cannot be told: {files}")
SETTINGS_CHANGED = Template(
    "settings_changed", "stale: the problem's operator or seeds, or the shape's repeats or rank_by, changed"
)
#: ``part``: the recorded run, or the present build.
NO_HOST_HASH = Template("no_host_hash", "stale: {part} without a hash of the host code: record it again")
#: Each of ``compilers``: part, recorded release, present release.
SOURCES_CHANGED = Template(
    "sources_changed",
    lambda data: (
        f"stale: {compilers(data.get('compilers', ()))}, and the sources, the flags, the plan or the problem changed"
    ),
    ("compilers",),
)


# --- how a value was measured ---------------------------------------------------------------------------


class OverReference(Basis):
    """A ratio over a reference variant's time."""

    form = "over {reference}, {mode}: medians of {rounds} rounds, bootstrap over rounds"
    reference: str
    mode: str
    rounds: int


class FirstRound(Basis):
    """Samples of a case that was timed no further after a first round."""

    form = "timed no further after a first round: the case cannot be among the first of its shape (99 %)"


class Caches(Basis):
    """ncu did not flush the caches before a kernel (``kept``), or the report does not say."""

    kept: bool | None

    @property
    def text(self) -> str:
        return "cache-control none" if self.kept else "cache control unknown"


class Sampled(Basis):
    """A share of sampled warps; its standard error in percentage points."""

    form = "{samples:,.0f} warp samples, standard error {error:.1f} points"
    samples: float
    error: float


class WorstInput(Basis):
    """The input with the largest error."""

    form = "worst on seed {seed}, kind {kind}"
    seed: int
    kind: str


class SpillsNotListed(Basis):
    """Spill bytes from the compiler's log. The cubin lists fewer: it omits the registers that a function saves."""

    form = _SPILLS
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

    @property
    def text(self) -> str:
        if not self.missed:
            return self.code_has
        place = f"{self.file}:{self.line}: " if self.file else ""
        before = f", {self.before} in the recorded run" if self.before else ""
        hints = {meaning.hint: None for missed in self.missed if (meaning := meanings().get(missed.split()[-1]))}
        instead = f"{place}{self.code_has or 'nothing'} instead of {', '.join(self.missed)}{before}"
        return "; ".join((instead, *hints))


class SourceLine(Basis):
    """The source line that the value names, which is the text."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
