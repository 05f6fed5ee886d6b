"""Reads the output of ``ncu --csv --page raw``: a header, a row of units, and one row per kernel launch.

Rows are identified by their NVTX range, never by position. A row that is torn or does not fit the header is dropped and
reported, and so is a gap in ncu's IDs. A value that is not a number in ncu's format (``1,234.56``), or too large for a
counter, is unmeasured.

ncu prints two decimals, so a ratio of 0.05 is accurate to about 10 %; counters are exact.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from flashcore.errors import RecordError
from flashcore.model.catalogue import spec_of
from flashcore.model.causes import NO_NUMBER
from flashcore.model.groups import grouped
from flashcore.model.record import Dim3
from flashcore.readers.ncu import numerals
from flashcore.readers.ncu.results import LARGEST, Metric, Result, Workload

#: The required columns, and the prefix of the NVTX column's name.
COLUMNS = ("ID", "Kernel Name", "Block Size", "Grid Size", "CC")
NVTX_COLUMN = "thread Domain:Push/Pop_Range"

_HEADER = re.compile(r'"?ID"?\s*([,;])')
_DECIMAL_COMMA = re.compile(r"(?!-?\d{1,3}(?:,\d{3})+$)-?\d{1,3}(?:\.\d{3})*,\d+")  # but not grouped thousands
_WITH_INSTANCES = re.compile(r"(?P<value>[^\s(]*)\s*\((?P<instances>.*)\)", re.DOTALL)
#: The last two are NaN and infinity as C libraries write them: ``-nan(ind)``, ``1.#INF``.
_NO_VALUE = re.compile(
    r"|-|\(?n/a\)?|na|none|no data|<error>|[-+]?(?:nan|inf(?:inity)?)(?:\(\w*\))?|[-+]?\d\.#\w+", re.IGNORECASE
)


class LayoutError(RecordError):
    """The text is not a readable raw page; the message has the expected and the actual content."""


# --- cells ---------------------------------------------------------------------------------------


def cell(text: str, unit: str = "", mark: str = ".") -> Metric:
    """Reads one cell, such as ``12``, ``1,234.50``, ``n/a`` or ``2,627 (IMAD: 2,000; BAR: 627)``, in ncu's base unit:
    0.024 Kbyte gives 24 byte.

    Args:
        mark: the decimal mark, ``.`` or ``,``.
    """
    text = text.strip()
    if _NO_VALUE.fullmatch(text):
        return Metric(None, unit, cause=NO_NUMBER(repr(text) if text else "an empty value"))
    match = _WITH_INSTANCES.fullmatch(text)
    value = numerals.number(match["value"] if match else text, mark)
    if value is None:
        return Metric(text, unit)
    instances = _instances(match["instances"], mark) if match else {}
    factor, unit = numerals.base(unit)
    if factor != 1:  # ncu prints fewer than 12 digits; rounding removes the product's binary error
        value, instances = float(f"{value * factor:.12g}"), {n: v * factor for n, v in instances.items()}
    return Metric(value, unit, instances)


def _instances(text: str, mark: str) -> dict[str, float]:
    """The instances in parentheses; empty if one is unreadable or duplicate."""
    instances: dict[str, float] = {}
    for part in text.split(";"):
        name, colon, digits = part.strip().rpartition(": ")
        value = numerals.number(digits, mark)
        if not colon or not name or name in instances or value is None or not 0 <= value <= LARGEST:
            return {}
        instances[name] = value
    return instances


def numbers_in(text: str) -> Iterator[str]:
    """The texts of a cell that may be numbers: its value and its instances' values."""
    match = _WITH_INSTANCES.fullmatch(text.strip())
    if match is None:
        yield text
    else:
        yield match["value"]
        yield from (part.rpartition(": ")[2] for part in match["instances"].split(";"))


@dataclass(frozen=True, slots=True)
class Cells(Mapping[str, Metric]):
    """The metrics of one row, parsed on access: the instances of a large kernel take hundreds of KiB."""

    cells: Mapping[str, str]
    units: Mapping[str, str]
    mark: str = "."

    def __getitem__(self, metric: str) -> Metric:
        return cell(self.cells[metric], self.units.get(metric, ""), self.mark)

    def __contains__(self, metric: object) -> bool:
        return metric in self.cells

    def __iter__(self) -> Iterator[str]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)


def result_of(row: Mapping[str, str], metrics: Mapping[str, Metric]) -> Result | None:
    """The result of a page's row; ``None`` if its ID, name, sizes or compute capability cannot be read. Pages of early
    versions have neither sizes nor compute capability."""
    kernel = row["Kernel Name"]
    workload: Workload = "graph" if kernel == "graph" else "range" if kernel == "range" else "kernel"
    sizes = row if workload == "kernel" else {}
    grid, block = (_dims(sizes.get(name, "(0, 0, 0)")) for name in ("Grid Size", "Block Size"))
    cc = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", row.get("CC", "0.0"))
    if not re.fullmatch(r"[0-9]{1,9}", row["ID"]) or grid is None or block is None or cc is None or not kernel:
        return None
    ranges = next((text for name, text in row.items() if name.startswith(NVTX_COLUMN)), "")
    return Result(
        id=int(row["ID"]),
        kernel=kernel,
        workload=workload,
        grid=grid,
        block=block,
        cc=(int(cc[1]), int(cc[2])),
        metrics=metrics,
        ranges=ranges_of(ranges),
        process=row.get("Process ID", ""),
    )


def unreadable(row: Mapping[str, str]) -> str:
    """The message about a row that :func:`result_of` cannot read."""
    return f"ID, name, grid, block or compute capability cannot be read ({ {c: row.get(c, '')[:40] for c in COLUMNS} })"


def ranges_of(text: str) -> tuple[str, ...]:
    """The ranges of the push/pop column as ``domain:name``, outermost first.

    The cell is ``<thread>  "<domain>:<range>:<payload …>:<message>" …``, with a quoted part per range. Range names in
    flashcore's domain contain no colon.
    """
    parts = (part.split(":") for part in re.findall(r'"([^"]*)"', text))
    return tuple(":".join(part[:2]) for part in parts if len(part) > 1)


def _dims(text: str) -> Dim3 | None:
    match = re.fullmatch(r"\(\s*(\d{1,10}),\s*(\d{1,10}),\s*(\d{1,10})\)", text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


# --- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RawTable:
    """The rows of one page, in the order of execution.

    Args:
        notes: a message for each row that was dropped or is missing.
        damaged: the notes about damaged text.
        suspects: ranges whose rows may be incomplete, because such a row may belong to them.
        domain: the NVTX domain whose ranges identify the rows.
    """

    rows: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    suspects: frozenset[str] = frozenset()
    domain: str | None = None

    def by_range(self) -> dict[str, list[Result]]:
        """Range name → its launches, in order."""
        return grouped((name, row) for row in self.rows if (name := row.range_in(self.domain)) is not None)


def parse(text: str, *, domain: str | None = "flashcore", foreign: bool = False) -> RawTable:
    """Reads ncu's raw page.

    Args:
        text: ncu's output; lines that start with ``==`` are ignored.
        domain: the NVTX domain whose innermost range identifies a row. ``None``: rows have no range; ncu omits the
            column if the program opens none.
        foreign: whether the page was not printed by flashcore: its fields may be separated by semicolons, and its
            numbers may have a decimal comma, as all numbers of the page decide.

    Raises:
        LayoutError: no header or two, missing or duplicate columns, no units row, IDs that do not rise, or an
            unexpected decimal comma.
        flashcore.readers.ncu.numerals.Undecided: the decimal mark of a foreign page is ambiguous.
    """
    lines = enumerate(io.StringIO(text.removeprefix("\ufeff")), 1)  # splits only at newlines, unlike splitlines
    first = ""
    number = 0
    for number, line in lines:  # noqa: B007 # the header's line is named if nothing follows it
        if header := _HEADER.match(line):
            break
        first = first or line.strip()
    else:
        what = f"its first line is {first[:100]!r}" if first else "it is empty"
        raise LayoutError(f'ncu CSV: expected a header that starts with "ID","Process ID"; found none: {what}')
    delimiter = header[1]
    if delimiter == ";" and not foreign:
        raise LayoutError("ncu CSV: expected commas between the fields, found semicolons; run ncu with LC_ALL=C")
    columns = _columns(line, delimiter, COLUMNS[:2] if foreign else COLUMNS, needs_ranges=domain is not None)
    records = ((n, line) for n, line in lines if line.strip() and not line.startswith("=="))
    number, line = next(records, (number, ""))
    units = _fields(line, delimiter)
    if units is None or len(units) != len(columns):
        what = "the units row is damaged; nothing after it can be read"
        note = f"line {number}: {what if line else 'there is no row below the header'}"
        return RawTable((), (note,), (note,))
    if units[0]:
        raise LayoutError(
            f"ncu CSV: expected a row of units below the header (its ID is empty), found ID {units[0]!r}; "
            "print it with --page raw --print-units base"
        )
    rows = [(n, line, _fields(line, delimiter)) for n, line in records]
    page = _Page(columns, dict(zip(columns, (u.strip() for u in units), strict=True)), domain)
    complete = [fields for _, _, fields in rows if fields is not None and len(fields) == len(columns)]
    if foreign:
        cells = ((fields[at], name) for fields in complete for name, at in page.metrics.items())
        parts = ((part, name, page.units[name]) for text, name in cells for part in numbers_in(text))
        page = replace(page, mark=numerals.decimal_mark(parts))
    else:
        _refuse_decimal_comma(page, complete)
    return page.table(rows)


PageLine = tuple[int, str, list[str] | None]  # number, text, and fields; None if the line is torn


@dataclass(frozen=True)
class _Page:
    columns: list[str]
    units: Mapping[str, str]
    domain: str | None
    mark: str = "."

    @cached_property
    def metrics(self) -> dict[str, int]:
        """Metric → its column."""
        return {name: at for at, name in enumerate(self.columns) if spec_of(name) is not None}

    def table(self, lines: Iterable[PageLine]) -> RawTable:
        rows: list[Result] = []
        notes: list[str] = []
        damaged: list[str] = []
        suspects: set[str] = set()
        due = 0  # the next row's ID: ncu counts rows from 0, dropped ones included
        dropped = False  # whether a row was dropped since the last good one
        for n, line, fields in lines:
            if _HEADER.match(line):
                raise LayoutError(f"ncu CSV: expected one header, found a second on line {n}; read each page by itself")
            row, why = self._row(line, fields)
            if row is None:
                notes.append(f"line {n}: {why}; the row is dropped")
                damaged.append(notes[-1])
                suspects |= self._ranges(rows[-1:])
                dropped = True
                continue
            if rows and row.id <= rows[-1].id:
                raise LayoutError(
                    f"ncu CSV: expected rising IDs, found {row.id} after {rows[-1].id} on line {n}: rows "
                    "are duplicate or out of order; import the report again"
                )
            if row.id > due and not dropped:
                notes.append(f"line {n}: expected ID {due}, found {row.id}; the rows between them are missing")
                suspects |= self._ranges(rows[-1:])
            if row.id > due or dropped:
                suspects |= self._ranges([row])
            rows.append(row)
            due, dropped = row.id + 1, False
        return RawTable(tuple(rows), tuple(notes), tuple(damaged), frozenset(suspects), self.domain)

    def _row(self, line: str, fields: list[str] | None) -> tuple[Result | None, str]:
        """The result of one line; ``None`` and the reason if it cannot be read."""
        if fields is None:
            return None, f"damaged or not CSV ({line.strip()[:40]!r})"
        if len(fields) != len(self.columns):
            return None, f"{len(fields)} fields, but the header has {len(self.columns)}"
        cells = {name: fields[at] for name, at in self.metrics.items()}
        row = dict(zip(self.columns, fields, strict=True))
        result = result_of(row, Cells(cells, self.units, self.mark))
        return result, "" if result else unreadable(row)

    def _ranges(self, rows: Iterable[Result]) -> set[str]:
        names = (row.range_in(self.domain) for row in rows)
        return {name for name in names if name is not None}


def _columns(line: str, delimiter: str, required: Sequence[str], *, needs_ranges: bool) -> list[str]:
    columns = _fields(line, delimiter)
    if columns is None:
        raise LayoutError(f"ncu CSV: the header is damaged ({line[-60:].strip()!r}); import the report again")
    if twice := [c for c, times in Counter(columns).items() if times > 1]:
        raise LayoutError(f"ncu CSV: expected each column once, found {', '.join(twice[:5])} several times")
    missing = [c for c in required if c not in columns]
    if needs_ranges and not any(c.startswith(NVTX_COLUMN) for c in columns):
        missing.append(f"{NVTX_COLUMN}… (profile with --nvtx)")
    if missing:
        raise LayoutError(
            f"ncu CSV: unknown layout: expected the columns {', '.join(missing)}; "
            f"found {', '.join(columns[:16])}{', …' if len(columns) > 16 else ''}. "
            "Print it with --csv --page raw --print-units base"
        )
    return columns


def _fields(line: str, delimiter: str) -> list[str] | None:
    """The fields of one line; ``None`` if it is torn. ncu ends every line with a newline, so a line without one was
    truncated, even after a closing quote."""
    if not line.endswith("\n"):
        return None
    try:
        # The instances of a large kernel's metric exceed the csv module's limit of 128 KiB per field.
        csv.field_size_limit(max(csv.field_size_limit(), len(line)))
        rows = list(csv.reader([line], strict=True, delimiter=delimiter))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _refuse_decimal_comma(page: _Page, rows: Iterable[list[str]]) -> None:
    """Refuses a page with a decimal comma: ``0,57`` is no number, and ``1,234`` reads a thousand times too large."""
    for fields in rows:
        for name, at in page.metrics.items():
            if _DECIMAL_COMMA.fullmatch(fields[at]):
                raise LayoutError(
                    f"ncu CSV: expected a decimal point, found {fields[at]!r} in {name}, with a decimal comma; "
                    "run ncu with LC_ALL=C"
                )
