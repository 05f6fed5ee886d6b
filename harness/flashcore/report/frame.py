"""The frame of every page: the gate's outcome as a badge, and a line with the run's origin."""

from __future__ import annotations

from flashcore.gate.judge import Judgement
from flashcore.gate.wording import summary
from flashcore.model.record import Record
from flashcore.model.text import UNMEASURED
from flashcore.report.cells import Cell


def gate(judgement: Judgement, href: str) -> Cell:
    """The gate's outcome as a badge that links to ``href``."""
    counts = judgement.counts()
    title = summary(judgement)
    if counts["fail"]:
        return Cell(f"{counts['fail']:,} failed", title=title, mark="fail", href=href)
    if not judgement.limits:
        return Cell("nothing checked", title=title, mark=UNMEASURED, href=href)
    if judgement.gaps:
        return Cell(f"{len(judgement.gaps):,} {UNMEASURED}", title=title, mark=UNMEASURED, href=href)
    unmeasured = f", {counts['unmeasured']:,} {UNMEASURED}" if counts["unmeasured"] else ""
    return Cell(f"gate passed{unmeasured}", title=title, mark="pass", href=href)


def line(record: Record) -> str:
    """The run, its date, commit and GPU, and the joined runs, for the top of each page."""
    gpu = f"measured on {record.environment.gpu}" if record.environment.gpu else "recorded without a GPU"
    joined = "".join(f"; {o.what} joined from run {o.run}, {o.machine} ({o.arch})" for o in record.joined)
    return f"Run {record.id}, {record.created[:10]}, {_commit(record)}; {gpu}{joined}"


def _commit(record: Record) -> str:
    e = record.environment
    if e.git_commit is None:
        return "source unknown"
    return f"source {e.git_commit[:12]}" + (" with uncommitted changes" if e.git_dirty else "")


def provenance(record: Record) -> list[tuple[str, str]]:
    """The run's machine and tools, as (name, value)."""
    e = record.environment
    unknown = "unknown"
    rows = [
        ("run", record.id),
        ("recorded", record.created),
        ("command", record.command),
        ("source", _commit(record).removeprefix("source ")),
        ("host", ", ".join(filter(None, (e.host, e.os, e.cpu)))),
        ("GPU", e.gpu or "none on this machine"),
    ]
    if e.gpu:
        clock = f"up to {e.gpu_sm_clock_mhz:,.0f} MHz" if e.gpu_sm_clock_mhz else f"clock {unknown}"
        memory = f"{e.gpu_memory_bytes / 1e9:,.0f} GB" if e.gpu_memory_bytes else f"memory {unknown}"
        l2 = f"{e.gpu_l2_bytes / 2**20:,.0f} MiB L2" if e.gpu_l2_bytes else f"L2 {unknown}"
        rows.append(("", f"{e.gpu_arch or unknown}, {e.gpu_sms or unknown} SMs, {clock}, {memory}, {l2}"))
        rows.append(("driver", f"{e.driver or unknown}, CUDA runtime {e.cuda_runtime or unknown}"))
    for gpu in record.gpus:
        cases = ", ".join(f"{stage} {len(cases):,}" for stage, cases in gpu.cases.items())
        spread = "A/A unmeasured" if gpu.spread is None else f"A/A {100 * gpu.spread:.2f} %"
        clock = f", {gpu.sm_clock_mhz:,.0f} MHz" if gpu.sm_clock_mhz else ""
        remark = f"; {gpu.remark}" if gpu.remark else ""
        rows.append((gpu.uuid, f"{gpu.host + ': ' if gpu.host else ''}{cases or 'no cases'}; {spread}{clock}{remark}"))
    set_with = record.suite.nvcc
    rows += [
        ("nvcc", (e.nvcc or "absent") + (f" (static budgets were set with {set_with})" if set_with else "")),
        ("ncu", e.ncu or "absent"),
        ("torch", e.torch or "absent"),
        ("Python", e.python),
        ("harness", f"{e.harness}, record schema {record.schema_version}"),
    ]
    return [(name, value) for name, value in (*rows, *sorted(e.libraries.items())) if value]
