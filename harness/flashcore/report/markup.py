"""Renders cells and badges as HTML in plain Python, since template macros are slow for tens of thousands of cells.

Everything from a record is escaped here, like jinja's autoescape in the templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from markupsafe import Markup

from flashcore.report.cells import Cell, Kind

#: (page name, relative path to the report's folder) → the page's address.
Href = Callable[[str, str], str]


def mark(status: str, text: str) -> Markup:
    """A status badge: the word, with a sign from the style sheet, never only a color."""
    return Markup(f'<span class="badge {escape(status)}">{escape(text)}</span>')


def badge(href: Href, cell: Cell, up: str) -> Markup:
    """A cell's status badge, as a link if the cell has one."""
    shown = mark(cell.mark, cell.text)
    return Markup(f'<a class="plain" href="{escape(href(cell.href, up))}">{shown}</a>') if cell.href else shown


def row(
    href: Href, cells: Sequence[Cell], up: str, heading: bool = False, shown: int | None = None, usual: Kind = "text"
) -> Markup:
    """The cells of a table row.

    Args:
        heading: whether the first cell names the row.
        shown: the number of visible cells; the others are hidden.
        usual: the table's default kind, whose cells need no class.
    """
    html = ""
    for i, cell in enumerate(cells):
        kind: str = "" if cell.kind == usual else cell.kind
        name, attributes = "td", ""
        if heading and i == 0:
            name, attributes, kind = "th", ' scope="row"', f"{kind} name".strip()
        if kind:
            attributes += f' class="{kind}"'
        if shown is not None and i >= shown:
            attributes += " hidden"
        if cell.sort is not None and not _sorts_by_text(cell):
            attributes += f' data-sort="{escape(str(cell.sort))}"'
        if cell.title:
            attributes += f' title="{escape(cell.title)}"'
        html += f"<{name}{attributes}>{_content(href, cell, up)}</{name}>"
    return Markup(html)


def _content(href: Href, cell: Cell, up: str) -> str:
    inner = escape(cell.text)
    if cell.mark:
        inner = str(badge(href, cell, up))
    elif cell.href:
        inner = f'<a href="{escape(href(cell.href, up))}">{inner}</a>'
    if cell.unit:
        inner += f'<span class="unit"> {escape(cell.unit)}</span>'
    if cell.detail:
        inner += f' <span class="detail">{escape(cell.detail)}</span>'
    return inner


def _sorts_by_text(cell: Cell) -> bool:
    """Whether the sort key can be read from the cell's text: a plain number, or the text itself."""
    plain = not cell.unit and not cell.detail
    number = cell.kind == "number" and cell.text.replace(",", "").replace(".", "").isdigit()
    return plain and (number or cell.text == cell.sort)
