"""Renders records as offline HTML, a pure function of the record and the day waivers are judged on.

The answers are readable as plain tables without scripts. Scripts unpack the rest, sort and filter tables, draw charts.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from flashcore import __version__
from flashcore.errors import UsageError
from flashcore.explain.resources import Part
from flashcore.gate.wording import sentence, summary
from flashcore.model.files import make_folder, replace_folder, write_atomically
from flashcore.model.text import abbreviated, count, share, significant, visible, whole
from flashcore.report import (
    budget_page,
    cells,
    overview_page,
    roofline_page,
    variant_page,
)
from flashcore.report.cells import Cell, status_mark
from flashcore.report.view import BUDGETS, SOURCE, Book, Page, gate_badge, origin_line, provenance

if TYPE_CHECKING:
    from jinja2 import Environment


HERE = Path(__file__).parent
#: Lists the files that a render wrote, so that the next one replaces only those.
MARKER = ".flashcore-report"

#: The script of all pages, on which the others build.
SCRIPT = "report.js"
#: Runs before the first paint: hides the page until its packed parts are there.
_HIDE = 'document.documentElement.classList.add("pending");\n'


def render(
    book: Book,
    folder: Path,
    *,
    single_file: bool = False,
    pages: Sequence[Callable[[Book], Page[Any] | None]] = (),
) -> list[Path]:
    """Writes the report of a record and returns the paths of its pages, the overview first.

    It is written next to ``folder`` and then moved into place, so that a reader never sees a partial report.

    Args:
        folder: created if missing; an earlier report in it is replaced.
        single_file: one ``index.html`` with all pages, for mailing.
        pages: plugins' pages: each function makes a page, or ``None`` if the record has nothing for it.

    Raises:
        UsageError: ``folder`` contains something that is not a report.
    """
    folder = folder.resolve()
    _check_replaceable(folder)
    roofline = roofline_page.page(book)
    every: list[Page[Any]] = [overview_page.page(book)]
    every += [roofline] if roofline.view.has_content else []
    every += [budget_page.page(book)] if book.judgement.verdicts else []
    every += [page for make in pages if (page := make(book)) is not None]
    every = [*{page.name: page for page in every}.values()]  # a plugin's page replaces the page of the same name
    every += [variant_page.page(book, v) for v in book.record.suite.variants.values()]
    files = _files(_Shell(book, every, single_file))
    replace_folder(folder, {**files, MARKER: "\n".join(sorted(files)) + "\n"})
    return [folder / name for name in files if name.endswith(".html")]


@dataclass(frozen=True)
class _Shell:
    """The pages of a record, with their frame."""

    book: Book
    every: Sequence[Page[Any]]
    single: bool

    @cached_property
    def pages(self) -> Sequence[Page[Any]]:
        """Those that are not a part of another."""
        return [page for page in self.every if not page.below]

    @cached_property
    def gate(self) -> Cell:
        return gate_badge(self.book.judgement, BUDGETS * bool(self.book.judgement.verdicts))

    @cached_property
    def line(self) -> str:
        return origin_line(self.book.record)

    @property
    def navigation(self) -> Sequence[tuple[str, str]]:
        """(name, label) of each page in the header: all but the variants'."""
        return [(p.name, p.title) for p in self.pages if "/" not in p.name]

    def body(self, page: Page[Any]) -> Markup:
        """A page without its frame and its parts."""
        variables = page.view if isinstance(page.view, Mapping) else {"view": page.view}
        return self.html(page.template, page, anchor=page.anchor, **variables)

    def html(self, template: str, page: Page[Any], **variables: Any) -> Markup:
        """Renders a template with the variables of all pages; ``up`` is the relative path to the report's folder."""
        return Markup(
            environment(self.single)
            .get_template(template)
            .render(
                shell=self,
                page=page,
                book=self.book,
                record=self.book.record,
                single=self.single,
                menu=dict(self.navigation),
                up="../" * page.name.count("/"),
                **variables,
            )
        )


@dataclass(frozen=True, slots=True)
class _Body:
    """A page without its frame."""

    anchor: str
    title: str
    html: str
    scripts: Sequence[str]


def _files(shell: _Shell) -> dict[str, str]:
    """The report's files by name, the first page first."""
    bodies = _bodies(shell)
    first = shell.pages[0]
    scripts = _scripts(shell.book, bodies)
    if shell.single:
        inline = [*map(_inline, scripts.values())]
        inlined = {"style": static("style.css"), "scripts": inline, "policy": policy(*inline)}
        return {"index.html": shell.html("page.html.j2", first, sections=bodies, **inlined)}
    files: dict[str, str] = {
        f"{page.name}.html": shell.html(
            "page.html.j2", page, scripts=_scripts(shell.book, [body]), sections=[body], policy=policy()
        )
        for page, body in zip(shell.pages, bodies, strict=True)
    }
    names = f"window.variants = {json.dumps([*shell.book.record.suite.variants])};\n{_HIDE}"
    assets = {"style.css": static("style.css"), "variants.js": names, **scripts}
    return files | {f"assets/{name}": text for name, text in assets.items()}


#: The shell whose pages a forked process renders.
_forked: list[_Shell] = []


def _bodies(shell: _Shell) -> list[_Body]:
    """The pages without their frames; if there are many, from forked processes, which share this one's data."""
    if len(shell.pages) <= 20 or sys.platform != "linux":
        return [_body(shell, page) for page in shell.pages]
    shell.book.sources  # noqa: B018, the listings are read once, not by each process
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(os.cpu_count(), get_context("fork"), _forked.append, (shell,)) as processes:
        return [*processes.map(_body_at, range(len(shell.pages)))]


def _body_at(index: int) -> _Body:
    (shell,) = _forked
    return _body(shell, shell.pages[index])


def _body(shell: _Shell, page: Page[Any]) -> _Body:
    whole = [page, *(part for part in shell.every if part.below == page.name)]
    scripts = [script for part in whole for script in part.scripts]
    return _Body(page.anchor, page.title, Markup().join(map(shell.body, whole)), scripts)


@functools.lru_cache(maxsize=8)
def environment(single_file: bool) -> Environment:
    """The templates, with the functions they call."""
    from jinja2 import (
        ChoiceLoader,
        Environment,
        FileSystemBytecodeCache,
        FileSystemLoader,
        FunctionLoader,
        StrictUndefined,
        Template,
        pass_context,
    )

    class Compiled(FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: Any) -> None:
            with contextlib.suppress(OSError):  # a full disk costs time only
                super().dump_bytecode(bucket)

    class Plain(Template):
        def render(self, *args: Any, **variables: Any) -> str:
            return visible(super().render(*args, **variables))

    templates = Environment(
        loader=ChoiceLoader([FileSystemLoader(HERE / "templates"), FunctionLoader(_template_of_plugin)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.template_class = Plain
    # Compiling the templates takes most of a small report's time. The folder is the user's own, below /tmp.
    with contextlib.suppress(OSError, RuntimeError):
        templates.bytecode_cache = Compiled(pattern=f"flashcore-{__version__}-%s")

    def linked(make: Callable[..., Any]) -> Callable[..., Any]:
        """A function of templates that makes links from the page that is rendered."""
        return pass_context(lambda page, *args, **named: make(partial(_href, single_file, page["up"]), *args, **named))

    templates.globals.update(
        href=linked(lambda href, target: href(target)),
        link=linked(cells.link),
        cells=linked(cells.row),
        badge=linked(cells.badge),
        mark=cells.mark,
        bar=cells.bar,
        value_cell=budget_page.value_cell,
        provenance=provenance,
        outcome=lambda status: cells.mark(status_mark(status), status),
        shade=_shade,
    )
    templates.filters |= {
        "json": _json,
        "data": lambda data: _packed(_json(data)),
        "packed": _packed,
        "breaks": cells.breaks,
        "counted": count,
        "significant": significant,
        "whole": whole,
        "headroom": share,
        "sentence": sentence,
        "summary": summary,
    }
    return templates


def _href(single_file: bool, up: str, target: str) -> str:
    """The address of a page, with its query (``budgets?variant=x``), which scripts read.

    Args:
        up: the relative path to the report's folder.
    """
    name, _, query = target.partition("?")
    page = f"#{name.replace('/', '-')}" if single_file else f"{up}{name}.html"
    return page + (f"?{query}" if query else "")


def _template_of_plugin(path: str) -> str | None:
    """A plugin's template, which its page names by absolute path."""
    return Path(path).read_text(encoding="utf-8") if Path(path).is_absolute() else None


def _shade(part: Part, parts: Sequence[Part]) -> str:
    """The style of a part of the time: stall reasons have one color in shades, in the bar and in its legend."""
    stalls = [x for x in parts if x.kind.startswith("stall")]
    return f";opacity:{max(1 - stalls.index(part) / 5, 0.4):g}" if part in stalls else ""


def _json(data: Any) -> Markup:
    """Data for a ``<script>``, escaped so that it cannot end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def static(name: str) -> str:
    """A style sheet or script of the pages, from ``static/`` or a plugin's absolute path. A gzipped one, the chart
    library, stays packed."""
    path = HERE / "static" / name
    packed = path.with_name(f"{path.name}.gz")
    if packed.exists():
        return f'window.library = "{base64.b64encode(packed.read_bytes()).decode()}";\n'
    return path.read_text(encoding="utf-8")


def write_standalone(template: Path, file: Path, *scripts: str, **variables: Any) -> Path:
    """Writes a page that needs no other file, and returns its path. Its template extends ``standalone.html.j2``;
    ``scripts`` are in addition to ``report.js``.

    Raises:
        WriteError: it cannot be written.
    """
    bodies = [*map(static, (SCRIPT, *scripts))]
    text = (
        environment(single_file=False)
        .get_template(str(template))
        .render(
            style=static("style.css"),
            scripts=map(Markup, bodies),
            policy=policy(*bodies),
            single=False,
            up="",
            **variables,
        )
    )
    make_folder(file.parent)
    write_atomically(file, text.encode())
    return file


def _scripts(book: Book, bodies: Sequence[_Body]) -> dict[str, str]:
    """File name → text of the scripts that these pages need, in loading order."""
    paths = dict.fromkeys((SCRIPT, *(s for body in bodies for s in body.scripts)))
    sources = {"sources.js": f'window.sources = "{_packed(_json([*book.sources]))}";\n'} if SOURCE in paths else {}
    return sources | {Path(path).name: static(path) for path in paths}


def _packed(html: str) -> str:
    """A page, or a part of one, compressed reproducibly, for a script to unpack."""
    return base64.b64encode(gzip.compress(html.encode(), 7, mtime=0)).decode()


def policy(*scripts: str) -> str:
    """A page's content-security policy: no requests, and only these inline scripts, or without them those of the
    report's folder, and the chart library, a blob, which needs inline styles."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{text}'" for text in hashes) or "'self'"
    return f"default-src 'none'; script-src {allowed} blob:; style-src 'self' 'unsafe-inline'; img-src data: blob:"


def _inline(script: str) -> Markup:
    """A script for a ``<script>`` element, escaped so that it cannot end the element."""
    return Markup(visible(script).replace("</script", "<\\/script").replace("<!--", "<\\!--"))


# --- writing ------------------------------------------------------------------------------------


def _check_replaceable(folder: Path) -> None:
    """Refuses to replace files that a render did not write."""
    if not folder.exists():
        return
    hint = "hint: give another folder with -o"
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder for the report, found a file\n  {hint}")
    marker = folder / MARKER
    written = set(marker.read_text(encoding="utf-8").splitlines()) if marker.is_file() else set()
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    foreign = sorted(present - written - {MARKER})
    if foreign:
        raise UsageError(
            f"{folder}: expected a new folder or an earlier report, found {abbreviated(foreign, 1)}\n  {hint}"
        )
