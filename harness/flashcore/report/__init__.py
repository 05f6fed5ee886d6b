"""Renders a record as HTML: offline, browsable, the same bytes every time.

A pure function of the record and the day it is judged on. Pages read as plain tables where scripts
are off; with them tables sort and filter and the charts are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from flashcore.errors import UsageError
from flashcore.model.files import replace_folder
from flashcore.model.record import Record
from flashcore.model.suite import Tier
from flashcore.report import guardrail_page, ladder_page, markup, overview_page, roofline_page, variant_page
from flashcore.report.cells import Cell
from flashcore.report.view import GUARDRAILS, INDEX, LADDER, ROOFLINE, Book, Figure, Page

if TYPE_CHECKING:
    from jinja2 import Environment

    from flashcore.gate.baseline import Baseline

HERE = Path(__file__).parent
#: Names the files that a render wrote, so that the next one replaces those and nothing else.
MARKER = ".flashcore-report"

_NAVIGATION = ((INDEX, "Overview"), (LADDER, "Ladder"), (ROOFLINE, "Roofline"), (GUARDRAILS, "Guardrails"))


def render(
    record: Record,
    folder: Path,
    *,
    single_file: bool = False,
    require: Tier = "static",
    today: date | None = None,
    baseline: Baseline | None = None,
) -> list[Path]:
    """Writes the report of ``record`` and returns its pages, the overview first.

    It is written beside ``folder`` and moved into place whole, so that a reader never meets half of it.

    Args:
        folder: made if it does not exist; an earlier report in it is replaced.
        single_file: one ``index.html`` that holds everything, for mailing.
        require, today, baseline: as in :func:`flashcore.gate.judge.judge`.

    Raises:
        UsageError: ``folder`` holds something that is not a report.
    """
    folder = folder.resolve()
    _replaceable(folder)
    book = Book(record, require, today, baseline)
    pages = [overview_page.page(book), ladder_page.page(book), roofline_page.page(book), guardrail_page.page(book)]
    pages += [variant_page.page(book, v) for v in record.suite.variants.values()]
    templates = _environment(single_file)
    files: dict[str, str] = {}
    style, script, plotly = _static("style.css"), _static("report.js"), _plotly()
    shell = templates.get_template("page.html.j2")
    common = {"record": record, "navigation": _NAVIGATION, "single": single_file}
    if single_file:
        bodies = [_body(templates, book, p) for p in pages]
        inlined = {"style": style, "script": _inline(script), "plotly": _inline(plotly)}
        files["index.html"] = shell.render(**common, **inlined, sections=bodies, page=pages[0], up="")
    else:
        for page in pages:
            up = "../" * page.name.count("/")
            body = _body(templates, book, page)
            files[f"{page.name}.html"] = shell.render(**common, sections=[body], page=page, up=up)
        files |= {"assets/style.css": style, "assets/report.js": script, "assets/plotly.min.js": plotly}
    replace_folder(folder, {**files, MARKER: "\n".join(sorted(files)) + "\n"})
    return [folder / name for name in files if name.endswith(".html")]


def _body(templates: Environment, book: Book, page: Page) -> dict[str, Any]:
    anchor = page.name.replace("/", "-")
    template = templates.get_template(page.body)
    # Autoescaped by the template itself: the shell must not escape it again.
    html = Markup(
        template.render(
            **page.context, record=book.record, here=page.name, anchor=anchor, up="../" * page.name.count("/")
        )
    )
    return {"anchor": anchor, "title": page.title, "html": html}


def _environment(single_file: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def href(target: str, up: str) -> str:
        """The address of a page, with its query (``guardrails?variant=x``) where scripts read it."""
        name, _, query = target.partition("?")
        if single_file:
            return f"#{name.replace('/', '-')}"
        return f"{up}{name}.html" + (f"?{query}" if query else "")

    def cells(row: Sequence[Cell], up: str, heading: bool = False) -> Markup:
        return markup.row(row, up, href, heading)

    def badge(cell: Cell, up: str) -> Markup:
        return markup.badge(cell, up, href)

    templates.globals.update(href=href, cells=cells, badge=badge, mark=markup.mark)
    templates.filters["figure_json"] = _figure_json
    return templates


def _figure_json(figure: Figure) -> Markup:
    """A figure for a ``<script type="application/json">``: nothing in it can end the element."""
    text = json.dumps({"data": figure.data, "layout": figure.layout}, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


def _inline(script: str) -> Markup:
    """A script for a ``<script>`` element: its text cannot end the element."""
    return Markup(script.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


# --- writing ------------------------------------------------------------------------------------


def _replaceable(folder: Path) -> None:
    """Refuses to replace what a render did not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder for the report, found a file\n  to mend: name another with -o")
    marker = folder / MARKER
    own = set(marker.read_text(encoding="utf-8").splitlines()) | {MARKER} if marker.is_file() else set()
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    foreign = sorted(found - own)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UsageError(
            f"{folder}: expected a new folder or an earlier report, found {foreign[0]}{more}\n"
            "  to mend: name another folder with -o"
        )
