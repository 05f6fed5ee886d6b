"""Facts that need no GPU: what ptxas, the cubin, its SASS and the launch plan say.

They are read once for each object and cached beside it (``static.json``), so that a gate on unchanged
sources opens no cubin and starts no disassembler.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from flashcore.chips import occupancy
from flashcore.measure.machine import toolchain
from flashcore.model.files import write_atomically
from flashcore.model.record import Artifact, Fact, Plan, Source, Subject
from flashcore.readers import cubin, local_memory
from flashcore.readers.kernel_names import canonical

#: SASS opcode → fact. An opcode counts by its first word: LDS.128 is an LDS.
OPCODES = {
    "HMMA": "sass_hmma",
    "HGMMA": "sass_hgmma",
    "QGMMA": "sass_hgmma",
    "QMMA": "sass_hmma",
    "FFMA": "sass_ffma",
    "FFMA2": "sass_ffma",
    "MUFU": "sass_mufu",
    "BAR": "sass_bar",
    "UCGABAR_ARV": "sass_cluster_bar",
    "IADD3": "sass_integer",
    "IMAD": "sass_integer",
    "LDL": "sass_ldl",
    "STL": "sass_stl",
    "LDG": "sass_ldg",
    "STG": "sass_stg",
    "LDS": "sass_lds",
    "STS": "sass_sts",
    "LDSM": "sass_ldsm",
    "LDGSTS": "sass_ldgsts",
    "UTMALDG": "sass_utmaldg",
    "ATOM": "sass_atom",
    "ATOMG": "sass_atom",
    "ATOMS": "sass_atom",
    "RED": "sass_atom",
    "REDG": "sass_atom",
}
_WIDE = {"LDG": "sass_ldg_128", "STG": "sass_stg_128"}
_FORMAT = 6  # of static.json; raise it when what is read changes
_BY_KERNEL = ("kernels", "sass", "local")
_KEPT = {"code", "warnings", "spills_unknown", "kernels", "sass", "local"}

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"\s*\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_WARNING = re.compile(r"\((C75\d\d)\)[^\n]*")
_SECTION = re.compile(r"^\.text\.(\S+?):?$|^\t?\.section\t\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_.]*)")


def facts(artifact: Artifact, root: Path | None = None) -> tuple[list[Fact], str]:
    """Static facts of one built (variant, arch), and the hash of its code.

    Facts are about (variant, arch, kernel). Spill bytes come from the ptxas log, SASS counts from
    ``nvdisasm``; where one of them is missing its facts are unmeasured and say so.

    Args:
        root: the suite's folder, that source lines are named relative to.
    """
    if artifact.status != "ok":
        return [], ""
    if artifact.cubins:
        found = [_facts_of(artifact, Path(path), root, kernel) for kernel, path in artifact.cubins.items()]
        code = hashlib.sha256(" ".join(sorted(code for _, code in found)).encode()).hexdigest()
        return [fact for facts, _ in found for fact in facts], code
    return ([], "") if artifact.cubin is None else _facts_of(artifact, Path(artifact.cubin), root)


def _facts_of(artifact: Artifact, path: Path, root: Path | None, called: str = "") -> tuple[list[Fact], str]:
    """The facts of one cubin and the hash of its code. ``called`` renames the kernel of a cubin that has only one."""
    cache = path.with_suffix(".static.json") if called else path.with_name("static.json")
    data = _cached(cache)
    # The disassembler is looked for only where its output is needed.
    disassembler = toolchain.optional_tool("nvdisasm") if data is None or data["sass"] is None else None
    if data is None or disassembler is not None:
        log = path.with_suffix(".log") if called else Path(artifact.log) if artifact.log else None
        data = _read(path, log if log and log.is_file() else None, artifact.arch, disassembler)
        write_atomically(cache, json.dumps(data).encode())
    data = _renamed(data, called) if called else _named(data)
    return [*_facts(artifact, data), *_local_facts(artifact, data, root)], data["code"]


def _renamed(data: Mapping[str, Any], called: str) -> dict[str, Any]:
    """The same with the one kernel's facts under that name."""
    (own,) = data["kernels"]
    named = {table: {called: data[table][own]} if own in (data[table] or {}) else data[table] for table in _BY_KERNEL}
    return {**data, **named}


def _named(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same with kernel names as they are shown, and as ncu's are shown too; overloads that would share one stay
    mangled."""
    shown = {kernel: canonical(kernel) for kernel in data["kernels"]}
    taken = list(shown.values())

    def named(table: Mapping[str, Any]) -> dict[str, Any]:
        return {n if taken.count(n := shown.get(k, k)) == 1 else k: value for k, value in table.items()}

    return {**data, **{name: named(data[name]) for name in _BY_KERNEL if data[name] is not None}}


def _cached(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    known = isinstance(data, dict) and data.get("format") == _FORMAT and data.keys() >= _KEPT
    return data if known else None


def _read(path: Path, log: Path | None, arch: str, disassembler: Path | None) -> dict[str, Any]:
    content = cubin.read(path, arch)
    text = log.read_text(encoding="utf-8", errors="replace") if log else ""
    spilled = ptxas_spills(text)
    why = "the ptxas log does not name this kernel"
    if content.apart and any(map(any, spilled.values())):
        why, spilled = f"{content.apart[0]} is compiled separately, and its callers are not known", {}
    warnings = _WARNING.findall(text)
    code = listing(path, disassembler)
    return {
        "format": _FORMAT,
        "code": content.code,
        "warnings": warnings,
        "spills_unknown": why,
        "kernels": {
            k.name: {
                "registers": k.registers,
                "stack_bytes": k.stack_bytes,
                "static_smem": k.static_smem,
                "barriers": k.barriers,
                "parameter_bytes": k.parameter_bytes,
                "spills": spilled.get(k.name),
            }
            for k in content.kernels
        },
        "sass": None if code is None else sass_counts(code),
        "local": {} if code is None else {k: [astuple(x) for x in v] for k, v in local_memory.sites(code).items()},
    }


def ptxas_spills(log: str) -> dict[str, tuple[int, int]]:
    """Kernel → (spill store bytes, spill load bytes) from ``ptxas -v``'s words: its own and those of every function
    that it calls. ptxas compiles such a function once for each kernel that may reach it (recursion and pointers to
    functions too), and names it after that kernel."""
    found: dict[str, tuple[int, int]] = {}
    kernel = ""
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            kernel = entry[1]
        elif spill := _SPILLS.match(line):
            stores, loads = found.get(kernel, (0, 0))
            found[kernel] = (stores + int(spill[1]), loads + int(spill[2]))
    return found


def listing(path: Path, disassembler: Path | None) -> str | None:
    """The cubin's SASS as text, with the source lines that it comes from; ``None`` without a disassembler."""
    made = path.with_name("variant.sass")  # by the build, where it found a disassembler
    if made.is_file():
        return made.read_text(encoding="utf-8", errors="replace")
    return None if disassembler is None else disassemble(path, disassembler)


def disassemble(path: Path, disassembler: Path) -> str:
    """The cubin's SASS as text; empty if the disassembler fails (an arch newer than it)."""
    import subprocess

    command = [str(disassembler), "-c", "-gi", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return result.stdout if result.returncode == 0 else ""


def sass_counts(text: str) -> dict[str, dict[str, int]]:
    """Kernel → fact name → count of instructions in the code (not executed).

    Padding NOPs are left out of ``sass_instructions``. Empty if the text holds no kernel.
    """
    counts: dict[str, Counter[str]] = {}
    current: Counter[str] | None = None
    for line in text.splitlines():
        if section := _SECTION.match(line):
            current = counts.setdefault(section[1] or section[2], Counter())
            continue
        instruction = _INSTRUCTION.match(line)
        if instruction is None or current is None:
            continue
        opcode = instruction[1].split(".")
        if opcode[0] == "NOP":
            continue
        current["sass_instructions"] += 1
        if name := OPCODES.get(opcode[0]):
            current[name] += 1
        if "128" in opcode and (wide := _WIDE.get(opcode[0])):
            current[wide] += 1
    names = {"sass_instructions", *OPCODES.values(), *_WIDE.values()}
    return {k: {n: c[n] for n in sorted(names)} for k, c in counts.items()}


def _facts(artifact: Artifact, data: Mapping[str, Any]) -> Iterable[Fact]:
    sass = data["sass"] or {}
    names = {"sass_instructions", *OPCODES.values(), *_WIDE.values()}
    for kernel, values in data["kernels"].items():
        subject = Subject(artifact.variant, artifact.arch, kernel=kernel)
        yield Fact(subject, "registers", values["registers"], "1", Source.CUBIN)
        for name in ("stack_bytes", "static_smem", "parameter_bytes"):
            yield Fact(subject, name, values[name], "B", Source.CUBIN)
        yield Fact(subject, "barriers", values["barriers"], "1", Source.CUBIN)
        spilled = values["spills"]
        for index, name in enumerate(("spill_store_bytes", "spill_load_bytes")):
            if spilled is None:
                yield Fact(subject, name, None, "B", Source.PTXAS, data["spills_unknown"])
            else:
                yield Fact(subject, name, spilled[index], "B", Source.PTXAS)
        warnings = data["warnings"]
        note = ", ".join(sorted(set(warnings)))
        yield Fact(subject, "compiler_warnings", len(warnings), "1", Source.PTXAS, note)
        for name in sorted(names):
            if kernel in sass:
                yield Fact(subject, name, sass[kernel][name], "1", Source.SASS)
            else:
                note = "nvdisasm could not read it" if data["sass"] is not None else "no nvdisasm on this machine"
                yield Fact(subject, name, None, "1", Source.SASS, note)


def _local_facts(artifact: Artifact, data: Mapping[str, Any], root: Path | None) -> Iterable[Fact]:
    """What each kernel uses local memory for, and where."""
    for kernel, values in data["kernels"].items():
        subject = Subject(artifact.variant, artifact.arch, kernel=kernel)
        rows = data["local"].get(kernel)
        found = None if rows is None else tuple(local_memory.Site(*row).below(root) for row in rows)
        stores, loads = values["spills"] or (None, None)
        verdict = local_memory.judge(local_memory.Evidence(stores, loads, values["stack_bytes"], found))
        note = "no machine code to read" if found is None else ""
        inside = None if found is None else sum(site.depth > 0 for site in found)
        yield Fact(subject, "sass_local_loop", inside, "1", Source.SASS, note)
        use = None if verdict.use == "unmeasured" else verdict.use
        yield Fact(subject, "local_memory", use, "text", Source.SASS, verdict.text)
        if verdict.worst:
            yield Fact(subject, "local_memory_site", verdict.worst, "text", Source.SASS)


def plan_facts(
    artifact: Artifact, plan: Plan, own: Mapping[Subject, Mapping[str, Fact]], sms: int | None
) -> Iterable[Fact]:
    """Facts that need the launch plan: shared memory, theoretical occupancy and its limiter.

    They are about (variant, arch, shape, kernel, launch's index among launches of that kernel, or none
    when it is launched once).

    Args:
        own: the static facts of this artifact by subject and name.
        sms: multiprocessors of the device, for waves; ``None`` leaves them unmeasured.
    """
    whole = Subject(artifact.variant, artifact.arch, plan.shape)
    if not plan.error:
        yield Fact(whole, "workspace_bytes", plan.workspace_bytes, "B", Source.PLAN)
    repeats = Counter(launch.kernel for launch in plan.launches)
    seen: Counter[str] = Counter()
    for launch in plan.launches:
        index = seen[launch.kernel] if repeats[launch.kernel] > 1 else None
        seen[launch.kernel] += 1
        subject = Subject(artifact.variant, artifact.arch, plan.shape, launch.kernel, index)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        yield Fact(subject, "threads", threads, "1", Source.PLAN)
        note = "" if blocks else "the grid is not known: the kernel was recorded"
        yield Fact(subject, "blocks", blocks or None, "1", Source.PLAN, note)
        yield Fact(subject, "dynamic_smem", launch.dynamic_smem, "B", Source.PLAN)
        kernel = own.get(Subject(artifact.variant, artifact.arch, kernel=launch.kernel))
        if kernel is None:
            note = f"the cubin has no kernel {launch.kernel}: the plan names another"
            for name, unit in (("smem", "B"), ("theoretical_occupancy", "pct"), ("blocks_per_sm", "1")):
                yield Fact(subject, name, None, unit, Source.OCCUPANCY, note)
            continue
        static_smem = int(kernel["static_smem"].number or 0)
        yield Fact(subject, "smem", static_smem + launch.dynamic_smem, "B", Source.OCCUPANCY)
        found = occupancy.occupancy(
            artifact.arch,
            threads=threads,
            registers=int(kernel["registers"].number or 0),
            static_smem=static_smem,
            dynamic_smem=launch.dynamic_smem,
            cluster=cluster,
        )
        note = found.reason
        pct = None if found.pct is None else round(found.pct, 4)
        limiter = None if found.blocks_per_sm is None else found.limiter
        yield Fact(subject, "theoretical_occupancy", pct, "pct", Source.OCCUPANCY, note)
        yield Fact(subject, "blocks_per_sm", found.blocks_per_sm, "1", Source.OCCUPANCY, note)
        yield Fact(subject, "occupancy_limiter", limiter, "text", Source.OCCUPANCY, note)
        if sms is not None and found.blocks_per_sm and blocks:
            waves = round(blocks / (sms * found.blocks_per_sm), 4)
            yield Fact(subject, "waves", waves, "1", Source.OCCUPANCY)
