"""Determines a kernel's use of local memory: spilled registers, arrays with a run-time index, or both.

No single tool reports it. ptxas counts the bytes of its spills; the stack frame contains both spills and arrays. The
machine code has each load (LDL) and store (STL), the loops around it and, with ``-lineinfo``, its source line.
:func:`classify` combines them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from flashcore.model.causes import SourceLine
from flashcore.readers import sass

Use = Literal["none", "spills", "array", "spills and array", "stack frame", "unmeasured"]

_STACK_SLOT = re.compile(r"\[R1(?:\+-?0x[0-9a-f]+)?\]")
_ONLY_A_TARGET = re.compile(r"`\(\S+\)")
_JUMPS = frozenset(("BRA", "BRX", "JMP", "JMX"))
_ENDS = frozenset(("EXIT", "RET", "KILL", "BPT"))


@dataclass(frozen=True, slots=True)
class Site:
    """A load or store of local memory in the code.

    Args:
        store: whether it is a store.
        bytes: bytes per thread.
        depth: the number of loops around it; 0 in straight-line code.
        slot: whether its address is a constant offset in the stack frame. A computed address is not a spill's.
        file, line: its source line; empty and 0 without line information.
    """

    store: bool
    bytes: int
    depth: int
    slot: bool
    file: str = ""
    line: int = 0

    def relative_to(self, root: Path | None) -> Site:
        """The same site with its file relative to ``root``, so that no absolute path is recorded."""
        return self if root is None else replace(self, file=relative_path(self.file, root))


def relative_path(file: str, root: Path) -> str:
    """A source file's path relative to ``root``; only its name if ``root`` does not contain it."""
    path = Path(file)
    if not path.is_absolute():
        return file
    # The suite may have been moved since the object was compiled: look for a suffix of the path.
    ends = (Path(*path.parts[start:]) for start in range(1, len(path.parts)))
    return next((end.as_posix() for end in ends if (root / end).is_file()), path.name)


def sites(code: Sequence[sass.Instruction]) -> tuple[Site, ...]:
    """A function's local-memory accesses in code order."""
    if not any(_is_local(i) for i in code):
        return ()
    blocks, edges = _flow(code)
    depths = loop_depths(edges)
    return tuple(_site(i, depth) for block, depth in zip(blocks, depths, strict=True) for i in block if _is_local(i))


def closing_branches(code: Sequence[sass.Instruction]) -> set[sass.Instruction]:
    """The last instruction of each block from which a loop starts again."""
    blocks, edges = _flow(code)
    nodes = (node for loop, entries in _loops(edges) for node in loop if not entries.isdisjoint(edges[node]))
    return {last for node in nodes if not (last := blocks[node][-1]).is_trap}


def _flow(code: Sequence[sass.Instruction]) -> tuple[list[list[sass.Instruction]], list[list[int]]]:
    """Blocks of instructions that run one after the other, and the successors of each block."""
    blocks: list[list[sass.Instruction]] = [[]]
    labels: dict[str, int] = {}
    for instruction in code:
        if instruction.labels or (blocks[-1] and blocks[-1][-1].name in _JUMPS | _ENDS):
            blocks.append([])
        labels.update(dict.fromkeys(instruction.labels, len(blocks) - 1))
        blocks[-1].append(instruction)
    return blocks, [_successors(blocks, index, labels) for index in range(len(blocks))]


def _is_local(instruction: sass.Instruction) -> bool:
    return instruction.opcode.startswith(("LDL", "STL"))


def _site(instruction: sass.Instruction, depth: int) -> Site:
    slot = _STACK_SLOT.search(instruction.operands) is not None
    place = instruction.lines[0] if instruction.lines else ("", 0)
    return Site(instruction.name == "STL", instruction.width, depth, slot, *place)


def _successors(blocks: Sequence[Sequence[sass.Instruction]], index: int, labels: Mapping[str, int]) -> list[int]:
    last = blocks[index][-1] if blocks[index] else None
    following = [index + 1] if index + 1 < len(blocks) else []
    if last is None or last.name not in _JUMPS | _ENDS:
        return following
    targets = [labels[t] for t in last.targets if t in labels] if last.name in _JUMPS else []
    # A condition precedes the opcode (@P0 BRA) or is an operand (BRA.U !UP0, target).
    conditional = last.is_predicated or (last.name == "BRA" and not _ONLY_A_TARGET.fullmatch(last.operands))
    return targets + following if conditional else targets


def loop_depths(edges: Sequence[Sequence[int]]) -> list[int]:
    """The loop depth of each node of a control-flow graph.

    Args:
        edges: the successors of each node.
    """
    depths = Counter(node for loop, _ in _loops(edges) for node in loop)
    return [depths[node] for node in range(len(edges))]


def _loops(edges: Sequence[Sequence[int]]) -> Iterator[tuple[frozenset[int], set[int]]]:
    """The loops of a flow graph, and where each is entered.

    A loop is a set of nodes that reach each other. When the edges back to its entry are removed, nodes that still reach
    each other are an inner loop. Code that was only moved out of line is no loop, though it branches backwards.
    """
    pending = [frozenset(range(len(edges)))]
    cut: set[int] = set()  # loop entries; edges to them from within their loop are removed
    while pending:
        nodes = pending.pop()
        for loop in _components(edges, nodes, cut):
            if len(loop) == 1 and not any(n in edges[n] and n not in cut for n in loop):
                continue
            heads = {t for n, targets in enumerate(edges) if n not in loop for t in targets if t in loop}
            entries = (heads - cut) or {min(loop)}
            yield loop, entries
            cut |= entries
            pending.append(loop)


def _components(edges: Sequence[Sequence[int]], nodes: frozenset[int], cut: Collection[int]) -> list[frozenset[int]]:
    """The strongly connected components among ``nodes``, without the edges to ``cut`` (Kosaraju, no recursion)."""
    forward = {n: [t for t in edges[n] if t in nodes and t not in cut] for n in nodes}
    backward: dict[int, list[int]] = {n: [] for n in nodes}
    for node, targets in forward.items():
        for target in targets:
            backward[target].append(node)
    finished: list[int] = []
    seen: set[int] = set()
    pending = [(node, False) for node in nodes]
    while pending:
        node, done = pending.pop()
        if done:
            finished.append(node)
        elif node not in seen:
            seen.add(node)
            pending += [(node, True), *((target, False) for target in forward[node])]
    components = []
    for root in reversed(finished):
        members: set[int] = set()
        reachable = [root]
        while reachable:
            node = reachable.pop()
            if node in seen:  # not yet in a component
                seen.remove(node)
                members.add(node)
                reachable += backward[node]
        if members:
            components.append(frozenset(members))
    return components


@dataclass(frozen=True, slots=True)
class SpillEvidence:
    """The tools' findings about one kernel; ``None`` is unmeasured.

    Args:
        spill_stores, spill_loads: bytes per thread, by ptxas.
        stack: bytes of the stack frame per thread.
        sites: the accesses in the machine code.
    """

    spill_stores: int | None = None
    spill_loads: int | None = None
    stack: int | None = None
    sites: Sequence[Site] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of local memory, the worst source line if there is one, and both in words."""

    use: Use
    worst: SourceLine | None
    text: str


def classify(evidence: SpillEvidence) -> Usage:
    """Distinguishes spills from arrays.

    Spills use constant offsets in the frame, and ptxas counts their bytes. An access by a computed address belongs to
    an array, and so do bytes beyond those that ptxas counts as spilled.
    """
    accesses = evidence.sites
    spilled = None
    if evidence.spill_stores is not None and evidence.spill_loads is not None:
        spilled = evidence.spill_stores + evidence.spill_loads
    if accesses is None:
        has_array = not spilled and bool(evidence.stack)
    else:
        uncounted = spilled is not None and sum(s.bytes for s in accesses) > spilled
        has_array = uncounted or not all(s.slot for s in accesses)
    use: Use
    if spilled is None and (accesses is None or accesses):
        use = "unmeasured"
    elif spilled:
        use = "spills and array" if has_array else "spills"
    elif has_array:
        use = "array"
    elif evidence.stack:
        use = "stack frame"
    else:
        use = "none"
    worst = _worst(accesses or (), arrays=use == "array")
    return Usage(use, worst, _words(evidence, use, worst))


def _worst(accesses: Sequence[Site], *, arrays: bool) -> SourceLine | None:
    """The line with the most bytes at the greatest loop depth; of spills unless there are only arrays."""
    spills = [s for s in accesses if s.slot]
    totals = Counter[tuple[str, int, int]]()  # bytes by file, line and depth
    for site in spills if spills and not arrays else accesses:
        if site.file:
            totals[site.file, site.line, site.depth] += site.bytes
    if not totals:
        return None
    file, line, _ = max(totals, key=lambda place: (place[2], totals[place], -place[1]))
    return SourceLine(file, line)


_NAMES: Mapping[Use, str] = {
    "none": "no local memory",
    "spills": "spilled registers",
    "array": "an array with a run-time index, no spills",
    "spills and array": "spilled registers and an array with a run-time index",
    "stack frame": "a stack frame, but no access to it in the code",
    "unmeasured": "use of local memory unmeasured",
}


def _words(evidence: SpillEvidence, use: Use, worst: SourceLine | None) -> str:
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
    return f"{_NAMES[use]} ({'; '.join(parts)})" if parts else _NAMES[use]
