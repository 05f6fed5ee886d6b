"""Which lane holds which element of a WMMA accumulator: the machine against the committed table.

The kernel (introspect.cu) answers twice: ``table[lane][slot]`` is the (row, column) that a slot holds after
a load, ``owner[row][column]`` is ``8 · lane + slot`` of who wrote an element in a store. Both must be what
``include/attention/fragment_table.cuh`` says. :func:`header` writes that file from such an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Params = dict[str, Any]
Inputs = dict[str, Any]
#: ``[lane][slot]`` → (row, column)
Table = list[list[tuple[int, int]]]

KINDS = ("normal",)
TOLERANCES = {"exact": "whole numbers, each of them right"}
#: Integers are right or wrong: no error at all is conceded.
FENCE = {"max": 0.0, "mean": 0.0}

HEADER = Path(__file__).parent / "include" / "attention" / "fragment_table.cuh"
SIDE, LANES, SLOTS = 16, 32, 8

_TEMPLATE = """\
// Which element of a 16 × 16 fp32 accumulator of nvcuda::wmma lies in which slot of which lane.
//
// Written by `flashcore introspect` from what a GPU answered; not to be edited. See introspect.cu.
#pragma once

namespace attention {{

// Compute capabilities, as major · 10 + minor, on which the table was found to be the machine's.
constexpr int kFragmentFoundOn[] = {{{found_on}}};

// [lane][slot] = {{row, column}}
constexpr unsigned char kFragmentTable[32][8][2] = {{
{rows}
}};

}}  // namespace attention
"""


def header(table: Table, found_on: Iterable[int]) -> str:
    """The text of ``fragment_table.cuh``.

    Args:
        table: as the kernel answered.
        found_on: compute capabilities (90 for 9.0) of the machines that answered so.

    Raises:
        ValueError: the table is not one of a fragment, or there is no machine.
    """
    complaints = faults(table)
    machines = sorted(set(found_on))
    if complaints or not machines:
        raise ValueError("; ".join(complaints) or "found_on: expected a compute capability such as 90, found none")
    rows = [
        "    {" + ", ".join(f"{{{row}, {col}}}" for row, col in slots) + f"}},  // lane {lane}"
        for lane, slots in enumerate(table)
    ]
    return _TEMPLATE.format(found_on=", ".join(map(str, machines)), rows="\n".join(rows))


def committed(path: Path = HEADER) -> tuple[Table, list[int]]:
    """Table and compute capabilities out of the header.

    Raises:
        ValueError: it does not hold 32 lanes of 8 slots.
    """
    text = path.read_text(encoding="utf-8")
    found = re.search(r"kFragmentFoundOn\[\] = \{([0-9, ]+)\}", text)
    lanes = re.findall(r"^    \{((?:\{\d+, \d+\}(?:, )?)+)\}", text, re.MULTILINE)
    table = [[(int(r), int(c)) for r, c in re.findall(r"\{(\d+), (\d+)\}", slots)] for slots in lanes]
    if found is None or len(table) != LANES or any(len(slots) != SLOTS for slots in table):
        raise ValueError(
            f"{path}: expected {LANES} lanes of {SLOTS} slots and where they were found, found {len(table)} lanes\n"
            "  to fix: flashcore introspect, on a machine with a GPU"
        )
    return table, [int(x) for x in found[1].split(",")]


def faults(table: Sequence[Sequence[tuple[int, int]]]) -> list[str]:
    """What is wrong with a table by itself; empty if it is one of a 16 × 16 fragment.

    Coverage and uniqueness: every element is in one slot of one lane. Symmetry, which the kernels use:
    neighbouring slots are neighbouring columns, so that two weights are stored at once; and the slots of
    a row lie in the same slots of the same four neighbouring lanes for the upper and the lower half.
    """
    if len(table) != LANES or any(len(slots) != SLOTS for slots in table):
        return [f"expected {LANES} lanes of {SLOTS} slots, found {[len(slots) for slots in table]}"]
    complaints = []
    cells = [cell for slots in table for cell in slots]
    missing = {(r, c) for r in range(SIDE) for c in range(SIDE)} - set(cells)
    if missing:
        complaints.append(f"coverage: {len(missing)} elements in no slot, such as {min(missing)}")
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        complaints.append(f"uniqueness: {len(twice)} elements in several slots, such as {twice[0]}")
    for lane, slots in enumerate(table):
        for slot in range(0, SLOTS, 2):
            (r0, c0), (r1, c1) = slots[slot], slots[slot + 1]
            if (r1, c1) != (r0, c0 + 1) or c0 % 2:
                complaints.append(f"symmetry: lane {lane}: slots {slot}, {slot + 1} hold {(r0, c0)}, {(r1, c1)}")
        for slot in (0, 1, 4, 5):
            (r0, c0), (r1, c1) = slots[slot], slots[slot + 2]
            if (r1, c1) != (r0 + SIDE // 2, c0):
                complaints.append(f"symmetry: lane {lane}: slots {slot}, {slot + 2} hold {(r0, c0)}, {(r1, c1)}")
        if {r for r, _ in slots} != {r for r, _ in table[lane // 4 * 4]}:
            complaints.append(f"symmetry: lane {lane} does not share the rows of lane {lane // 4 * 4}")
    return complaints


def make_inputs(params: Params, seed: int, device: str, kind: str = "normal") -> Inputs:
    """The tile whose element (r, c) is ``16 · r + c``."""
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, found {kind!r}")
    return {"tile": torch.arange(SIDE * SIDE, dtype=torch.float32).reshape(SIDE, SIDE).to(device)}


def reference(inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """What the committed table says."""
    import torch

    table, _ = committed()
    device = inputs["tile"].device
    owner = torch.full((SIDE, SIDE), -1.0, dtype=torch.float64)
    for lane, slots in enumerate(table):
        for slot, (row, col) in enumerate(slots):
            owner[row, col] = lane * SLOTS + slot
    return {"table": torch.tensor(table, dtype=torch.float64).to(device), "owner": owner.to(device)}


def emulate(tolerance: str, inputs: Inputs, params: Params) -> dict[str, Tensor]:
    """The same: nothing is rounded.

    Raises:
        ValueError: no such class.
    """
    import torch

    if tolerance not in TOLERANCES:
        raise ValueError(f"tolerance: expected one of {', '.join(TOLERANCES)}, found {tolerance!r}")
    return {name: answer.to(torch.int32) for name, answer in reference(inputs, params).items()}


def work(params: Params) -> dict[str, float]:
    """No arithmetic; a tile is read, a table and the owners are written."""
    return {"flop": 0.0, "bytes": 4.0 * (SIDE * SIDE + LANES * SLOTS * 2 + SIDE * SIDE)}


def invariants(call: Callable[[Inputs], dict[str, Tensor]], inputs: Inputs, params: Params) -> list[str]:
    """The machine's own table is one of a fragment, and its two answers agree."""
    answer = call(inputs)
    return contradictions(_table(answer["table"].tolist()), _whole(answer["owner"].tolist()))[:8]


def _table(nested: list[list[list[float]]]) -> Table:
    return [[(int(r), int(c)) for r, c in slots] for slots in nested]


def _whole(nested: list[list[float]]) -> list[list[int]]:
    return [[int(x) for x in row] for row in nested]


def contradictions(table: Table, owner: Sequence[Sequence[int]]) -> list[str]:
    """What is wrong with a machine's answer: its table by itself, and the table against the owners."""
    complaints = faults(table)
    if not complaints:
        complaints += [
            f"lane {lane}, slot {slot} loads {(row, col)}, but lane {owner[row][col] // SLOTS}, "
            f"slot {owner[row][col] % SLOTS} stores it"
            for lane, slots in enumerate(table)
            for slot, (row, col) in enumerate(slots)
            if owner[row][col] != lane * SLOTS + slot
        ]
    return complaints


def rewritten(answer: Mapping[str, Any], capability: int) -> tuple[Path, str, list[str]]:
    """For ``flashcore introspect``: the header, its text by this machine's answer, and what in it is news.

    Machines that answered the same before are kept; where this one answers otherwise the table is its own
    alone, and fragment.cuh, which holds the closed form, has to follow.

    Raises:
        ValueError: the answer is no table of a fragment.
    """
    table = _table(answer["table"])
    if complaints := contradictions(table, _whole(answer["owner"])):
        raise ValueError("; ".join(complaints[:4]))
    try:
        known, machines = committed()
    except (OSError, ValueError):
        return HEADER, header(table, [capability]), ["there was no table"]
    if known != table:
        moved = sum(
            a != b for mine, theirs in zip(table, known, strict=True) for a, b in zip(mine, theirs, strict=True)
        )
        found_on = ", ".join(map(str, machines))
        return HEADER, header(table, [capability]), [f"{moved} of 256 slots differ from the table found on {found_on}"]
    news = [] if capability in machines else [f"the table holds on {capability} too"]
    return HEADER, header(table, [*machines, capability]), news
