"""The text of causes, for people. Programs decide by the types of :mod:`flashcore.model.causes`, never by text.

A form is a format string over the cause's fields (nested causes as text), or a function of the cause. Plugins add forms
for their classes to :data:`FORMS`.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterable
from typing import Any

from flashcore.model import causes as c
from flashcore.model.decisions import meanings
from flashcore.model.text import number

_MOST_COMPLAINTS = 3


def text(detail: c.Detail | str | None) -> str:
    """A cause or basis in words; plain text unchanged; empty for ``None``."""
    if detail is None or isinstance(detail, str):
        return detail or ""
    form = next(FORMS[kind] for kind in type(detail).__mro__ if kind in FORMS)
    if not isinstance(form, str):
        return form(detail)
    fields = {f.name: getattr(detail, f.name) for f in dataclasses.fields(detail)}  # type: ignore[arg-type]
    return form.format_map({name: text(v) if isinstance(v, c.Detail | None) else v for name, v in fields.items()})


def ending(exit_code: int) -> str:
    """How a process ended: ``exit code 3``, ``killed by SIGKILL (out of memory?)``."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def count(number: int, word: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def reported(errors: int, warnings: int) -> str:
    """``2 errors, 1 warning``; zeros are omitted."""
    return ", ".join(count(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n)


def _tail(output: str) -> str:
    return f": {output}" if output else ""


def _crash(cause: c.Crash) -> str:
    how = ending(cause.exit_code) if cause.exit_code else "ended with exit code 0 without a result"
    return how + _tail(cause.output)


def _plan_crashed(cause: c.PlanCrashed | c.PlanStopped) -> str:
    code = cause.exit_code
    how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
    why = ": it reads a tensor, perhaps, which has no memory without a GPU" if code == -11 else ""
    return f"the launch plan {how}{why}{_tail(cause.output)}"


def _wrong(cause: c.WrongAnswer) -> str:
    more = len(cause.complaints) - _MOST_COMPLAINTS
    return "; ".join(cause.complaints[:_MOST_COMPLAINTS]) + (f"; and {more} more" if more > 0 else "")


def _arch(cause: c.UnsupportedArch) -> str:
    return cause.reason or f"declared for {', '.join(cause.archs)}"


def _sources(cause: c.SourcesChanged) -> str:
    return f"stale: {compilers(cause.compilers)}, and the sources, the flags, the plan or the problem changed"


def _code(cause: c.CodeChanged) -> str:
    what = " and the ".join(cause.changed) or f"{cause.part} code, the plan or the problem"
    differ = f"; compilers differ: {compilers(cause.compilers)}" if cause.compilers else ""
    return f"stale: the {what} changed{differ}"


def compilers(changes: Iterable[tuple[str, str, str]]) -> str:
    """Each changed compiler. Object files name g++ as ``GCC: (Debian 12.2.0-14) 12.2.0``."""
    return ", ".join(
        f"{part} code compiled by {then.replace('GCC: ', 'g++ ', 1)}, now {now.replace('GCC: ', 'g++ ', 1)}"
        for part, then, now in changes
    )


def _builds(cause: c.BuildsFailed) -> str:
    parts = [f"{cause.failed} of {cause.builds} did not compile"] if cause.failed else []
    return ", ".join(parts + ([f"{cause.plans} launch plans failed"] if cause.plans else []))


def _launches(cause: c.LaunchesMissing) -> str:
    planned = f"the plan's {cause.planned}" if cause.planned else "at least one"
    return (
        f"void: the captured graph of a call contains {cause.kernels} kernels, expected {planned}: does the launcher "
        "use the stream passed to it?"
    )


def _not_returned(cause: c.NotReturned) -> str:
    source = "the report does not have it" if cause.report else "ncu did not return it"
    return source + (f": {MANY_PASSES}" if cause.many_passes else "")


def _combine(cause: c.CannotCombine) -> str:
    return f"cannot be combined over {cause.launches} launches: {cause.weight} is {'0' if cause.zero else 'unmeasured'}"


#: Why an expensive metric is left out.
MANY_PASSES = "it needs many passes or long ones; a run of many cases requests it only on a variant's first shape"
#: How two times were taken that have no interval of their ratio.
_APART = {
    "runs": "the times were taken in different runs",
    "gpus": "the times were taken on different GPUs",
    "rounds": "the times were not taken in the same rounds",
    "samples": "the samples of one of the times were not recorded",
}
_EVENTS = "events around each of {calls} calls, less the median of empty pairs"

Form = str | Callable[[Any], str]

_SPILLS = (
    "the ptxas log reports {logged_stores} B of spill stores and {logged_loads} B of spill loads, "
    "the cubin lists {listed_stores} B and {listed_loads} B"
)


def _decided(basis: c.Decided) -> str:
    if not basis.missed:
        return basis.code_has
    place = f"{basis.file}:{basis.line}: " if basis.file else ""
    before = f", {basis.before} in the recorded run" if basis.before else ""
    hints = {meaning.hint: None for missed in basis.missed if (meaning := meanings().get(missed.split()[-1]))}
    instead = f"{place}{basis.code_has or 'nothing'} instead of {', '.join(basis.missed)}{before}"
    return "; ".join((instead, *hints))


FORMS: dict[type[c.Detail], Form] = {
    c.Unknown: lambda x: f"recorded by a plugin that is not loaded: {x.recorded}",
    c.Message: "{message}",
    c.Several: lambda x: "; ".join(map(text, x.causes)),
    c.Hang: lambda x: f"no answer within {x.seconds:g} s{x.step and f' in step {x.step}'}: hang?",
    c.NoStart: lambda x: f"no task started within {x.seconds:g} s{_tail(x.output)}",
    c.Crash: _crash,
    c.NeverBegan: "the process never started a task: {because}",
    c.WorkerLost: "its worker was lost {times} times: {message}",
    c.Raised: lambda x: ": ".join(filter(None, (x.kind, x.message))),
    c.InStep: "{because} (in: {step})",
    c.HungBefore: "skipped: hung on {shape}: {because}",
    c.Unanswered: "its process returned no result",
    c.Interrupted: "interrupted",
    c.NotBuilt: lambda x: f"not built for {x.arch}" if x.arch else "not built",
    c.CompileFailed: "{message}",
    c.CompilerStopped: "the compiler neither accepted nor rejected the source:\n{message}\n  hint: free disk space "
    "and memory, or set MAX_JOBS lower",
    c.LibraryMissing: "{message}\n  hint: {hint}",
    c.DidNotCompile: lambda x: f"did not compile for {x.arch}" if x.arch else "it does not build",
    c.UnsupportedArch: _arch,
    c.PlanRefused: "{message}",
    c.PlanCrashed: _plan_crashed,
    c.PlanStopped: lambda x: f"{_plan_crashed(x)}\n  hint: free memory",
    c.PlanHung: "the launch plan did not return within {seconds:.0f} s",
    c.PlanUnknown: "the launcher calls {call}, which cannot be answered without a GPU: declare its plan",
    c.LaunchRefused: "the launch of {kernel} fails: {because}",
    c.NotOptedIn: "expected cudaFuncAttribute{attribute} of at least {needed:,}, found {value:,}: set it with "
    "cudaFuncSetAttribute",
    c.LibraryLaunches: "it launches no kernel of its own; those of {call} are known only on a GPU",
    c.LaunchesNothing: "expected at least one kernel launch, found none: launch on every path, or return an error",
    c.OtherStream: "expected all work on the given stream, found {work} on another: pass it the stream, or have its "
    "stream wait for an event of the given one",
    c.StreamNotJoined: "expected the given stream to wait for all work, found {work} on another: record an event after "
    "it, and have the given stream wait for that",
    c.NotCapturable: "expected calls that a CUDA graph can contain, found {call} in each: allocate once, or declare a "
    "workspace; do not synchronize",
    c.NoPlan: lambda x: (
        "no launch plan: it is a reference, or its plan could not be read" if x.profiled else "no launch plan"
    ),
    c.PlanFailed: lambda x: (
        f"{f'no launch plan on {x.shape}' if x.shape else 'the launch plan failed'}: {text(x.because)}"
    ),
    c.NoGpu: "{message}",
    c.Incapable: lambda x: x.message + (f"\n  hint: {x.hint}" if x.hint else ""),
    c.FailedBefore: "failed before: {because}",
    c.WrongBefore: "wrong on {shape}: {because}",
    c.CasesFailed: "{failed} of {cases} cases failed",
    c.BuildsFailed: _builds,
    c.WrongAnswer: _wrong,
    c.WrongElements: "{wrong} of {total} elements of {output} are wrong ({pattern}): first {actual}, not {expected}",
    c.NotCompared: lambda x: f"not compared: {text(x.because) or 'no answer to compare'}",
    c.NotFinite: "the error is {value} on seed {seed}, kind {kind}",
    c.SanitizerErrors: lambda x: f"{x.tool}: {reported(x.errors, x.warnings)}{_tail(x.first)}",
    c.NotSanitized: "{tool}: unmeasured: {because}",
    c.BatchNotClean: lambda x: f"its batch is not clean: {reported(x.errors, x.warnings)}",
    c.OtherProcesses: "void: {count} other processes used the GPU while this shape was timed",
    c.ClocksDisagree: "void: two clocks disagree: {difference_us:.3f} µs by difference, {events_us:.3f} µs by events "
    "around calls",
    c.LaunchesMissing: _launches,
    c.BelowEmptyKernel: "void: {regime} {us:.3f} µs is less than an empty kernel takes, {empty_us:.3f} µs",
    c.WrongTimedAnswer: "void: a timed call returned a wrong answer: {complaint}, {regime}, turn {turn}, seed {seed}",
    c.SlowOnNewData: "void: a call takes {new_us:.3f} µs on new data with poisoned outputs, but "
    "{known_us:.3f} µs on data of an earlier call: it reuses results",
    c.BelowFloor: lambda x: (
        f"void: {x.fact} {number(x.us, 'us')} is below its {x.resource} floor of {number(x.floor_us, 'us')}"
    ),
    c.NotTimed: lambda x: f"not timed {x.regime}".strip(),
    c.ReferenceNotTimed: lambda x: (
        f"baseline {x.reference} was not timed" if x.reference else "no reference was timed on this shape"
    ),
    c.NoInterval: lambda x: f"no interval: {_APART[x.apart]}",
    c.NoFormula: "the problem's work() returns no {name}",
    c.OneSample: "one sample",
    c.NotRanked: "not measured: the case cannot be among the first of its shape, and no budget or prediction needs it",
    c.TooFewCalls: f"{_EVENTS}: too few",
    c.BelowMedian: f"{_EVENTS}: {{us:.3f}} µs is below the p50 by difference",
    c.NoNvml: lambda x: x.message or "NVML returned nothing",
    c.NoTool: "no {tool} on this machine",
    c.Unreadable: "{tool} could not read it",
    c.NotInLog: "the ptxas log does not name this kernel, and its cubin lists no spills",
    c.SpillsDisagree: _SPILLS,
    c.SpillsNotListed: _SPILLS,
    c.NoLines: lambda x: (
        f"the line table does not fit {x.file}: another file was compiled, or code is placed at lines that have none"
        if x.file
        else "no line information: compile with -lineinfo"
    ),
    c.NoPiece: lambda x: (
        f"expected one {x.piece} with machine code, found {', '.join(x.lines) or 'none'}"
        f"{', compiled away here or inlined elsewhere' * (len(x.lines) == 1)}"
    ),
    c.NotOnArch: "{arch} has no {name}",
    c.CalledSeparately: "{function} is compiled separately, and its callers are unknown",
    c.NotLinked: "the kernel calls functions, and the object is not linked: audit the linked library or program",
    c.StackUnknown: "the stack depends on values at run time: recursion, a call by pointer, or alloca",
    c.UnknownArch: "the limits of {arch} are unknown",
    c.NoMachineCode: "no machine code to read",
    c.GridUnknown: "the grid is unknown: the kernel was recorded",
    c.KernelNotBuilt: "the launch plan names {kernel}, which the cubin does not contain",
    c.ClusterUnknown: "clusters of {blocks} blocks: only the driver knows how many fit",
    c.DoesNotFit: "{message}",
    c.NoCounter: "{chip} has no such metric",
    c.CounterRefused: "ncu refused {metric}: {message}",
    c.NotReturned: _not_returned,
    c.NoNumber: lambda x: f"ncu gave {x.text}" + (f", {x.expected}" if x.expected else ""),
    c.CounterContradicts: "{evidence}",
    c.ZeroDenominator: "nothing to divide by: {name} is 0",
    c.NoneOf: lambda x: f"this chip has none of {', '.join(x.names)}",
    c.PartUnmeasured: "{name}: {because}",
    c.LaunchUnmeasured: "launch {launch}: {because}",
    c.CannotCombine: _combine,
    c.NotAdditive: "does not add up over launches",
    c.NoSamples: lambda x: (
        "no sampled warp was stalled: all stall reasons are 0"
        if x.stalls
        else "no warp was sampled: the kernel is too short"
    ),
    c.NotProfiled: "not profiled: {because}",
    c.NoRows: "it ran, but ncu returned no kernel launch for its range: ncu ended before writing its report, or the "
    "case launches no kernel ({output})",
    c.RowsMissing: lambda x: f"its rows may be incomplete: {'; '.join(x.rows)}",
    c.NotRun: "it was not run",
    c.PhasesUnknown: "{evidence}",
    c.Impossible: "expected {expected}, found {found}",
    c.OtherCompiler: "{message}",
    c.OtherGpu: "only for {wanted}; this record is from {gpu}",
    c.NoStage: lambda x: "not checked" if x.stage == "check" else f"no {x.stage} result of this case",
    c.NoCubin: "the report contains no cubin",
    c.Renamed: lambda x: (
        f'no limit on {x.fact} names this kernel: renamed? (name each, or add kernels = ["*"])'
        if x.fact
        else f"no kernel matches {', '.join(x.kernels)}: renamed?"
    ),
    c.NotLaunched: lambda x: f"not launched on any shape: {', '.join(x.kernels)}",
    c.Gone: "this kernel or fact no longer exists (intended? flashcore baseline save, or audit --save-baseline)",
    c.NotRecorded: lambda x: f"not recorded{x.what and f' for {x.what}'}",
    c.NeverMeasured: "never measured",
    c.FilesChanged: lambda x: (
        f"stale: files read by the recorded check changed, or cannot be told: {', '.join(x.files)}"
    ),
    c.SettingsChanged: "stale: the problem's operator or seeds, or the shape's repeats or rank_by, changed",
    c.ReferenceChanged: "stale: the reference or the problem changed",
    c.NoHostHash: "stale: {part} without a hash of the host code: record it again",
    c.CodeChanged: _code,
    c.SourcesChanged: _sources,
    c.FirstRound: "timed no further after a first round: the case cannot be among the first of its shape (99 %)",
    c.OverReference: "over {reference}, {regime}: medians of {rounds} rounds, bootstrap over rounds",
    c.Caches: lambda x: "cache-control none" if x.kept else "cache control unknown",
    c.Sampled: "{samples:,.0f} warp samples, standard error {error:.1f} points",
    c.WorstInput: "worst on seed {seed}, kind {kind}",
    c.Decided: _decided,
    c.SourceLine: "",  # the value is the text
}
