"""Cells and badges as HTML: what tables are made of, in plain Python since a report has tens of thousands.

Everything that comes from a record is escaped here, as jinja's autoescape does in the templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from markupsafe import Markup

from flashcore.report.cells import Cell, Kind

Href = Callable[[str, str], str]


def mark(status: str, text: str, title: str = "") -> Markup:
    """A status: a word, before which the style sheet sets a sign, never only a colour."""
    hover = f' title="{escape(title)}"' if title else ""
    return Markup(f'<span class="badge {escape(status)}"{hover}>{escape(text)}</span>')


def badge(cell: Cell, up: str, href: Href) -> Markup:
    """A cell's status, as a link where it leads somewhere."""
    shown = mark(cell.mark, cell.text)
    return Markup(f'<a class="plain" href="{escape(href(cell.href, up))}">{shown}</a>') if cell.href else shown


def row(
    cells: Sequence[Cell], up: str, href: Href, heading: bool = False, shown: int | None = None, usual: Kind = "text"
) -> Markup:
    """The cells of a table row; with ``heading`` the first one names the row. Those after ``shown`` are hidden.

    Args:
        usual: the kind that most cells of the table are of, and that goes without saying: its style is the table's.
    """
    last = len(cells) if shown is None else shown
    return Markup("".join(_td(c, up, href, heading and i == 0, i >= last, usual) for i, c in enumerate(cells)))


def _reads_so(cell: Cell) -> bool:
    """Whether a column sorts by what the cell reads: a plain number, or its own words."""
    plain = not cell.unit and not cell.detail
    number = cell.kind == "number" and cell.text.replace(",", "").replace(".", "").isdigit()
    return plain and (number or cell.text == cell.sort)


def _td(cell: Cell, up: str, href: Href, first: bool, hidden: bool, usual: Kind) -> str:
    """Its title tells source and subject; ``data-sort`` is what the column sorts by."""
    kind = "" if cell.kind == usual else cell.kind
    classes = f"{kind} name".strip() if first else kind
    name, attributes = ("th", ' scope="row"') if first else ("td", "")
    if classes:
        attributes += f' class="{classes}"'
    if hidden:
        attributes += " hidden"
    if cell.sort is not None and not _reads_so(cell):
        attributes += f' data-sort="{escape(str(cell.sort))}"'
    if cell.title:
        attributes += f' title="{escape(cell.title)}"'
    if cell.mark:
        inner = str(badge(cell, up, href))
    elif cell.href:
        inner = f'<a href="{escape(href(cell.href, up))}">{escape(cell.text)}</a>'
    else:
        inner = escape(cell.text)
    if cell.unit:
        inner += f'<span class="unit"> {escape(cell.unit)}</span>'
    if cell.detail:
        inner += f' <span class="detail">{escape(cell.detail)}</span>'
    return f"<{name}{attributes}>{inner}</{name}>"
