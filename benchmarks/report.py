"""The report's size, speed and readability in a real browser, compared with their limits.

    python -m benchmarks.report [--run ID] [--axe axe.min.js]

Renders a recorded run and a synthetic one of 2,000 cases; opens every kind of page in Chromium and measures loading,
long tasks, layout shift, nodes, labels that cover each other or are cut off, and what is asked of the network.
A time is the least of several, since a busy machine only adds to it.
axe-core is no part of this repository: `npm pack axe-core` brings it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore import report
from flashcore.errors import UsageError
from flashcore.gate import judge
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Record
from flashcore.records import lookup, store
from flashcore.report.view import Book
from tests import factory
from tests.browser import PROGRAM, Browser, Page, browser
from tests.support.compared import MORE
from tests.support.judged import rendered

DESK, PHONE, WIDE = (1280, 800), (390, 844), (1920, 1000)
LOADS, CLICKED = 3, 5
CASES = 2_000
MOST_NODES = 20_000  # above them axe-core takes minutes

#: What must hold → the most that it may be; megabytes are of a million bytes.
LIMITS = {
    "chart script, MB": 0.6,
    "the run, MB": 6.0,
    "the run as a single file, MB": 6.0,
    f"{CASES:,} cases, MB": 6.0,
    "rendering the run, s on idle processors": 5.0,
    f"rendering {CASES:,} cases, s on idle processors": 5.0,
    "load, overview and variant, ms": 500,
    "load, others, ms": 500,
    "longest task, ms": 300,
    "budgets page of 40,000 verdicts, MB": 1.0,
    "the same, slowest filter, ms": 100,
    "the same, slowest first sort of a column, ms": 100,
    "layout shift": 0.05,
    "nodes": 10_000,
    "labels covered or cut off": 0,
    "pages that scroll sideways": 0,
    "table of the overview wider than 1,280, px": 0,
    "network requests": 0,
    "console messages": 0,
    "bytes that differ when rendered twice": 0,
    "parts of the answer off the first screen": 0,
    "axe-core: serious or critical": 0,
}

MANY = 40_000
CLICKS = """() => {
  const took = (act) => {
    const from = performance.now();
    act();
    document.body.offsetHeight;
    return performance.now() - from;
  };
  const heads = Array.from(document.querySelectorAll(".verdicts thead button"));
  const sort = heads.map((b) => took(() => b.click()));
  const words = verdicts.form.elements.q;
  const filter = ["v7", "v7 s1", "v7 s1 fail", ""].map((text) => took(() => {
    words.value = text;
    words.dispatchEvent(new Event("input", { bubbles: true }));
  }));
  verdicts.box.scrollTop = 1e9;
  return { sort: Math.max(...sort), filter: Math.max(...filter), nodes: document.querySelectorAll("*").length,
           count: verdicts.rows.length };
}"""

LOADED = """(() => {
  const t = performance.getEntriesByType("navigation")[0];
  return { load: t.loadEventEnd, tasks: window.seen.tasks, shift: window.seen.shift,
           nodes: document.querySelectorAll("*").length };
})()"""

#: Visible labels of a chart that cover another label or lie outside of the chart.
LABELS = """(() => {
  const bad = [];
  const said = (holder) => holder.textContent.trim().slice(0, 40);
  const SKIPPED = "script, title, noscript, caption, figcaption, .tools";
  for (const figure of document.querySelectorAll("figure.chart")) {
    const frame = figure.getBoundingClientRect();
    if (!frame.width) continue;
    const boxes = [];
    const walker = document.createTreeWalker(figure, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const holder = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || holder.closest(SKIPPED)) continue;
      const range = document.createRange();
      range.selectNodeContents(walker.currentNode);
      const clipped = holder.scrollWidth > holder.clientWidth + 1 && getComputedStyle(holder).overflowX === "hidden";
      for (const b of range.getClientRects()) {
        if (b.width < 1 || b.height < 1) continue;
        const outside = b.left < frame.left - 1.5 || b.right > frame.right + 1.5;
        if (clipped || (outside && !holder.closest(".scroll"))) bad.push([figure.id, "cut off", said(holder)]);
        boxes.push([b, holder]);
      }
    }
    boxes.sort((a, b) => a[0].top - b[0].top);
    for (let i = 0; i < boxes.length; i++)
      for (let j = i + 1; j < boxes.length && boxes[j][0].top < boxes[i][0].bottom; j++) {
        const [a, b] = [boxes[i][0], boxes[j][0]];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // The height of a line holds room above and below its letters.
        if (across > 1.5 && down > 0.3 * Math.min(a.height, b.height))
          bad.push([figure.id, said(boxes[i][1]), said(boxes[j][1])]);
      }
  }
  return bad;
})()"""

ANSWER = """Array.from(document.querySelectorAll(".byshape:not([hidden]) [data-is]"), (e) => {
  const b = e.getBoundingClientRect();
  return [e.dataset.is, b.left >= 0 && b.top >= 0 && b.right <= innerWidth && b.bottom <= innerHeight];
})"""
PARTS = ("winner", "time", "floor", "limiter", "next")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
TABLE = """(() => {
  const box = document.querySelector(".byshape:not([hidden]) table.overview").parentElement;
  return box.scrollWidth - box.clientWidth;
})()"""
AXE = """axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
  .filter((v) => ["serious", "critical"].includes(v.impact))
  .map((v) => [v.id, v.impact, v.nodes.length, v.nodes[0].html.slice(0, 120)]))"""


def main(argv: Sequence[str] | None = None) -> int:
    """Prints each figure beside what it must be."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", help="a recorded run (default: the newest of the suite attention)")
    parser.add_argument("--axe", metavar="FILE", help="axe-core, as its package brings it: axe.min.js")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Renders, opens, measures.

    Raises:
        UsageError: there is no such run, or no Chromium.
    """
    if PROGRAM is None:
        raise UsageError("Chromium: expected one on PATH, found none\n  hint: install chromium")
    profiles = Path("profiles")
    timed = (run for run in lookup.measured_runs(profiles, "attention") if run.samples)
    record = store.read(lookup.find(profiles, options.run)) if options.run else next(timed, None)
    if record is None:
        raise UsageError(f"{profiles}: expected a recorded run of the suite attention, found none")
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        root = Path(folder)
        sizes = _rendered(record, root)
        winner = chromium_winner(chromium, root / "run")
        axe = Path(options.axe).read_text(encoding="utf-8") if options.axe else ""
        pages = [_looked_at(chromium, root / "run", name, axe) for name in _kinds(root / "run", winner)]
        single = _opened(chromium, root / "single" / "index.html")
        verdicts = verdicts_page(record, root / "verdicts")
        clicks = []
        for _ in range(CLICKED):
            with chromium.page(verdicts, "?without=none") as page:
                clicks.append(page.js(f"({CLICKS})()"))
        return {
            "machine": raw.machine(),
            "run": record.id,
            "cases": len(record.keys),
            "shapes": len(record.suite.shapes),
            "sizes": sizes,
            "pages": pages,
            "single": single,
            "verdicts": {"bytes": verdicts.stat().st_size, "clicks": clicks},
            "axe": bool(axe),
        }


def _rendered(record: Record, root: Path) -> dict[str, float]:
    def render(record: Record, name: str, single: bool = False) -> tuple[float, float]:
        began = _idle()
        rendered(record, root / name, single_file=single, pages=MORE)
        seconds = _idle() - began
        return sum(p.stat().st_size for p in (root / name).rglob("*") if p.is_file()) / 1e6, seconds

    run, seconds = render(record, "run")
    single, _ = render(record, "single", single=True)
    many, longer = render(factory.large_record(CASES), "many")
    _, again = render(record, "twice")
    differ = sum(p.read_bytes() != (root / "twice" / p.relative_to(root / "run")).read_bytes()
                 for p in (root / "run").rglob("*") if p.is_file())  # fmt: skip
    return {
        "chart script, MB": (root / "run/assets/plotly-basic.min.js").stat().st_size / 1e6,
        "the run, MB": run,
        "the run as a single file, MB": single,
        f"{CASES:,} cases, MB": many,
        "rendering the run, s on idle processors": min(seconds, again),
        f"rendering {CASES:,} cases, s on idle processors": longer,
        "bytes that differ when rendered twice": differ,
    }


def _idle() -> float:
    """The time that this process and those that it started would have taken on idle processors."""
    t = os.times()
    return t.user + t.system + (t.children_user + t.children_system) / (os.cpu_count() or 1)


def verdicts_page(record: Record, folder: Path) -> Path:
    """The budgets page of the record with :data:`MANY` verdicts, each with a value of its own."""
    judged = judge.judge(record)
    pattern = next(v for v in judged.limits if v.value is not None and v.unit)
    many = [
        dataclasses.replace(pattern, budget=f"b{b}", fact=f"fact_{b}", value=(i * 7919 % MANY) * 1.25e-3,
                            status="fail" if i % 97 == 0 else "pass", subject=CaseSubject(Case(f"v{v}", f"s{s}")))
        for i, (b, v, s) in enumerate(itertools.product(range(10), range(40), range(MANY // 400)))
    ]  # fmt: skip
    report.render(Book(record, dataclasses.replace(judged, verdicts=tuple(many))), folder)
    return folder / "budgets.html"


def chromium_winner(chromium: Browser, folder: Path) -> str:
    """The variant that the overview names first."""
    with chromium.page(folder / "index.html") as page:
        return str(page.js("document.querySelector('[data-is=winner]').textContent"))


def _kinds(folder: Path, winner: str) -> Iterator[str]:
    """Every page at the root, and a variant's."""
    yield from sorted(p.stem for p in folder.glob("*.html"))
    yield f"variant/{winner}"


def _opened(chromium: Browser, path: Path) -> dict[str, Any]:
    with chromium.page(path) as page:
        return {**page.js(LOADED), "console": page.console, "asked": page.requests}


def _looked_at(chromium: Browser, folder: Path, name: str, axe: str) -> dict[str, Any]:
    path = folder / f"{name}.html"
    measured: dict[str, Any] = {"page": name, "bytes": path.stat().st_size}
    measured["loads"] = [_opened(chromium, path) for _ in range(LOADS)]
    measured["labels"], measured["sideways"] = {}, {}
    for size in (PHONE, DESK, WIDE):
        with chromium.page(path, size=size) as page:
            if name == "index":  # as it opens: at other shapes a winner may have no parent
                measured.setdefault("first screen", {})[size[0]] = dict(page.js(ANSWER))
            _seen_whole(page)
            measured["labels"][size[0]] = _labels(page)
            measured["sideways"][size[0]] = page.js(SIDEWAYS)
            if name == "index" and size == DESK:
                measured["table"] = page.js(TABLE)
    measured["axe"] = {}
    for dark in (False, True) if axe else ():
        with chromium.page(path, dark=dark) as page:
            _seen_whole(page)
            page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            page.js(axe)
            large = measured["loads"][0]["nodes"] > MOST_NODES
            measured["axe"]["dark" if dark else "light"] = [["too large to be asked"]] if large else page.js(AXE)
    return measured


def _labels(page: Page) -> list[list[str]]:
    """Labels that cover each other, for every shape of the page, with all variants of the ladder shown."""
    shapes = page.js("Array.from(document.querySelector('[data-switch] select')?.options ?? [], (o) => o.value)")
    bad: list[list[str]] = []
    for shape in shapes or [None]:
        page.js(
            f"""(async () => {{
          const select = document.querySelector("[data-switch] select");
          select.value = {shape!r};
          select.dispatchEvent(new Event("change"));
          const shown = () => document.querySelector(".byshape:not([hidden])");
          while (shown() && shown().dataset.shape !== {shape!r}) await new Promise(requestAnimationFrame);
          for (const box of document.querySelectorAll(".byshape:not([hidden]) .all input")) box.checked = true;
        }})()"""
            if shape
            else "0"
        )
        _seen_whole(page)
        bad += page.js(LABELS)
    return bad


def _seen_whole(page: Page) -> None:
    """Charts are drawn as they come into view: all of them, then."""
    page.js("window.charts ? Promise.all(Array.from(document.querySelectorAll('.plot:not([data-drawn])'))"
            ".filter((p) => p.clientWidth).map((p) => charts.draw(p))) : 0")  # fmt: skip
    page.settle()


def figures(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Each thing that must hold, measured; ``None`` where it was not."""
    pages = results["pages"]
    made: dict[str, float | None] = dict(results["sizes"])

    def least(page: Mapping[str, Any], what: str) -> float:
        return float(min(load[what] for load in page["loads"]))

    def first(page: Mapping[str, Any]) -> bool:
        return bool(page["page"] == "index" or page["page"].startswith("variant/"))

    made["load, overview and variant, ms"] = max(least(p, "load") for p in pages if first(p))
    made["load, others, ms"] = max((least(p, "load") for p in pages if not first(p)), default=None)
    made["longest task, ms"] = max(min(max(load["tasks"], default=0) for load in p["loads"]) for p in pages)
    verdicts = results["verdicts"]
    made["budgets page of 40,000 verdicts, MB"] = verdicts["bytes"] / 1e6
    made["the same, slowest filter, ms"] = min(c["filter"] for c in verdicts["clicks"])
    made["the same, slowest first sort of a column, ms"] = min(c["sort"] for c in verdicts["clicks"])
    made["layout shift"] = max(load["shift"] for p in pages for load in p["loads"])
    made["nodes"] = max(load["nodes"] for p in pages for load in p["loads"])
    made["labels covered or cut off"] = sum(len(v) for p in pages for v in p["labels"].values())
    made["pages that scroll sideways"] = sum(v > 0 for p in pages for v in p["sideways"].values())
    opened = [*(load for p in pages for load in p["loads"]), results["single"]]
    made["network requests"] = sum(len(load["asked"]) for load in opened)
    made["console messages"] = sum(len(load["console"]) for load in opened)
    (overview,) = (p for p in pages if p["page"] == "index")
    made["table of the overview wider than 1,280, px"] = max(overview["table"], 0)
    seen = [overview["first screen"][width] for width in overview["first screen"] if str(width) in ("390", "1280")]
    made["parts of the answer off the first screen"] = sum(not s.get(part, False) for s in seen for part in PARTS)
    every = [v for p in pages for violations in p["axe"].values() for v in violations]
    made["axe-core: serious or critical"] = len(every) if results["axe"] else None
    return made


def table(results: Mapping[str, Any]) -> list[str]:
    """A line for each figure, then one for each page."""
    lines = [f"{results['machine']}; run {results['run']}, {results['cases']} cases at {results['shapes']} shapes"]
    made = figures(results)
    for what, limit in LIMITS.items():
        value = made[what]
        if value is None:
            lines.append(f"  {what:46} unmeasured   (at most {limit:g})")
            continue
        word = "holds" if value <= limit else "DOES NOT HOLD"
        lines.append(f"  {what:46} {value:10,.4g}   (at most {limit:g})  {word}")
    for p in results["pages"]:
        load, nodes = (min(q[what] for q in p["loads"]) for what in ("load", "nodes"))
        task = min(max(q["tasks"], default=0) for q in p["loads"])
        size = f"{p['bytes'] / 1e6:6.2f} MB"
        lines.append(f"  {p['page']:30} {size}  load {load:5.0f} ms  task {task:4.0f} ms  {nodes:6,.0f} nodes")
        lines += [f"    label {width}: {bad}" for width, bad_labels in p["labels"].items() for bad in bad_labels[:3]]
        lines += [f"    axe {mode}: {bad}" for mode, bad_labels in p["axe"].items() for bad in bad_labels]
    return lines


if __name__ == "__main__":
    sys.exit(main())
