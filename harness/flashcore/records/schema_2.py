"""Runs of schema 2, whose notes and reasons were prose: maps them to causes. Only this module reads that prose.

A note that no program decided by, and that has no form here, becomes a :class:`~flashcore.model.causes.Message`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

from flashcore.model import causes as c
from flashcore.model.suite import ImportedKernel, kind_of
from flashcore.readers.compiler_log import compile_failed

VERSION = 2


@cache  # most notes are the same
def cause(reason: str) -> c.Cause:
    """The cause that a reason of schema 2 names."""
    return _matched(reason, _CAUSES) or c.Message(reason)


_EVENTS = r"events around each of (\d+) calls, less the median of empty pairs: "
_CAUSES: tuple[tuple[str, Callable[..., c.Cause]], ...] = (
    (r"(\S+) has no such metric", c.NoCounter),
    (r"baseline (\S+) was not timed", c.ReferenceNotTimed),
    (r"no peer was timed on this shape", c.ReferenceNotTimed),
    (_EVENTS + "too few", lambda calls: c.TooFewCalls(int(calls))),
    (_EVENTS + r"([\d.]+) µs, .*", lambda calls, us: c.BelowMedian(int(calls), float(us))),
    (r"NVML told nothing", c.NoNvml),
    (r"clusters of (\d+) blocks: .*", lambda blocks: c.ClusterUnknown(int(blocks))),
    (r"ncu did not return it(: .*)?", lambda more: c.NotReturned(many_passes=bool(more))),
    (r"the report does not have it", lambda: c.NotReturned(report=True)),
    (r"ncu refused (\S+): (.*)", c.CounterRefused),
    (r"(cannot be: .*)", c.CounterContradicts),
    (r"there is no launch plan: .*", lambda: c.NoPlan(profiled=True)),
    (r"the problem's work\(\) gives no (\w+)", c.NoFormula),
    (r"no (nvdisasm) on this machine", c.NoTool),
    (r"(nvdisasm) could not read it", c.Unreadable),
    (r"no machine code to read", c.NoMachineCode),
    (r"one sample", c.OneSample),
    (r"void: (\d+) other processes .*", lambda count: c.OtherProcesses(int(count))),
    (r"void: two clocks disagree: ([\d.]+) µs by difference, ([\d.]+) µs by .*",
     lambda *us: c.ClocksDisagree(*map(float, us))),
    (r"no answer within ([\d.e+]+) s(?: in step (.*))?: hang\?", lambda s, step: c.Hang(float(s), step or "")),
    (r"skipped: hung on (\S+): (.*)", lambda shape, reason: c.HungBefore(shape, cause(reason))),
    (r"failed before: (.*)", lambda reason: c.FailedBefore(cause(reason))),
    (r"wrong on (\S+): (.*)", lambda shape, reason: c.WrongBefore(shape, cause(reason))),
    (r"did not compile for (\S+)", c.DidNotCompile),
    (r"not built for (\S+)", c.NotBuilt),
    (r"never measured", c.NeverMeasured),
    (r"stale: the peer's file or the problem changed", c.ReferenceChanged),
    (r"stale: (recorded|built) without a hash of .*", c.NoHostHash),
    (r"stale: the (device|host) code, .*", c.CodeChanged),
)  # fmt: skip
_BASES: tuple[tuple[str, Callable[..., c.Basis]], ...] = (
    (r"over (\S+), (\w+): medians of (\d+) rounds, .*", lambda name, regime, n: c.OverReference(name, regime, int(n))),
    (r"cache-control none", lambda: c.Caches(kept=True)),
    (r"cache control unknown", lambda: c.Caches(kept=None)),
    (r"([\d,]+) samples of warps, standard error ([\d.]+) points",
     lambda samples, error: c.Sampled(float(samples.replace(",", "")), float(error))),
    (r"worst on seed (\d+), kind (\w+)", lambda seed, kind: c.WorstInput(int(seed), kind)),
)  # fmt: skip
_SITE = re.compile(r"(.+):(\d+)\b.*")


@cache
def _basis(note: str) -> c.Basis | str:
    return _matched(note, _BASES) or note


def _matched(text: str, forms: tuple[tuple[str, Callable[..., Any]], ...]) -> Any:
    for pattern, make in forms:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            return make(*match.groups())
    return None


def header(run: dict[str, Any], present: int) -> dict[str, Any]:
    """A run's header as one of the present schema; the header's form then says what is wrong with it."""
    with contextlib.suppress(LookupError, TypeError, AttributeError):
        for artifact in run["artifacts"]:
            message, status = artifact.pop("message"), artifact["status"]
            unsupported = c.UnsupportedArch(reason=message) if status == "unsupported" else None
            artifact["cause"] = compile_failed(message) if status == "failed" else unsupported
        for plan in run["plans"]:
            error, crashed = plan.pop("error"), plan.pop("crashed", False)
            plan["cause"] = (c.Message(error) if crashed else c.PlanRefused(error)) if error else None
        for outcome in run["outcomes"]:
            reason = outcome.pop("reason")
            outcome["cause"] = cause(reason) if outcome["status"] != "ok" else None
        for stage in run["stages"]:
            reason = stage.pop("reason")
            stage["detail"] = cause(reason) if stage["status"] != "ok" else reason
        _declare_kinds(run["suite"])
        run["stale"] = {case: c.as_json(_stale(reason)) for case, reason in run["stale"].items()}
    return {**run, "schema_version": present}


def _declare_kinds(suite: dict[str, Any]) -> None:
    """Replaces the keys that a manifest has by the kind of each variant; schema 2 knew one language."""
    suite.pop("spaces", None)  # now a table of a plugin; what is recorded of it is in studies
    if release := suite.pop("triton", ""):
        suite["languages"] = {"triton": release}
    for variant in suite["variants"].values():
        if "kind" not in variant:
            entry = {key: variant.pop(key, None) for key in ("source", "callable", "cubins", "plan", "kernel")}
            kind = ImportedKernel(entry["kernel"]) if entry["kernel"] else kind_of(entry, ("triton",))
            variant["kind"] = asdict(kind)


def _stale(reason: str) -> c.Stale:
    found = cause(reason)
    return found if isinstance(found, c.Stale) else c.SourcesChanged(())


def facts(data: dict[str, Any]) -> dict[str, Any]:
    """The facts of a run as those of the present schema, their details in place."""
    rows = data["facts"]
    for row in rows:
        row[5] = detail(row[1], row[2], row[5])
    return {**data, "details": []}


def detail(name: str, value: Any, note: str) -> c.Detail | str:
    """What a fact's note told: of an unmeasured fact its cause, of a measured one how, or else the note."""
    if value is None:
        return cause(note)
    if name == "local_memory_site" and (site := _SITE.fullmatch(value)):
        return c.SourceLine(site[1], int(site[2]))
    return _basis(note) if note else note
