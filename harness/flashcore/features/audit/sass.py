"""Counts the instructions of disassembled kernels, and finds their uses of local memory."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from flashcore.build import static_facts as static
from flashcore.machine import toolchain
from flashcore.model.cause import Cause, Detail
from flashcore.model.causes import NO_TOOL, UNREADABLE
from flashcore.model.record import Fact, Source, Subject
from flashcore.model.suite import Decision
from flashcore.readers import sass, spills
from flashcore.readers.compiler_decisions import decided
from flashcore.readers.phases import Sources

_MORE = {
    "sass_tensor": re.compile(r"[A-Z]*MMA\b"),
    "sass_tma": re.compile(r"UTMA(LDG|STG|REDG|PF)|UBLK(CP|RED|PF)"),
    "sass_128": re.compile(r"(LD|ST)[GS]?(STS)?\.(\w+\.)*128\b"),
}
#: The numeric facts that need a disassembler.
NAMES = (*static.sass_counts(()), *_MORE, "sass_local_loop")
#: Fact → a budget's decision.
Decisions = Mapping[str, Decision]
#: A kernel's counts and decisions by fact, with details, and its accesses to local memory.
DisassembledCode = tuple[Mapping[str, tuple[int | None, Detail | str]], Sequence[spills.Site]]
_CORES = os.cpu_count() or 1
_POOL, _ROOM = ThreadPoolExecutor(_CORES), threading.Semaphore(2 * _CORES)


def disassembled(
    content: bytes, arch: str, separate: Sequence[str], decisions: Decisions
) -> Future[Mapping[str, DisassembledCode]]:
    """The code of a cubin's functions; empty if it cannot be read. Blocks while too many cubins are pending."""

    def read() -> Mapping[str, DisassembledCode]:
        disassembler = toolchain.optional_tool("nvdisasm")
        if disassembler is None:
            return {}
        with TemporaryDirectory() as folder:
            file = Path(folder) / "code.cubin"
            file.write_bytes(content)
            functions = sass.functions(static.disassemble(file, disassembler).splitlines())
        sources = Sources(Path(), content)
        return {
            name: (
                {fact: (count, "") for fact, count in _counts(code).items()}
                | {fact: decided(d, code, arch, sources, separate) for fact, d in decisions.items()},
                [site.relative_to(Path()) for site in spills.sites(code)],
            )
            for name, code in functions
        }

    _ROOM.acquire()
    future = _POOL.submit(read)
    future.add_done_callback(lambda _: _ROOM.release())
    return future


def _counts(code: list[sass.Instruction]) -> dict[str, int]:
    counts, opcodes = static.sass_counts(code), Counter(instruction.opcode for instruction in code)
    for name, pattern in _MORE.items():
        counts[name] = sum(times for opcode, times in opcodes.items() if pattern.match(opcode))
    return counts


def facts(
    subject: Subject,
    code: DisassembledCode | None,
    spilled: tuple[int, int] | Cause,
    stack: int | None,
    decisions: Decisions,
) -> Iterator[Fact]:
    """A kernel's facts; ``spilled`` and ``stack`` are bytes."""
    unread: Cause = (UNREADABLE if toolchain.optional_tool("nvdisasm") else NO_TOOL)("nvdisasm")
    results, sites = code or (dict.fromkeys((*NAMES, *decisions), (None, unread)), ())
    yield from (Fact(subject, name, value, "1", Source.SASS, detail) for name, (value, detail) in results.items())
    (stores, loads), missing = ((None, None), spilled) if isinstance(spilled, Cause) else (spilled, "")
    if code:
        yield from static.local_memory_facts(subject, spills.SpillEvidence(stores, loads, stack, sites), missing)
