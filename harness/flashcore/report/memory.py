"""The traffic of a case between registers, shared memory, L1, L2 and DRAM, as bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flashcore.model.text import quantity
from flashcore.report.cells import Bar, Cell

#: A counter (or a computed share, %) → its value in the catalogue's unit; ``None`` if unmeasured.
Read = Callable[[str], float | None]


@dataclass(frozen=True, slots=True)
class _Link:
    """A path between two memories: a bar per direction, or one for both if only their sum is counted.

    Args:
        upper, lower: the memories; reads go up.
        reads, writes, both: facts of bytes, or of shared-memory wavefronts.
        busy: the fact of the link's share of its peak, %; empty if the peak is unknown.
        more: another fact and its label.
        within: facts of bytes included in reads and writes but listed as other paths.
    """

    upper: str
    lower: str
    reads: str
    writes: str
    both: str = ""
    busy: str = ""
    more: tuple[str, str] = ("", "")
    within: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


_TMA = _Link("shared memory (TMA)", "L2", "tma_read_bytes", "tma_write_bytes")
_LINKS = (
    _Link(
        *("registers", "shared memory", "shared_load_wavefronts", "shared_store_wavefronts"),
        *("shared_wavefronts", "shared_busy", ("bank_conflicts", "bank conflicts")),
    ),
    _Link("registers", "L1", "global_load_bytes", "global_store_bytes", "l1_bytes", "l1_busy", ("l1_hit", "hit")),
    _Link(
        *("L1", "L2", "l2_read_bytes", "l2_write_bytes", "l2_bytes", "l2_throughput", ("l2_hit", "hit")),
        (("tma_read_bytes", "cluster_bytes"), ("tma_write_bytes", "atomic_bytes", "reduction_bytes")),
    ),
    _TMA,
    _Link("L2", "DRAM", "dram_read_bytes", "dram_write_bytes", "", "dram_throughput"),
)
#: Paths with one direction, listed if their counters are not 0.
_OTHERS = {"atomics in L2": ("atomic_bytes", "reduction_bytes"), "between SMs of a cluster": ("cluster_bytes",)}
_PASS = 128  # bytes of a shared-memory wavefront


def bars(read: Read, read_parent: Read | None, *, tma: bool) -> tuple[list[Bar], list[list[Any]]]:
    """The bars, each as long as its share of the largest one's bytes, and their values with the headings first.

    Args:
        tma: whether the code uses TMA; without TMA counters, its bytes are part of L2's.
    """
    table: list[list[Any]] = [["counter", "value", "parent"]]

    def recorded(*facts: str) -> None:
        table.extend([n, read(n), read_parent(n) if read_parent else None] for n in facts if n)

    links = [x for x in _LINKS if x is not _TMA or tma or read(x.reads) or read(x.writes)]
    most = max((_bytes(n, v) for link in links for _, n, v in _flows(link, read)), default=0.0) or 1.0
    results = []
    for link in links:
        flows, share = list(_flows(link, read)), read(link.busy) if link.busy else None
        before = {fact: value for _, fact, value in _flows(link, read_parent)} if read_parent else {}
        words = [f"{share:.0f} % of its peak" if share is not None else ""]
        if link.more[0]:
            words.append(_figure(link.more[0], read(link.more[0]), link.more[1]))
        for path, fact, value in flows:
            was = before.get(fact)
            told = f"parent {_figure(fact, was)}" if was is not None else ""
            cell = Cell(_figure(fact, value), title=fact, sort=value, kind="number")
            percent, tick = (None if v is None else 100 * _bytes(fact, v) / most for v in (value, was))
            results.append(Bar(path, cell, percent, tick, ", ".join(filter(None, (told, *words)))))
            words = []
        if not flows:
            why = "part of L2's bytes" if link is _TMA else f"{link.reads} was not counted"
            results.append(Bar(f"{link.lower} ↔ {link.upper}", Cell("", title=why), None))
        recorded(*[fact for _, fact, _ in flows] or [link.both or link.reads], link.busy, link.more[0])
    for path, facts in _OTHERS.items():
        if size := sum(read(n) or 0.0 for n in facts):
            results.append(Bar(path, Cell(_figure(facts[0], size), title=" + ".join(facts)), 100 * size / most))
            recorded(*facts)
    return results, table


def _flows(link: _Link, read: Read) -> Iterator[tuple[str, str, float]]:
    """(path, fact, value) of each direction; nothing if nothing was counted."""
    reads, writes = read(link.reads), read(link.writes)
    if reads is not None and writes is not None:
        rest = [sum(read(other) or 0.0 for other in others) for others in link.within]
        yield f"{link.lower} → {link.upper}", link.reads, max(reads - rest[0], 0)
        yield f"{link.upper} → {link.lower}", link.writes, max(writes - rest[1], 0)
    elif (total := read(link.both) if link.both else None) is not None:
        yield f"{link.lower} ↔ {link.upper}", link.both, total


def _bytes(fact: str, value: float) -> float:
    return value * (_PASS if "wavefronts" in fact else 1)


def _figure(fact: str, value: float | None, word: str = "") -> str:
    if value is None:
        return f"{word} unmeasured".strip()
    unit = "B" if fact.endswith("bytes") else "pct" if fact.endswith("hit") else "1"
    word = f"passes {word}".strip() if fact.endswith("wavefronts") else word
    return " ".join(filter(None, (*quantity(value, unit), word)))
