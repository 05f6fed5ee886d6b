"""Reads what ``ncu --csv --page raw --print-units base`` prints. Pure: text in, rows out.

The text is tool chatter (lines that start with ``==``), a header, a row of units, and one row a kernel
launch. Rows are told apart by the NVTX range they ran in, never by position. Nothing is guessed. A row
that is torn or does not fit the header is dropped and named; one whose ID ncu's count skips is missed. A
value that is not a number as ncu writes them (``1,234.56``), of a size that can be, is no value.

ncu prints two decimals. A ratio of 0.05 is therefore known to about 10 %; counters are exact.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flashcore.errors import RecordError

Dim3 = tuple[int, int, int]

#: Columns that every layout we can read has. The NVTX column's name goes on; this is how it starts.
COLUMNS = ("ID", "Kernel Name", "Block Size", "Grid Size", "Device", "CC")
NVTX_COLUMN = "thread Domain:Push/Pop_Range"
#: How often each instruction was executed, by address: it comes along with the counts per opcode.
EXECUTED = "inst_executed"

#: Metrics whose names have no unit before two underscores: what instructions did.
_BARE = (EXECUTED, "memory_")
_NUMBER = re.compile(r"\+?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"-?\d{1,3}(?:\.\d{3})*,\d+")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+")
_WITH_INSTANCES = re.compile(r"(?P<value>[^\s(]*)\s*\((?P<instances>.*)\)", re.DOTALL)
#: No counter of a GPU is larger, and sums and products of such numbers stay finite.
_LARGEST = 1e30
_NO_VALUE = {"", "-", "n/a", "(n/a)", "na", "none", "no data", "<error>"}
_NOT_FINITE = {"nan", "-nan", "inf", "+inf", "-inf", "infinity", "-infinity"}


class LayoutError(RecordError):
    """The text is not the CSV that we asked ncu for: says what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One cell. Where ``value`` is ``None``, ``note`` says why there is no number; else what it was made of, if that
    is not the cell itself.

    ``instances`` holds the parts that ncu lists in parentheses (per opcode, …), ``None`` if it
    lists none or they cannot be read.
    """

    value: float | None
    unit: str = ""
    instances: Mapping[str, float] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One profiled kernel launch. ``range_name`` is ``None`` outside of the domain asked for."""

    id: int
    range_name: str | None
    kernel: str
    grid: Dim3
    block: Dim3
    device: str
    cc: tuple[int, int]
    cells: Mapping[str, str]
    units: Mapping[str, str]
    process: str = ""  # its id

    def __contains__(self, metric: str) -> bool:
        return metric in self.cells

    def read(self, metric: str) -> Reading:
        """The reading of a metric, in ncu's own unit; without a value if ncu did not return it."""
        if metric not in self.cells:
            return Reading(None, note="ncu did not return it")
        return reading(self.cells[metric], self.units.get(metric, ""))


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one report, in the order of execution.

    ``notes`` name every row that was dropped or is not there; ``suspects`` are the ranges that such a row
    may have belonged to, whose rows are therefore perhaps not all here.
    """

    rows: tuple[KernelRow, ...]
    notes: tuple[str, ...] = ()
    suspects: frozenset[str] = frozenset()

    def by_range(self) -> dict[str, list[KernelRow]]:
        """Range name → its launches, in order."""
        groups: dict[str, list[KernelRow]] = {}
        for row in self.rows:
            if row.range_name is not None:
                groups.setdefault(row.range_name, []).append(row)
        return groups


def number(text: str) -> float | None:
    """The number that ncu wrote (``1,234.5``), ``None`` if it is no possible value: no count is below 0."""
    value = float(text.replace(",", "")) if _NUMBER.fullmatch(text) else math.inf
    return value if value <= _LARGEST else None


def reading(text: str, unit: str = "") -> Reading:
    """Reads one cell, as ``12``, ``1,234.50``, ``n/a`` or ``2,627 (IMAD: 2,000; BAR: 627)``."""
    text = text.strip()
    if text.lower() in _NO_VALUE:
        return Reading(None, unit, note=f"ncu gave {text!r}" if text else "ncu gave an empty value")
    instances: dict[str, float] | None = None
    head = text
    if match := _WITH_INSTANCES.fullmatch(text):
        head, instances = match["value"], _instances(match["instances"])
    if head.lower() in _NOT_FINITE:
        return Reading(None, unit, note=f"ncu gave {head!r}, which is not finite")
    value = number(head)
    if value is None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        return Reading(None, unit, note=f"ncu gave {shown!r}, which is not a number")
    return Reading(value, unit, instances)


def _instances(text: str) -> dict[str, float] | None:
    found: dict[str, float] = {}
    for part in text.split(";"):
        name, colon, digits = part.strip().rpartition(": ")
        value = number(digits.strip())
        if not colon or not name or value is None or name in found:
            return None
        found[name] = value
    return found


# --- units ---------------------------------------------------------------------------------------

_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PARTS = {"": 1.0, "m": 1e3, "u": 1e6, "n": 1e9}  # how many of them make one
_TIME = re.compile(r"(?P<prefix>[num]?)(?:s|sec|second)")
_BYTES = re.compile(r"(?P<prefix>[KMGT]?)(?:byte|B)(?:/block)?")
_FREQUENCY = re.compile(r"(?P<prefix>[kKMGT]?)(?:hz|Hz)|(?P<top>[KMGT]?)cycle/(?P<below>[num]?)(?:s|second)")
#: ncu's words for what is counted, alone or for each thread, warp or block.
_COUNT = re.compile(
    r"|SM|branches|(?:inst|warp|block|thread|cycle|sector|request|wavefront|register|cluster|pass|sample|tag|ops?)s?"
    r"(?:/(?:thread|warp|block))?"
)


def convert(value: float, unit: str, wanted: str) -> float | None:
    """``value`` in ``wanted`` (``ns``, ``B``, ``pct``, ``Hz`` or ``1``); ``None`` if it cannot be.

    A count (``1``) takes ncu's words for things counted (inst, warp, block, register/thread) and no other:
    a word that we do not know may be a time, a rate or a scale (``minute``, ``Kinst``).
    """
    unit = unit.strip()
    time, size, clock = _TIME.fullmatch(unit), _BYTES.fullmatch(unit), _FREQUENCY.fullmatch(unit)
    match wanted:
        case "ns" if time:
            return value * (1e9 / _PARTS[time["prefix"]])
        case "B" if size:
            return value * _SCALE[size["prefix"]]
        case "Hz" if clock:
            return value * _SCALE[clock["prefix"] or clock["top"] or ""] * _PARTS[clock["below"] or ""]
        case "pct" if unit == "%":
            return value
        case "1" if _COUNT.fullmatch(unit):
            return value
    return None


# --- the table -----------------------------------------------------------------------------------


def parse(text: str, *, domain: str | None = "flashcore") -> Table:
    """Reads ncu's raw page.

    Args:
        text: what ncu printed.
        domain: the NVTX domain whose ranges name the rows; nested ranges give the innermost. ``None``: of
            whatever program; ncu leaves the column of ranges out where it opens none.

    Raises:
        LayoutError: no header or two, other columns or one twice, no units row, an ID twice, or a decimal comma.
    """
    lines = list(io.StringIO(text.removeprefix("\ufeff")))  # only by newline, unlike splitlines
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise LayoutError(_no_header(lines))
    header = _header(lines[start], domain)
    records = [(n, line) for n, line in enumerate(lines[start + 1 :], start + 2) if line.strip() and line[:2] != "=="]
    if not records:
        return Table((), (f"line {start + 1}: the header is there, but not a single row",))
    first = _fields(records[0][1])
    if first is None or len(first) != len(header):
        return Table((), (f"line {records[0][0]}: the units row is damaged; nothing after it can be read",))
    if first[0]:
        raise LayoutError(
            f"ncu CSV: expected a row of units below the header (its ID is empty), found ID {first[0]!r}; "
            "print it with --page raw --print-units base"
        )
    units = dict(zip(header, (u.strip() for u in first), strict=True))
    return _table(header, units, records[1:], domain)


def _table(header: list[str], units: dict[str, str], records: Iterable[tuple[int, str]], domain: str | None) -> Table:
    rows: list[KernelRow] = []
    notes: list[str] = []
    suspects: set[str] = set()
    due = 0  # the next row's ID: ncu counts them from 0, the dropped ones too
    dropped = False  # a row was dropped since the last good one
    for n, line in records:
        if line.startswith('"ID"'):
            raise LayoutError(f"ncu CSV: expected one header, found a second on line {n}; read each report by itself")
        row, why = _row(header, units, line, domain)
        if row is None:
            notes.append(f"line {n}: {why}; the row is dropped")
            suspects |= _ranges(rows[-1:])
            dropped = True
            continue
        if rows and row.id <= rows[-1].id:
            raise LayoutError(
                f"ncu CSV: expected IDs that rise, found {row.id} after {rows[-1].id} on line {n}: rows are doubled "
                "or in disorder; import the report again"
            )
        if row.id > due and not dropped:
            notes.append(f"line {n}: ID {row.id} where {due} was expected; what is between them is missing")
            suspects |= _ranges(rows[-1:])
        if row.id > due or dropped:
            suspects |= _ranges([row])
        rows.append(row)
        due, dropped = row.id + 1, False
    return Table(tuple(rows), tuple(notes), frozenset(suspects))


def _ranges(rows: Iterable[KernelRow]) -> set[str]:
    return {row.range_name for row in rows if row.range_name is not None}


def _row(header: list[str], units: dict[str, str], line: str, domain: str | None) -> tuple[KernelRow | None, str]:
    fields = _fields(line)
    if fields is None:
        return None, f"damaged or not CSV ({line.strip()[:40]!r})"
    if len(fields) != len(header):
        return None, f"{len(fields)} fields where the header has {len(header)}"
    cells = dict(zip(header, fields, strict=True))
    _refuse_decimal_comma(cells)
    grid, block = _dims(cells["Grid Size"]), _dims(cells["Block Size"])
    cc = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", cells["CC"])
    if not re.fullmatch(r"[0-9]{1,9}", cells["ID"]) or grid is None or block is None or cc is None:
        found = {c: cells[c][:40] for c in ("ID", "Grid Size", "Block Size", "CC")}
        return None, f"ID, grid, block or compute capability cannot be read ({found})"
    nvtx = next((value for name, value in cells.items() if name.startswith(NVTX_COLUMN)), "")
    return KernelRow(
        id=int(cells["ID"]),
        range_name=None if domain is None else range_of(nvtx, domain),
        kernel=cells["Kernel Name"],
        grid=grid,
        block=block,
        device=cells["Device"],
        cc=(int(cc[1]), int(cc[2])),
        cells={name: value for name, value in cells.items() if "__" in name or name.startswith(_BARE)},
        units=units,
        process=cells.get("Process ID", ""),
    ), ""


def range_of(cell: str, domain: str) -> str | None:
    """The innermost range of a domain in the push/pop column, ``None`` if there is none.

    The cell reads ``<thread>  "<domain>:<range>:<payload …>:<message>" …``, a quoted part a range, the
    outermost first. Names of ranges in our domain hold no colon.
    """
    found = [part.split(":") for part in re.findall(r'"([^"]*)"', cell)]
    names = [part[1] for part in found if len(part) >= 2 and part[0] == domain]
    return names[-1] if names else None


def _fields(line: str) -> list[str] | None:
    """The fields of one line; ``None`` if it is torn. ncu ends every line, so one that is not
    ended was cut, even where the cut happens to fall behind a closing quote."""
    if not line.endswith("\n") or not line.startswith('"'):
        return None
    try:
        # Instances of one metric in a large kernel pass the module's default limit of 128 KiB a field.
        csv.field_size_limit(max(csv.field_size_limit(), len(line)))
        rows = list(csv.reader([line], strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _header(line: str, domain: str | None) -> list[str]:
    if line.startswith('"ID";'):
        raise LayoutError("ncu CSV: expected commas between the fields, found semicolons; run ncu with LC_ALL=C")
    header = _fields(line)
    if header is None:
        raise LayoutError(f"ncu CSV: the header is damaged ({line[-60:].strip()!r}); import the report again")
    if twice := [c for c, times in Counter(header).items() if times > 1]:
        raise LayoutError(f"ncu CSV: expected each column once, found {', '.join(twice[:5])} more often")
    missing = [c for c in COLUMNS if c not in header]
    if domain is not None and not any(c.startswith(NVTX_COLUMN) for c in header):
        missing.append(f"{NVTX_COLUMN}… (profile with --nvtx)")
    if missing:
        raise LayoutError(
            f"ncu CSV in another layout: expected the columns {', '.join(missing)}; "
            f"found {', '.join(header[:16])}{', …' if len(header) > 16 else ''}. "
            "Print it with --csv --page raw --print-units base"
        )
    return header


def _no_header(lines: list[str]) -> str:
    found = next((line.strip() for line in lines if line.strip()), "")
    what = f"its first line is {found[:100]!r}" if found else "it is empty"
    return f'ncu CSV: expected a header that starts with "ID","Process ID"; found none: {what}'


def _dims(text: str) -> Dim3 | None:
    match = re.fullmatch(r"\(\s*(\d{1,10}),\s*(\d{1,10}),\s*(\d{1,10})\)", text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _refuse_decimal_comma(cells: Mapping[str, str]) -> None:
    """``0,57`` would read as nothing and ``1,234`` as a thousand times too much: refuse the whole text."""
    for name, text in cells.items():
        if "__" in name and _DECIMAL_COMMA.fullmatch(text) and not _THOUSANDS.fullmatch(text):
            raise LayoutError(
                f"ncu CSV: expected a decimal point, found {text!r} in {name}: the text was written with "
                "a decimal comma; run ncu with LC_ALL=C"
            )
