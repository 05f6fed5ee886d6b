"""What a kernel uses local memory for: spilled registers, arrays with a run-time index, or both.

No single tool can tell. ptxas counts the bytes of its spills; the stack frame holds spills and arrays alike. The
machine code shows each load (LDL) and store (STL), whether it lies in a loop, and, with ``-lineinfo``, the line it
came from. Counters say how often they ran. :func:`judge` puts them together.

Pure functions of the disassembler's text (``nvdisasm -c -gi``) and of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Use = Literal["none", "spills", "array", "spills and array", "stack frame", "unmeasured"]

_SECTION = re.compile(r"^\.text\.(\S+?):?$|^\t?\.section\t\.text\.([^,\s]+)")
_LINE = re.compile(r'^\s*//## File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LABEL = re.compile(r"^(\.L[\w.$]*):")
_INSTRUCTION = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P[T0-9]+\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)\s*(?P<rest>[^;]*)"
)
_TARGET = re.compile(r"\.L[\w.$]*")
_STACK_SLOT = re.compile(r"\[R1(?:\+-?0x[0-9a-f]+)?\]")
_WIDTHS = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}
_JUMPS = frozenset(("BRA", "BRX", "JMP", "JMX"))
_ENDS = frozenset(("EXIT", "RET", "KILL", "BPT"))


@dataclass(frozen=True, slots=True)
class Site:
    """One load or store of local memory in the code.

    Args:
        store: whether it stores.
        bytes: bytes a thread.
        depth: loops around it; 0 is straight-line code.
        slot: whether its address is a constant place of the stack frame. One that is computed is no spill.
        file: source file and
        line: line that it came from; empty and 0 without line information.
    """

    store: bool
    bytes: int
    depth: int
    slot: bool
    file: str = ""
    line: int = 0

    def below(self, root: Path | None) -> Site:
        """The same with its file relative to ``root``: no path of one machine."""
        return self if root is None else replace(self, file=below(self.file, root))


def below(file: str, root: Path) -> str:
    """A source file's path relative to ``root``; only its name if it does not lie there."""
    if not file.startswith("/"):
        return file
    parts = Path(file).parts[1:]
    # An object may have been compiled in an earlier folder of the suite: look for the end of the path here.
    for start in range(len(parts)):
        if (root / Path(*parts[start:])).is_file():
            return Path(*parts[start:]).as_posix()
    return parts[-1]


@dataclass(slots=True)
class _Block:
    """Instructions that run one after the other."""

    sites: list[tuple[bool, int, bool, str, int]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    falls_through: bool = True


def sites(listing: str) -> dict[str, tuple[Site, ...]]:
    """Kernel → its local-memory accesses, in the order of the code."""
    found: dict[str, tuple[Site, ...]] = {}
    kernel: str | None = None
    body: list[str] = []
    for line in listing.splitlines():
        if section := _SECTION.match(line):
            name = section[1] or section[2]
            if kernel is not None and kernel != name:
                found[kernel] = _sites(body)
            if kernel != name:
                kernel, body = name, []
        elif kernel is not None:
            body.append(line)
    if kernel is not None:
        found[kernel] = _sites(body)
    return found


def _sites(body: Sequence[str]) -> tuple[Site, ...]:
    if not any("LDL" in line or "STL" in line for line in body):
        return ()
    blocks = [_Block()]
    labels: dict[str, int] = {}
    file, number, told = "", 0, False
    for line in body:
        if place := _LINE.match(line):
            if not told:  # after an inlined line comes the line that it was called from
                file, number = place["file"], int(place["line"])
            told = True
            continue
        told = False
        if label := _LABEL.match(line):
            blocks.append(_Block())
            labels[label[1]] = len(blocks) - 1
            continue
        instruction = _INSTRUCTION.match(line)
        if instruction is None:
            continue
        opcode, *suffixes = instruction["opcode"].split(".")
        rest = instruction["rest"]
        if opcode in ("LDL", "STL"):
            width = next((_WIDTHS[s] for s in suffixes if s in _WIDTHS), 4)
            blocks[-1].sites.append((opcode == "STL", width, bool(_STACK_SLOT.search(rest)), file, number))
        elif opcode in _JUMPS or opcode in _ENDS:
            blocks[-1].targets = _TARGET.findall(rest) if opcode in _JUMPS else []
            # A condition stands before the opcode (@P0 BRA) or among the operands (BRA.U !UP0, target).
            always = instruction["guard"] is None and (
                opcode != "BRA" or re.fullmatch(r"`\(\S+\)\s*", rest) is not None
            )
            blocks[-1].falls_through = not always
            blocks.append(_Block())
    edges: list[list[int]] = []
    for index, block in enumerate(blocks):
        targets = [labels[t] for t in block.targets if t in labels]
        if block.falls_through and index + 1 < len(blocks):
            targets.append(index + 1)
        edges.append(targets)
    depths = loop_depths(edges)
    return tuple(
        Site(store, width, depths[index], slot, file, line)
        for index, block in enumerate(blocks)
        for store, width, slot, file, line in block.sites
    )


def loop_depths(edges: Sequence[Sequence[int]]) -> list[int]:
    """How many loops each node of a flow graph lies in.

    A loop is a set of nodes that reach each other. When the edges back to its entry are removed, nodes that still reach
    each other are an inner loop. Code that was only moved out of line is no loop, though it branches backwards.
    """
    depths = [0] * len(edges)
    pending = [frozenset(range(len(edges)))]
    cut: set[int] = set()  # entries of loops: the edges to them from within their loop are removed
    while pending:
        nodes = pending.pop()
        for loop in _components(edges, nodes, cut):
            if len(loop) == 1 and not any(n in edges[n] and n not in cut for n in loop):
                continue
            for node in loop:
                depths[node] += 1
            heads = {t for n, targets in enumerate(edges) if n not in loop for t in targets if t in loop}
            cut |= (heads - cut) or {min(loop)}
            pending.append(loop)
    return depths


def _components(edges: Sequence[Sequence[int]], nodes: frozenset[int], cut: set[int]) -> list[frozenset[int]]:
    """Tarjan's strongly connected components among ``nodes``, without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[frozenset[int]] = []
    blocked = frozenset(cut)
    for root in nodes:
        if root in order:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                order[node] = low[node] = len(order)
                stack.append(node)
                on_stack.add(node)
            targets = edges[node]
            descended = False
            for i in range(at, len(targets)):
                target = targets[i]
                if target not in nodes or target in blocked:
                    continue
                if target not in order:
                    work += [(node, i + 1), (target, 0)]
                    descended = True
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            if descended:
                continue
            if low[node] == order[node]:
                members = []
                while True:
                    member = stack.pop()
                    on_stack.discard(member)
                    members.append(member)
                    if member == node:
                        break
                found.append(frozenset(members))
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return found


# --- the verdict --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evidence:
    """What each tool says of one kernel; ``None`` is unmeasured.

    Args:
        spill_stores: bytes a thread, as ptxas counts its spill instructions; ``spill_loads`` likewise.
        stack: bytes of the stack frame a thread.
        sites: what the machine code shows.
        loads: local loads executed; ``stores`` likewise, and ``spill_runs`` those that spill or refill.
    """

    spill_stores: int | None = None
    spill_loads: int | None = None
    stack: int | None = None
    sites: Sequence[Site] | None = None
    loads: float | None = None
    stores: float | None = None
    spill_runs: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What local memory is used for, the worst line as ``file:line`` (or empty), and both in words."""

    use: Use
    worst: str
    text: str


def judge(evidence: Evidence) -> Verdict:
    """Tells spills from arrays.

    Spills go to constant places of the frame and ptxas counts their bytes. An access by a computed register is
    certainly to an array; so are bytes beyond those that ptxas counts as spilled.
    """
    found = evidence.sites
    spilled = None
    if evidence.spill_stores is not None and evidence.spill_loads is not None:
        spilled = evidence.spill_stores + evidence.spill_loads
    array = _array(evidence, spilled)
    use: Use
    if spilled is None and found is None:
        use = "unmeasured"
    elif spilled:
        use = "spills and array" if array else "spills"
    elif array or (spilled is None and found):
        use = "array"
    elif evidence.stack:
        use = "stack frame"
    else:
        use = "none"
    worst = _worst(found or (), arrays=use == "array")
    return Verdict(use, worst, _words(evidence, use, worst))


def _array(evidence: Evidence, spilled: int | None) -> bool:
    if evidence.sites is not None:
        if any(not s.slot for s in evidence.sites):
            return True
        return spilled is not None and sum(s.bytes for s in evidence.sites) > spilled
    return not spilled and bool(evidence.stack)


def _worst(found: Iterable[Site], *, arrays: bool) -> str:
    """The line with the deepest, then the most bytes; of spills unless there are only arrays."""
    lines: dict[tuple[str, int], tuple[int, int]] = {}
    chosen = list(found)
    spills = [s for s in chosen if s.slot]
    for site in spills if spills and not arrays else chosen:
        if site.file:
            depth, total = lines.get((site.file, site.line), (0, 0))
            total = total + site.bytes if site.depth == depth else (site.bytes if site.depth > depth else total)
            lines[site.file, site.line] = (max(depth, site.depth), total)
    if not lines:
        return ""
    file, line = max(lines, key=lambda k: (*lines[k], -k[1]))
    return f"{file}:{line}"


_NAMES: Mapping[Use, str] = {
    "none": "no local memory",
    "spills": "spilled registers",
    "array": "an array with a run-time index, no spills",
    "spills and array": "spilled registers and an array with a run-time index",
    "stack frame": "a stack frame, but no access to it in the code",
    "unmeasured": "use of local memory unmeasured",
}


def _words(evidence: Evidence, use: Use, worst: str) -> str:
    parts = []
    if evidence.spill_stores or evidence.spill_loads:
        parts.append(f"ptxas spills {evidence.spill_stores} B and refills {evidence.spill_loads} B")
    if evidence.stack:
        parts.append(f"{evidence.stack} B of stack")
    if evidence.sites:
        inside = sum(s.depth > 0 for s in evidence.sites)
        where = "all of them in a loop" if inside == len(evidence.sites) else f"{inside} of them in a loop"
        parts.append(f"{len(evidence.sites)} accesses in the code, {where if inside else 'none in a loop'}")
    if worst:
        parts.append(f"worst at {worst}")
    runs = [
        f"{value:,.0f} {what}"
        for what, value in (
            ("loads", evidence.loads),
            ("stores", evidence.stores),
            ("of them spills", evidence.spill_runs),
        )
        if value is not None
    ]
    if runs and use != "none":
        parts.append(f"executed: {', '.join(runs)}")
    return f"{_NAMES[use]} ({'; '.join(parts)})" if parts else _NAMES[use]
