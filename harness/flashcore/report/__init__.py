"""Renders a record as HTML: offline, browsable, the same bytes every time.

A pure function of the record and the day it is judged on. Pages read as plain tables where scripts
are off; with them tables sort and filter and the charts are drawn.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from flashcore.errors import UsageError
from flashcore.model.files import replace_folder
from flashcore.model.record import Record
from flashcore.model.suite import Tier
from flashcore.report import compare_page, frame, guardrail_page, markup, overview_page, roofline_page, variant_page
from flashcore.report.cells import Cell
from flashcore.report.view import COMPARE, GUARDRAILS, INDEX, ROOFLINE, Book, Page

if TYPE_CHECKING:
    from jinja2 import Environment

    from flashcore.gate.baseline import Baseline

HERE = Path(__file__).parent
#: Names the files that a render wrote, so that the next one replaces those and nothing else.
MARKER = ".flashcore-report"

#: Runs before the page is seen: where the address names a shape or a pair, nothing is shown of another.
_HIDE = 'if (/[?&](shape|focus|against)=/.test(location.search)) document.documentElement.classList.add("pending");\n'

_NAVIGATION = ((INDEX, "Overview"), (ROOFLINE, "Roofline"), (GUARDRAILS, "Guardrails"), (COMPARE, "Compare"))


def render(
    record: Record,
    folder: Path,
    *,
    single_file: bool = False,
    require: Tier = "static",
    today: date | None = None,
    baseline: Baseline | None = None,
    against: Record | None = None,
    runs: bool = False,
) -> list[Path]:
    """Writes the report of ``record`` and returns its pages, the overview first.

    It is written beside ``folder`` and moved into place whole, so that a reader never meets half of it.

    Args:
        folder: made if it does not exist; an earlier report in it is replaced.
        single_file: one ``index.html`` that holds everything, for mailing.
        require, today, baseline: as in :func:`flashcore.gate.judge.judge`.
        against: another record that the page *Compare* holds this one against.
        runs: whether the page of all runs lies beside ``folder``, to be linked.

    Raises:
        UsageError: ``folder`` holds something that is not a report.
    """
    folder = folder.resolve()
    _replaceable(folder)
    book = Book(record, require, today, baseline)
    pages = [overview_page.page(book), roofline_page.page(book), guardrail_page.page(book)]
    pages.append(compare_page.page(book, against))
    pages += [variant_page.page(book, v) for v in record.suite.variants.values()]
    templates = environment(single_file)
    files: dict[str, str] = {}
    style = static("style.css")
    shell = templates.get_template("page.html.j2")
    common = {"record": record, "navigation": _NAVIGATION, "single": single_file, "frame": frame.frame(book),
              "runs": runs and not single_file}  # fmt: skip
    bodies = [_body(templates, book, p, single_file) for p in pages]
    if single_file:
        inlined = [_inline(static(name)) for name in _scripts(bodies)]
        bodies[1:] = [{**body, "html": "", "packed": _packed(body["html"])} for body in bodies[1:]]
        allowed = policy(*inlined)
        files["index.html"] = shell.render(
            **common, style=style, scripts=inlined, policy=allowed, sections=bodies, page=pages[0], up=""
        )
    else:
        for page, body in zip(pages, bodies, strict=True):
            up = "../" * page.name.count("/")
            scripts = _scripts([body])
            files[f"{page.name}.html"] = shell.render(
                **common, scripts=scripts, policy=_policy("'self'"), sections=[body], page=page, up=up
            )
        files |= {f"assets/{name}": static(name) for name in ("style.css", *_scripts(bodies))}
        menu = [[v.name, v.is_peer] for v in record.suite.variants.values()]
        files["assets/variants.js"] = f"window.variants = {json.dumps(menu)};\n{_HIDE}"
    replace_folder(folder, {**files, MARKER: "\n".join(sorted(files)) + "\n"})
    return [folder / name for name in files if name.endswith(".html")]


def _body(templates: Environment, book: Book, page: Page, single: bool) -> dict[str, Any]:
    anchor = page.name.replace("/", "-")
    template = templates.get_template(page.body)
    # Autoescaped by the template itself: the shell must not escape it again.
    around = {"record": book.record, "here": page.name, "anchor": anchor, "single": single}
    html = Markup(template.render(**page.context, **around, up="../" * page.name.count("/")))
    return {"anchor": anchor, "title": page.title, "html": html, "packed": ""}


def environment(single_file: bool) -> Environment:
    """The templates, with what they call."""
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
        return (f"#{name.replace('/', '-')}" if single_file else f"{up}{name}.html") + (f"?{query}" if query else "")

    def cells(row: Sequence[Cell], up: str, heading: bool = False, shown: int | None = None) -> Markup:
        return markup.row(row, up, href, heading, shown)

    def badge(cell: Cell, up: str) -> Markup:
        return markup.badge(cell, up, href)

    templates.globals.update(href=href, cells=cells, badge=badge, mark=markup.mark)
    templates.filters |= {"table_json": _json, "bars_json": _bars_json, "breaks": _breaks}
    return templates


def _breaks(name: str) -> Markup:
    """A name that may be broken behind its underscores."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _bars_json(head: list[list[Any]], rows: Sequence[dict[str, Any]]) -> Markup:
    """What bars were drawn from, unrounded where the record has it."""
    return _json(head + [[r["name"], r["cell"].sort, r["parent"]] for r in rows])


def _json(given: Any) -> Markup:
    """Data for a ``<script type="application/json">``: nothing in it can end the element."""
    text = json.dumps(given, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def static(name: str) -> str:
    """A file that pages take along: style or script."""
    return (HERE / "static" / name).read_text(encoding="utf-8")


def _scripts(bodies: Sequence[dict[str, Any]]) -> list[str]:
    """What these pages need, in the order of loading: the chart library only where there is a chart."""
    html = "".join(body["html"] for body in bodies)
    needed = (
        ('class="plot', "plotly-basic.min.js"),
        ('<figure class="chart', "charts.js"),
        ('<figure class="chart roofline', "roofline.js"),
        ("data-compare", "charts.js"),
        ("data-compare", "compare.js"),
        ('data-verdicts="', "guardrails.js"),
        ("", "report.js"),
    )
    return list(dict.fromkeys(script for sign, script in needed if sign in html))


def _packed(html: str) -> str:
    """A page for a script to unpack: the same bytes every time."""
    return base64.b64encode(gzip.compress(html.encode(), mtime=0)).decode()


def policy(*scripts: str) -> str:
    """The content-security policy of a page that holds these scripts in itself."""
    return _policy(*(f"'sha256-{_hash(text)}'" for text in scripts))


def _policy(*scripts: str) -> str:
    """Nothing is fetched, and no script runs but our own. The chart library writes styles into its elements."""
    return f"default-src 'none'; script-src {' '.join(scripts)}; style-src 'self' 'unsafe-inline'; img-src data: blob:"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _inline(script: str) -> Markup:
    """A script for a ``<script>`` element: its text cannot end the element."""
    return Markup(script.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


# --- writing ------------------------------------------------------------------------------------


def _replaceable(folder: Path) -> None:
    """Refuses to replace what a render did not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder for the report, found a file\n  hint: name another with -o")
    marker = folder / MARKER
    own = set(marker.read_text(encoding="utf-8").splitlines()) | {MARKER} if marker.is_file() else set()
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    foreign = sorted(found - own)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UsageError(
            f"{folder}: expected a new folder or an earlier report, found {foreign[0]}{more}\n"
            "  hint: name another folder with -o"
        )
