"""Facts that need no GPU: from ptxas, the cubin, its SASS and the launch plan.

They are read once per object and cached next to it (``static.json``), so that a gate on unchanged sources opens no
cubin and starts no disassembler.
"""

from __future__ import annotations

import math
import operator
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from flashcore.chips import occupancy
from flashcore.machine import toolchain
from flashcore.model import cache
from flashcore.model.case import Case
from flashcore.model.catalogue import fact_of
from flashcore.model.cause import Cause, Detail, as_json, cause_text, from_json
from flashcore.model.causes import (
    CALLED_SEPARATELY,
    GRID_UNKNOWN,
    KERNEL_NOT_BUILT,
    NO_MACHINE_CODE,
    NO_TOOL,
    NOT_IN_LOG,
    SPILLS_DISAGREE,
    UNREADABLE,
    NotLinked,
    SpillsNotListed,
)
from flashcore.model.files import file_hash
from flashcore.model.record import Artifact, CaseSubject, CodeSubject, Fact, Launch, Plan, Source, Subject, Value
from flashcore.model.suite import Suite
from flashcore.model.text import matches_any
from flashcore.readers import cubin, sass, spills
from flashcore.readers.compiler_decisions import decided
from flashcore.readers.kernel_names import distinct
from flashcore.readers.phases import Sources

#: Fact → the SASS opcodes that it counts, without modifiers: LDS.128 counts as LDS.
_OPCODES = {
    "sass_hmma": "HMMA QMMA",
    "sass_hgmma": "HGMMA QGMMA",
    "sass_ffma": "FFMA FFMA2",
    "sass_fp64": "DADD DFMA DMMA DMUL DSETP",
    "sass_mufu": "MUFU",
    "sass_bar": "BAR",
    "sass_cluster_bar": "UCGABAR_ARV",
    "sass_integer": "IADD3 IMAD",
    "sass_ldl": "LDL",
    "sass_stl": "STL",
    "sass_ldg": "LDG",
    "sass_stg": "STG",
    "sass_lds": "LDS",
    "sass_sts": "STS",
    "sass_ldsm": "LDSM",
    "sass_ldgsts": "LDGSTS",
    "sass_utmaldg": "UTMALDG",
    "sass_atom": "ATOM ATOMG ATOMS RED REDG",
}
_FACT_OF = {opcode: fact for fact, opcodes in _OPCODES.items() for opcode in opcodes.split()}
_WIDE = {"LDG": "sass_ldg_128", "STG": "sass_stg_128"}
_SPLIT = {"LDG": "sass_split_ldg", "STG": "sass_split_stg"}
_INDEXED = "sass_indexed_ldc"
_COUNTS = sorted({"sass_instructions", *_OPCODES, *_WIDE.values(), *_SPLIT.values(), _INDEXED})
#: An address's registers and offset: ``[R2.64+0x10]``, ``desc[UR4][R2.64+-0x8]``.
_ADDRESS = re.compile(r"\[((?:R|UR)\d+[^\]]*?)(?:\+(-?0x[0-9a-f]+))?\](?!\[)")
_RESOURCES = ("registers", "stack_bytes", "static_smem", "parameter_bytes", "barriers")
_FORMAT = 15  # of static.json; increment when its content changes

_ENTRY = r"Compiling entry function '([^']+)'"
#: ptxas calls what it does to wgmma and setmaxnreg an info.
_WARNING = re.compile(r"^ptxas .*?(?:warning *: |(?=\(C75\d\d\)))(.*)", re.MULTILINE)
_SPILLS = r"\s*\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"


def facts(artifact: Artifact, root: Path | None = None, suite: Suite | None = None) -> list[Fact]:
    """Static facts of one built (variant, arch).

    Subjects are (variant, arch, kernel). Spill bytes come from the ptxas log and the cubin, SASS counts from
    ``nvdisasm``. If these are missing or contradict each other, the facts are unmeasured with that cause.

    Args:
        root: the suite's folder; source lines are relative to it.
        suite: its budgets on compiler decisions have facts too.
    """
    if artifact.status != "ok":
        return []
    cubins = artifact.cubins or ({"": artifact.cubin} if artifact.cubin else {})
    return [f for kernel, path in cubins.items() for f in _cubin_facts(artifact, Path(path), root, suite, kernel)]


def _cubin_facts(artifact: Artifact, path: Path, root: Path | None, suite: Suite | None, name: str) -> list[Fact]:
    """One cubin's facts. ``name`` renames the kernel of a single-kernel cubin."""
    log = path.with_suffix(".log") if name else Path(artifact.log) if artifact.log else None
    log = log if log and log.is_file() else None
    key = " ".join([str(_FORMAT), *(file_hash(p) for p in (path, log) if p)])
    cached = f"{path.stem}.static" if name else "static"
    data = cache.recall(path.parent, cached, key)
    # Look for the disassembler only if its output is needed.
    disassembler = toolchain.optional_tool("nvdisasm") if data is None or data["sass"] is None else None
    if data is None or disassembler is not None:
        data = _read(path, log, artifact.arch, disassembler)
        cache.keep(path.parent, cached, key, data)
    names = dict.fromkeys(data["kernels"], name) if name else distinct(data["kernels"])
    subjects = {k: CodeSubject(artifact.variant, artifact.arch, kernel=names[k]) for k in data["kernels"]}
    facts = [fact for kernel, subject in subjects.items() for fact in _kernel_facts(subject, data, kernel, root)]
    return [*facts, *(_decided(artifact, path, suite, names) if suite else ())]


def _decided(artifact: Artifact, path: Path, suite: Suite, names: Mapping[str, str]) -> Iterator[Fact]:
    """The facts of budgets on compiler decisions in a cubin; ``names``: its kernels' displayed ones."""
    variant, arch = artifact.variant, artifact.arch
    decisions = {
        b.fact: b.decision
        for b in suite.budgets
        if b.decision and matches_any(variant, b.variants) and matches_any(arch, b.archs)
    }
    code = listing(path, toolchain.optional_tool("nvdisasm")) if decisions else None
    functions = sass.parse(code or "")
    separate = [name for name in functions if name not in names]
    # A recorded cubin may be from other sources than those here.
    sources = Sources(Path(suite.root), None if suite.variants[variant].kind.compiler else path.read_bytes())
    for fact, decision in decisions.items():
        for kernel, name in names.items():
            value, detail = (
                decided(decision, functions[kernel], arch, sources, separate)
                if kernel in functions
                else (None, NO_TOOL("nvdisasm") if code is None else UNREADABLE("nvdisasm"))
            )
            yield fact_of(CodeSubject(variant, arch, kernel=name), fact, value, Source.SASS, detail)


def _read(path: Path, log: Path | None, arch: str, disassembler: Path | None) -> dict[str, Any]:
    content = cubin.read(path, arch)
    ptxas_output = log.read_text(encoding="utf-8", errors="replace") if log else ""
    logged = ptxas_spills(ptxas_output)
    separate = None
    if content.separate and (any(map(any, logged.values())) or any(k.spills for k in content.kernels)):
        separate = CALLED_SEPARATELY(content.separate[0])
    code = listing(path, disassembler)
    functions = sass.parse(code or "")
    return {
        "warnings": _WARNING.findall(ptxas_output),
        "kernels": {
            k.name: {name: getattr(k, name) for name in (*_RESOURCES, "code", "demands")}
            | {"missing": k.missing and as_json(k.missing)}
            | _spills(logged.get(k.name), k.spills, k.missing if isinstance(k.missing, NotLinked) else separate)
            for k in content.kernels
        },
        "sass": None if code is None else {name: sass_counts(code) for name, code in functions.items()},
        "local": {name: [astuple(site) for site in spills.sites(code)] for name, code in functions.items()},
    }


def _spills(logged: tuple[int, int] | None, listed: tuple[int, int] | None, separate: Cause | None) -> dict[str, Any]:
    """A kernel's bytes of spill stores and loads, from the log if it has them, else from the cubin, or the cause."""
    spilled = logged or listed
    detail: Detail | None = separate
    if separate is None and spilled is None:
        detail = NOT_IN_LOG()
    elif separate is None and spilled and listed and spilled != listed:
        more = any(map(operator.gt, listed, spilled))
        detail = (SPILLS_DISAGREE if more else SpillsNotListed)(*spilled, *listed)
    return {
        "spills": None if isinstance(detail, Cause) else spilled,
        "spills_source": Source.PTXAS if logged or listed is None else Source.CUBIN,
        "spills_detail": detail and as_json(detail),
    }


def ptxas_spills(log: str) -> dict[str, tuple[int, int]]:
    """Kernel → (spill store bytes, spill load bytes) from the output of ``ptxas -v``.

    A kernel's bytes include those of every function that it calls. ptxas compiles such a function once per kernel that
    may reach it (also by recursion or function pointers) and lists it after that kernel.
    """
    spills: dict[str, tuple[int, int]] = {}
    kernel = ""
    for line in log.splitlines():
        if entry := re.search(_ENTRY, line):
            kernel = entry[1]
        elif spill := re.match(_SPILLS, line):
            stores, loads = spills.get(kernel, (0, 0))
            spills[kernel] = (stores + int(spill[1]), loads + int(spill[2]))
    return spills


def listing(path: Path, disassembler: Path | None) -> str | None:
    """The cubin's SASS as text, with its source lines; ``None`` without a disassembler, which takes 0.3 s or more."""
    existing = path.with_name("variant.sass")  # written by the build if it found a disassembler
    if existing.is_file():
        return existing.read_text(encoding="utf-8", errors="replace")
    if disassembler is None:
        return None
    name, key = f"{path.stem}.sass", f"{file_hash(path)} {disassembler} {disassembler.stat().st_mtime_ns}"
    code: str | None = cache.recall(path.parent, name, key)
    if code is None:
        code = disassemble(path, disassembler)
        cache.keep(path.parent, name, key, code)
    return code


def disassemble(path: Path, disassembler: Path) -> str:
    """The cubin's SASS as text; empty if the disassembler fails (for an arch it does not support) or times out."""
    try:
        result = toolchain.ask([disassembler, "-c", "-gi", path], timeout=120)
    except subprocess.TimeoutExpired:
        return ""
    return result.stdout if result.returncode == 0 else ""


def sass_counts(code: Sequence[sass.Instruction]) -> dict[str, int]:
    """Fact name → static count of a function's instructions, without NOPs."""
    counts = dict.fromkeys(_COUNTS, 0)
    for opcode, times in Counter(instruction.opcode for instruction in code).items():
        name, *modifiers = opcode.split(".")
        if name == "NOP":
            continue
        counts["sass_instructions"] += times
        if name in _FACT_OF:
            counts[_FACT_OF[name]] += times
        if name in _WIDE and "128" in modifiers:
            counts[_WIDE[name]] += times
    return counts | _addressed(code)


def _addressed(code: Sequence[sass.Instruction]) -> dict[str, int]:
    """Counts that depend on addresses: indexed constant loads, and accesses that adjoin another one. Two accesses
    adjoin if no label is between them, they have the same registers and width, and offsets that differ by it."""
    counts = dict.fromkeys([*_SPLIT.values(), _INDEXED], 0)
    offsets: dict[tuple[str, str, int], list[int]] = {}

    def count() -> None:
        for (name, _, width), at in offsets.items():
            counts[_SPLIT[name]] += sum(o - width in at or o + width in at for o in at)
        offsets.clear()

    for instruction in code:
        if instruction.labels:
            count()
        name, width = instruction.name, instruction.width
        if name == "LDC" and re.search(r"\]\[R\d", instruction.text):
            counts[_INDEXED] += 1
        elif name in _SPLIT and width < 16 and (address := _ADDRESS.search(instruction.text)):
            offsets.setdefault((name, address[1], width), []).append(int(address[2] or "0", 16))
    count()
    return counts


def _kernel_facts(subject: Subject, data: Mapping[str, Any], kernel: str, root: Path | None) -> Iterator[Fact]:
    values, rows = data["kernels"][kernel], data["local"].get(kernel)
    missing = from_json(values["missing"]) if values["missing"] else ""
    for name, value in ({name: values[name] for name in _RESOURCES} | values["demands"]).items():
        yield fact_of(subject, name, value, Source.CUBIN, missing if value is None else "")
    yield fact_of(subject, "code", values["code"][:16], Source.CUBIN)
    stores, loads = values["spills"] or (None, None)
    detail = from_json(values["spills_detail"]) if values["spills_detail"] else ""
    for name, value in (("spill_store_bytes", stores), ("spill_load_bytes", loads)):
        yield fact_of(subject, name, value, Source(values["spills_source"]), detail)
    warnings = data["warnings"]
    yield fact_of(subject, "compiler_warnings", len(warnings), Source.PTXAS, warnings[0] if warnings else "")
    counts = (data["sass"] or {}).get(kernel, {})
    missing = NO_TOOL("nvdisasm") if data["sass"] is None else UNREADABLE("nvdisasm")
    for name in _COUNTS:
        yield fact_of(subject, name, counts.get(name), Source.SASS, "" if counts else missing)
    sites = None if rows is None else tuple(spills.Site(*row).relative_to(root) for row in rows)
    yield from local_memory_facts(subject, spills.SpillEvidence(stores, loads, values["stack_bytes"], sites), detail)


def local_memory_facts(subject: Subject, evidence: spills.SpillEvidence, missing: Detail | str) -> Iterator[Fact]:
    """The facts about local memory that follow from the evidence; ``missing``: why it has no spill bytes."""
    sites, usage = evidence.sites, spills.classify(evidence)
    inside = None if sites is None else sum(site.depth > 0 for site in sites)
    yield fact_of(subject, "sass_local_loop", inside, Source.SASS, NO_MACHINE_CODE() if sites is None else "")
    use: Value | None = usage.use
    detail: Detail | str = usage.text
    if use == "unmeasured":
        use, detail = None, NO_MACHINE_CODE() if sites is None else missing
    yield fact_of(subject, "local_memory", use, Source.SASS, detail)
    if usage.worst:
        yield fact_of(subject, "local_memory_site", str(usage.worst), Source.SASS, usage.worst)


def plan_facts(
    artifact: Artifact, plans: Iterable[Plan], kernel_facts: Iterable[Fact], sms: int | None
) -> Iterator[Fact]:
    """Facts that need the launch plans: shared memory, theoretical occupancy and its limiter.

    Subjects are (variant, arch, shape, kernel, index of the launch if the kernel is launched more than once).

    Args:
        kernel_facts: this artifact's static facts.
        sms: SMs of the device, for waves; ``None``: no waves.
    """
    by_kernel: dict[str | None, dict[str, Fact]] = {}
    for fact in kernel_facts:
        by_kernel.setdefault(fact.subject.kernel, {})[fact.name] = fact
    for plan in plans:
        subject = CaseSubject(Case(artifact.variant, plan.shape), arch=artifact.arch)
        if plan.cause is None:
            yield fact_of(subject, "workspace_bytes", plan.workspace_bytes, Source.PLAN)
        repeats = Counter(launch.kernel for launch in plan.launches)
        seen: Counter[str] = Counter()
        for launch in plan.launches:
            index = seen[launch.kernel] if repeats[launch.kernel] > 1 else None
            seen[launch.kernel] += 1
            subject = CaseSubject(
                Case(artifact.variant, plan.shape), kernel=launch.kernel, launch=index, arch=artifact.arch
            )
            yield from _launch_facts(subject, launch, by_kernel.get(launch.kernel), sms)


def _launch_facts(
    subject: Subject, launch: Launch, kernel: Mapping[str, Fact] | None, sms: int | None
) -> Iterator[Fact]:
    threads, blocks, cluster = (math.prod(dims) for dims in (launch.block, launch.grid, launch.cluster))
    yield fact_of(subject, "threads", threads, Source.PLAN)
    yield fact_of(subject, "blocks", blocks or None, Source.PLAN, "" if blocks else GRID_UNKNOWN())
    yield fact_of(subject, "dynamic_smem", launch.dynamic_smem, Source.PLAN)
    missing = kernel["registers"].cause if kernel else KERNEL_NOT_BUILT(launch.kernel)
    if kernel is None or missing:
        for name in ("smem", "theoretical_occupancy", "blocks_per_sm"):
            yield fact_of(subject, name, None, Source.OCCUPANCY, missing or "")
        return
    static_smem, registers = (int(kernel[name].number or 0) for name in ("static_smem", "registers"))
    yield fact_of(subject, "smem", static_smem + launch.dynamic_smem, Source.OCCUPANCY)
    fit = occupancy.occupancy(subject.arch or "", threads, registers, static_smem, launch.dynamic_smem, cluster)
    values = {
        "theoretical_occupancy": None if fit.pct is None else round(fit.pct, 4),
        "blocks_per_sm": fit.blocks_per_sm,
        "occupancy_limiter": None if fit.blocks_per_sm is None else fit.limiter,
    }
    # A launch that does not fit has the value 0: then the cause is only a note.
    detail = fit.cause if fit.cause and fit.pct is None else cause_text(fit.cause)
    for name, value in values.items():
        yield fact_of(subject, name, value, Source.OCCUPANCY, detail)
    if sms is not None and fit.blocks_per_sm and blocks:
        yield fact_of(subject, "waves", occupancy.waves(blocks, fit.blocks_per_sm, sms), Source.OCCUPANCY)
