"""Table cells and badges, and their HTML. Values are rounded, with six digits on hover; no cell is blank.

An unmeasured value is shown as ``unmeasured``, with its reason on hover, and sorts last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

from flashcore.explain.predictions import PredictionOutcome
from flashcore.model.catalogue import FACTS
from flashcore.model.record import CaseOutcome, Fact
from flashcore.model.text import UNMEASURED, quantity, significant, whole
from flashcore.model.text import number as written

NOT_APPLICABLE = "n/a"

CellKind = Literal["number", "text", "mono", "small", "wrap", "wrap small", "missing", "none"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One table cell.

    Args:
        text: the visible text; ``unit`` follows it in small type.
        title: the hover text: more digits, source, subject, note.
        sort: the sort key; ``None`` sorts last in either direction.
        kind: ``wrap`` is long text, ``missing`` is unmeasured, ``none`` does not apply.
        mark: a status word of the style sheet (``pass``, ``fail``, …).
        href: the link's target.
        detail: a second, smaller line or suffix.
        share: % that a bar before the text shows, with a tick at ``tick`` %.
    """

    text: str
    unit: str = ""
    title: str = ""
    sort: float | str | None = None
    kind: CellKind = "text"
    mark: str = ""
    href: str = ""
    detail: str = ""
    share: float | None = None
    tick: float | None = None


#: Rows.
Table = list[list[Cell]]


def origin(fact: Fact) -> str:
    """A fact's source, subject and note, in up to three lines."""
    spec = FACTS.get(fact.name)
    metric = f" ({spec.ncu})" if spec and spec.ncu and fact.source == "ncu" else ""
    lines = [f"{fact.name}, from {fact.source}{metric}", f"about {fact.subject}"]
    return "\n".join([*lines, fact.note] if fact.note else lines)


def number_cell(value: float, digits: int = 3, title: str = "", *, detail: str = "") -> Cell:
    """The cell of a derived number, rounded to ``digits`` significant digits."""
    return Cell(significant(value, digits), title=title, sort=value, kind="number", detail=detail)


def whole_cell(value: float, mark: str = "") -> Cell:
    """The cell of a count or a size."""
    return Cell(whole(value), sort=value, kind="number", mark=mark)


def missing(reason: str, name: str = "") -> Cell:
    """The cell of an unmeasured value."""
    why = reason or "no reason was recorded"
    return Cell(UNMEASURED, title=f"{name} is unmeasured: {why}" if name else why, kind="missing")


def not_applicable(reason: str) -> Cell:
    """The cell of a value that does not apply here."""
    return Cell(NOT_APPLICABLE, title=reason, kind="none")


def fact_cell(fact: Fact, *, with_unit: bool = True, brief: bool = False) -> Cell:
    """The cell of one fact. Without ``with_unit`` the column's heading must contain the unit; a ``brief`` cell has no
    hover text."""
    if fact.value is None:
        return missing(fact.note or f"{fact.source} gave no value", f"{fact.name} of {fact.subject}")
    text, unit = quantity(fact.value, fact.unit)
    title = "" if brief else f"{written(fact.value, fact.unit)}\n{origin(fact)}"
    value = fact.number
    scaled = unit and unit[0] in "TGM" and fact.unit in ("1", "B")
    kept = unit if with_unit or scaled else ""
    return Cell(text, kept, title, value if value is not None else text, "text" if value is None else "number")


def unbroken(text: str) -> str:
    """The text with no-break spaces before ``×``."""
    return text.replace(" ×", "\u00a0×")


def breaks(name: str) -> Markup:
    """A name that may be broken after its underscores."""
    return Markup("_<wbr>").join(map(escape, name.split("_")))


#: Status of a case, stage or build → the style sheet's mark; others are ``unmeasured``.
_MARKS = {"ok": "pass", "built": "pass", "failed": "fail", "stale": "stale", "unsupported": "open"}

#: A prediction's outcome → (word, the style sheet's mark).
PREDICTIONS: dict[PredictionOutcome, tuple[str, str]] = {
    "confirmed": ("confirmed", "pass"),
    "more": ("exceeded", "pass"),
    "partly": ("partly", "waived"),
    "none": ("no effect", "open"),
    "against": ("other way", "fail"),
    "missed": ("missed", "fail"),
    "elsewhere": ("not comparable", "unmeasured"),
    "unmeasured": ("unmeasured", "unmeasured"),
    "open": ("none made", "open"),
}


def status_mark(status: str) -> str:
    """The style sheet's mark for a status."""
    return _MARKS.get(status, "unmeasured")


def check_cell(check: CaseOutcome, title: str = "") -> Cell:
    """The badge of a check's outcome."""
    word = {"ok": "correct", "failed": "wrong"}.get(check.status, check.status)
    return Cell(word, title=title, sort=float(check.status != "ok"), mark=status_mark(check.status))


def prediction_cell(outcome: PredictionOutcome, note: str = "") -> Cell:
    """The badge of a prediction's outcome; ``note`` on hover."""
    text, mark = PREDICTIONS[outcome]
    return Cell(text, title=note, sort=float(list(PREDICTIONS).index(outcome)), mark=mark)


#: A page's name, with its query → its address.
Href = Callable[[str], str]


def mark(status: str, text: str) -> Markup:
    """A status badge: the word, with a sign from the style sheet, never only a color."""
    return Markup(f'<span class="badge {escape(status)}">{escape(text)}</span>')


def badge(href: Href, cell: Cell) -> Markup:
    """A cell's status badge, as a link if the cell has one."""
    shown = mark(cell.mark, cell.text)
    return link(href, cell.href, shown, cls="plain") if cell.href else shown


def link(href: Href, target: str, text: str, title: str = "", cls: str = "") -> Markup:
    """A link to a page; ``text`` may be HTML."""
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in (("class", cls), ("title", title)) if value)
    return Markup(f'<a{attributes} href="{escape(href(target))}">{escape(text)}</a>')


def bar(share: float, parent: float | None = None) -> Markup:
    """A share in % as a bar, and the parent's as a tick."""
    tick = "" if parent is None else f'<u style="left:{min(parent, 100):.1f}%"></u>'
    return Markup(f'<span class="bar"><i style="width:{min(share, 100):.1f}%"></i>{tick}</span>')


def row(
    href: Href,
    cells: Sequence[Cell],
    heading: bool = False,
    shown: int | None = None,
) -> Markup:
    """The cells of a table row.

    Args:
        heading: whether the first cell names the row.
        shown: the number of visible cells; the others are hidden.
    """
    html = ""
    for i, cell in enumerate(cells):
        kind: str = "" if cell.kind == "text" else cell.kind
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
        html += f"<{name}{attributes}>{_content(href, cell)}</{name}>"
    return Markup(html)


def _content(href: Href, cell: Cell) -> Markup:
    inner = escape(cell.text)
    if cell.mark:
        inner = badge(href, cell)
    elif cell.href:
        inner = link(href, cell.href, cell.text)
    if cell.unit:
        inner += Markup('<span class="unit"> {}</span>').format(cell.unit)
    if cell.share is not None:
        inner = bar(cell.share, cell.tick) + " " + inner
    if cell.detail:
        inner += Markup(' <span class="detail">{}</span>').format(cell.detail)
    return inner


def _sorts_by_text(cell: Cell) -> bool:
    """Whether the sort key can be read from the cell's text: a plain number, or the text itself."""
    plain = not cell.unit and not cell.detail
    number = cell.kind == "number" and cell.text.replace(",", "").replace(".", "").isdigit()
    return plain and (number or cell.text == cell.sort)
