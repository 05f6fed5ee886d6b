"""What nvdisasm shows of kernels: counts of instructions, and what uses local memory, in loops or not."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from flashcore.measure.machine import toolchain
from flashcore.measure.static import facts as static
from flashcore.model.causes import Cause, Detail, NoTool, Unreadable
from flashcore.model.record import Fact, Source, Subject
from flashcore.model.suite import Decision
from flashcore.readers import sass, spills
from flashcore.readers.decisions import Code as CompiledCode
from flashcore.readers.decisions import Sources

_MORE = {
    "sass_tensor": re.compile(r"[A-Z]*MMA\b"),
    "sass_tma": re.compile(r"UTMA(LDG|STG|REDG|PF)|UBLK(CP|RED|PF)"),
    "sass_128": re.compile(r"(LD|ST)[GS]?(STS)?\.(\w+\.)*128\b"),
}
#: The facts that need a disassembler, and are numbers.
NAMES = (*static.sass_counts(()), *_MORE, "sass_local_loop")
#: A budget's decision by its fact, and what a kernel's code shows of it.
Decisions = Mapping[str, Decision]
Decided = Mapping[str, tuple[int | None, Detail]]
#: A kernel's counts by fact, its loads and stores of local memory, and its decisions.
Code = tuple[Mapping[str, int], Sequence[spills.Site], Decided]
_CORES = os.cpu_count() or 1
_POOL, _ROOM = ThreadPoolExecutor(_CORES), threading.Semaphore(2 * _CORES)


def disassembled(
    content: bytes, arch: str, kernels: Collection[str], decisions: Decisions
) -> Future[Mapping[str, Code]]:
    """The code of a cubin's functions, none if it cannot be read. Waits while too many cubins are pending."""
    _ROOM.acquire()
    future = _POOL.submit(_disassembled, content, arch, kernels, decisions)
    future.add_done_callback(lambda _: _ROOM.release())
    return future


def _disassembled(content: bytes, arch: str, kernels: Collection[str], decisions: Decisions) -> Mapping[str, Code]:
    disassembler = toolchain.optional_tool("nvdisasm")
    if disassembler is None:
        return {}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "code.cubin"
        file.write_bytes(content)
        functions = sass.functions(static.disassemble(file, disassembler).splitlines())
        if not decisions:  # then one function at a time is in memory
            return {name: _code(code, {}) for name, code in functions}
        every = dict(functions)
    code = CompiledCode(every, kernels, arch, Sources(Path(), content))
    return {
        name: _code(every[name], {fact: code.decided(decision, name) for fact, decision in decisions.items()})
        for name in every
    }


def _code(code: list[sass.Instruction], decided: Decided) -> Code:
    counts, opcodes = static.sass_counts(code), Counter(instruction.opcode for instruction in code)
    for name, pattern in _MORE.items():
        counts[name] = sum(times for opcode, times in opcodes.items() if pattern.match(opcode))
    return counts, [site.relative_to(Path()) for site in spills.sites(code)], decided


def facts(
    subject: Subject, code: Code | None, spilled: tuple[int, int] | Cause, stack: int, decisions: Decisions
) -> Iterator[Fact]:
    """A kernel's facts; ``spilled`` and ``stack`` are bytes."""
    unread: Cause = (Unreadable if toolchain.optional_tool("nvdisasm") else NoTool)("nvdisasm")
    counts, sites, decided = code or (dict.fromkeys(NAMES), (), dict.fromkeys(decisions, (None, unread)))
    cause = "" if code else unread
    yield from (Fact(subject, name, value, "1", Source.SASS, detail) for name, (value, detail) in decided.items())
    yield from (Fact(subject, name, count, "1", Source.SASS, cause) for name, count in counts.items())
    (stores, loads), missing = ((None, None), spilled) if isinstance(spilled, Cause) else (spilled, "")
    if code:
        yield from static.local_memory_facts(subject, spills.Evidence(stores, loads, stack, sites), missing)
