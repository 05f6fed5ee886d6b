"""Each figure on a report's pages is one of its record, whose files are read here as plain JSON.

A page is read as items: a table's cell with what hovering shows, a text, or a row of a chart's data. A rule gives the
figures that an item may show: those of a fact about its row and column, else those of its case: its facts and its
parent's, and what the explain layer says of it. What ``PLAIN`` matches and the ticks of axes are not traced.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import itertools
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flashcore.chips import devices
from flashcore.explain import heat, predictions, roofline
from flashcore.explain.advice import advice
from flashcore.explain.ladder import ladder
from flashcore.explain.limiter import remedies, time_parts
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.gate.expand import headroom
from flashcore.gate.judge import judge
from flashcore.gate.wording import summary
from flashcore.model import groups
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.record import CaseSubject
from flashcore.model.suite import TIMING_MODES
from flashcore.model.text import exact, in_words, number, quantity, share, significant
from flashcore.records import store
from flashcore.report.case_view import QUANTILES
from flashcore.report.variant_page import TIMES
from tests import factory
from tests.conftest import published_run
from tests.support.judged import rendered

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

FIGURE = re.compile(r"(?<![\w.=])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
#: What is not traced: words of templates, counts of rows, identifiers, a machine's size, occupancy's charts.
PLAIN = re.compile(
    r"(?<!\d)95 %|(?:under|than) 5 %|near 100|<1\b|c\+\+17|16-byte|16 at least|exit \d|\d+ GB, \d+ MiB L2"
    r"|[\d,]+ (?:more|variants|cases|limits|results|goals|shapes|facts|kernels|smaller)\b"
    r"|[\d,]+ (?:waived|unmeasured|pass|at risk)\b"
    r"|\d+ of \d+ shapes? correct|[\d,]+ (?:required|optional) unmeasured|[\d,]+ of them required"
    r"|(?:of|by|Only the first of|failures: \d+ of) [\d,]+\b(?! %)|\([\d,]+:|All [\d,]+ lines next to [\d,]+"
    r"|(?:check|bench|profile|sanitize) [\d,]+|lines?: [\d.]+|^[\d.,]+ (?:registers|KiB of shared memory): .*"
    r"|^(?:next|now|on sm_\w+): .*|A/A [\d.]+|-\d{4},|source \w+|record schema \d|design \d+"
)
TICK = re.compile(r"[+-]?[\d.e+-]+(?: %)?")
#: Columns that are not called as their facts.
HEADINGS = {
    **{f"{heading} {unit}": [fact] for fact, heading, unit in TIMES},
    **{f"{mode}-p50": [f"{mode}_p50"] for mode in TIMING_MODES},
    "isolated-p90": ["isolated_p90"],
    "tensor": ["tensor_active"],
    "occupancy": ["theoretical_occupancy"],
    "achieved": ["achieved_occupancy"],
    "correct": ["max_error"],
    "spills": ["spill_store_bytes", "spill_load_bytes"],
}


def figures(text: str) -> set[str]:
    return set(FIGURE.findall(text))


@functools.cache
def forms(value: float, unit: str = "") -> frozenset[str]:
    """A value as pages write it."""
    if not math.isfinite(value):
        return frozenset()
    shown = [quantity(value, unit)[0], number(value, unit), exact(value, unit), in_words(value, unit), repr(value)]
    shown += [significant(value, digits) for digits in (2, 3, 4)] + [repr(float(f"{value:.6g}")), f"{int(abs(value))}"]
    shown += [f"{value:.0f} {value:.1f} {value:.2f} {value:.3f} {round(value, 2)}", f"{round(value, 1):.0f}"]
    return frozenset(figures(" ".join(shown)))


def leaves(data: Any) -> Iterator[Any]:
    """The texts and numbers in plain data and in what the explain layer gives."""
    if isinstance(data, (str, int, float)):
        yield data
    elif isinstance(data, dict) or dataclasses.is_dataclass(data):
        values = data.values() if isinstance(data, dict) else [getattr(data, f.name) for f in dataclasses.fields(data)]
        yield from itertools.chain.from_iterable(map(leaves, values))
    elif isinstance(data, (tuple, list)):
        yield from itertools.chain.from_iterable(map(leaves, data))


def of(*data: Any, unit: str = "") -> set[str]:
    """The figures of all that lies in the data."""
    return set().union(*(figures(x) if isinstance(x, str) else forms(x, unit) for x in leaves(data)))


@dataclass
class Item:
    """The content of one place on a page: its text, titles and sort value.

    Args:
        row: the cells before it; of data, the row itself.
        link: the variant and shape that were linked last.
    """

    kind: str
    texts: list[str]
    page: str
    shape: str
    caption: str
    column: str
    row: tuple[Any, ...]
    link: tuple[str, str]

    @property
    def shown(self) -> set[str]:
        texts = (text.strip() for text in self.texts)
        return figures("\n".join(PLAIN.sub("", x) for x in texts if self.kind != "text" or not TICK.fullmatch(x)))


class Reader(HTMLParser):
    """The items of a page, or of the part that it shows at a shape."""

    def __init__(self, html: str, page: str, shape: str = "") -> None:
        super().__init__()
        self.items: list[Item] = []
        self.page, self.shape, self.link, self.caption, self.sort, self.listing = page, shape, ("", ""), "", "", ""
        self.heads: list[str] = []
        self.row: list[str] = []
        self.inside: list[str] = []
        self.cell: Item | None = None
        self.script: dict[str, str] = {}
        self.first: tuple[str, str] | None = None
        self.feed(html)

    def item(self, kind: str, text: str, column: str = "") -> Item:
        made = Item(kind, [text], self.page, self.shape, self.caption, column, tuple(self.row), self.link)
        self.items.append(made)
        return made

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        a = {name: value or "" for name, value in attrs}
        self.listing = a.get("data-name", self.listing)
        if tag == "div" and "data-shape" in a:
            self.shape = a["data-shape"]
        if linked := re.search(r"variant/(\w+)\.html(?:\?shape=(\w+))?", a.get("href", "")):
            self.link = linked[1], linked[2] or ""
            self.first = self.first or self.link
        if tag == "table":
            self.caption, self.heads = "", []
        elif tag == "tr":
            self.row, self.first = [], None
        elif tag == "script":
            self.script = a
        elif tag in ("td", "th"):
            head = "thead" in self.inside
            column = a.get("data-key", "") if head else (self.heads[len(self.row) :] or [""])[0]
            self.cell, self.sort = self.item("head" if head else "cell", "", column), a.get("data-sort", "")
        elif self.cell and tag in ("br", "span"):
            self.cell.texts[0] += "\n" * (tag == "br")
            self.sort = "" if "badge" in a.get("class", "") else self.sort
        extra = [a[name] for name in ("title", "aria-label") if a.get(name)]
        if self.cell:
            self.cell.texts += extra
        else:
            for text in extra:
                self.item("text", text)
        if tag in ("caption", "thead", "script", "style", "head"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self.cell:
            text = self.cell.texts[0].strip()
            self.cell.texts += [self.sort] * text[:1].isdigit()
            self.cell.link = self.first or self.link
            (self.heads if self.cell.kind == "head" else self.row).append(self.cell.column or text)
            if self.cell.kind == "cell":
                self.row[-1] = text
            self.cell = None
        if self.inside and tag == self.inside[-1]:
            self.inside.pop()
        if tag == "table":
            self.caption, self.row = "", []

    def handle_data(self, data: str) -> None:
        place = self.inside[-1] if self.inside else ""
        if place == "script":
            self.scripted(data, self.script)
        elif place == "caption":
            self.caption += data
        elif place not in ("style", "head"):
            if self.cell:
                self.cell.texts[0] += data
            elif data.strip():
                self.item("text", data)

    def scripted(self, data: str, script: dict[str, str]) -> None:
        if script.get("type") == "text/plain":
            data = gzip.decompress(base64.b64decode(data)).decode()
        if "packed" in script.get("class", ""):
            self.items += Reader(data, self.page, script.get("data-shape", self.shape)).items
        elif script.get("type"):
            parsed = json.loads(data)
            if isinstance(parsed, list):
                self.rows(" ".join(map(str, parsed[0])), parsed[1:])
            elif "code" in parsed:
                offsets, *code = parsed["code"]
                places = (f"{offset:05x}" for offset in itertools.accumulate(offsets))
                files, numbers, *lines = parsed["lines"]
                at = (f"{file}:{number}" for file, number in zip(files, numbers, strict=True))
                rows = [*zip(at, *lines, strict=True), *zip(places, *code[:3], strict=True)]
                self.rows(f"code {self.listing}", rows)
            elif "layout" in parsed:
                for trace in parsed["data"]:
                    marks = zip(trace.get("customdata", ()), trace.get("text", ()), strict="customdata" in trace)
                    self.rows("point", ([*mark, text] for mark, text in marks))
                    self.rows("roof" if trace.get("legendrank") else "label", [[trace.get("name", "")]])
                for button in parsed["layout"].get("updatemenus", [{"buttons": []}])[0]["buttons"]:
                    texts = (label["text"] for label in button["args"][1]["annotations"])
                    labels = [(re.match("<b>(.*?)</b>", text), text) for text in texts]
                    self.rows("label", ([name[1], text] for name, text in labels if name))
                    self.rows("roof", ([text] for name, text in labels if not name))
            else:
                names = ("budget", "variant", "arch", "shape", "kernel", "launch", "value", "headroom", "reason")
                self.rows("verdict", zip(*(unpacked(*parsed["columns"][name]) for name in names), strict=True))

    def rows(self, caption: str, rows: Iterable[Any]) -> None:
        for row in rows:
            made = self.item("data", json.dumps(row, ensure_ascii=False))
            made.caption, made.row = caption, tuple(row)


def unpacked(values: list[Any], which: list[int]) -> list[Any]:
    return [values[at] for at in which]


class Trace:
    """The figures of a run."""

    def __init__(self, folder: Traversable) -> None:
        def read(name: str) -> Any:
            return json.loads(gzip.decompress((folder / name).read_bytes()))

        self.run, self.samples, facts = (
            json.loads((folder / "run.json").read_bytes()),
            {"/".join(place): times for *place, times in read("samples.json.gz")},
            read("facts.json.gz"),
        )
        self.variants, self.shapes = self.run["suite"]["variants"], self.run["suite"]["shapes"]
        texts = [x for x in leaves([self.run, [spec.why for spec in FACTS.values()]]) if isinstance(x, str)]
        self.literals = {line.strip() for text in texts for line in (text, *text.splitlines())}
        self.facts: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for at, name, value, unit, _, detail in facts["facts"]:
            about = store.stored_subject(facts["subjects"][at])
            variant, shape = about.variant, about.shape
            note = of(facts["details"][detail] if isinstance(detail, int) else detail)
            shown = of(value, unit=unit) | note | of([float(n) for n in note if "," not in n])
            self.facts[name, variant, shape or ""] |= shown
            self.facts["", variant, shape or ""] |= shown
        # What the explain layer says.
        self.record = store.read(folder)
        self.readings = Readings(self.record)
        device, measured = devices.find(self.record.gpu), self.record.roofs
        self.roofs = of(roofline.roofs(device, None, measured), self.record.gpus)
        self.bounds = {b.subject: b for b in roofline.case_bounds(self.record)}
        self.points = groups.grouped((p.subject.case, p) for p in roofline.points(self.record))
        for mhz in {p.clock_mhz for points in self.points.values() for p in points}:
            scaled = [roofline.at_clock(roof, mhz) for roof in measured]
            sheet = {roof.resource: roof.value for roof in roofline.roofs(device, mhz)}
            self.roofs |= of(scaled, [*sheet.values()], [100 * r.value / sheet.get(r.resource, 1) for r in scaled], mhz)
        every = self.record.suite.shapes.values()
        rows = self.record.suite.rows([s for s in every if {"bench", "profile"} & {*s.stages}])
        self.same = {s.name: row for row in rows for s in row}
        judgement = judge(self.record)
        self.general = figures(f"{summary(judgement)} {self.run['created'][:10]} 0 1") | of(
            self.run["stages"], self.run["environment"]
        )
        self.verdicts: dict[Any, set[str]] = defaultdict(set)
        budgets = {b.name: b for b in self.record.suite.budgets}
        for v in judgement.verdicts:
            room = headroom(budgets.get(v.budget), v.value)
            shown = of(v, share(room or 0), f"{min(99, int(100 * (v.progress or 0)))} 100")
            for key in ((v.subject.variant, v.fact), v.subject.variant, v.budget, v.fact):
                self.verdicts[key] |= shown
        alike = Counter((v.budget, v.status, v.value, v.reason) for v in judgement.limits)
        alike += Counter((v.budget, v.status, v.value, "") for v in judgement.limits if v.reason)
        for (budget, *_), count in alike.items():
            self.verdicts[f"limits of {budget}"] |= of(f"{count:,}", count)
        for use in judgement.waivers:
            self.verdicts[use.waiver.budget] |= of(use)

    def __hash__(self) -> int:
        return id(self)

    def fact(self, name: str, variant: str, shape: str) -> set[str]:
        """The figures of a fact of a case, of its variant, and of their kernels."""
        return self.facts[name, variant, shape] | self.facts[name, variant, ""]

    @functools.cache  # noqa: B019, a run is traced once
    def case(self, variant: str, shape: str) -> set[str]:
        """The figures of a case: of its facts and its parent's, and of what the explain layer says of it."""
        parent = self.variants.get(variant, {}).get("parent") or ""
        result = self.fact("", variant, shape) | self.fact("", parent, shape) | self.verdicts[variant]
        result |= of(
            self.shapes.get(shape, {}).get("params", {}), [p for p in self.run["plans"] if p["variant"] == variant]
        )
        suite, readings = self.record.suite, self.readings
        if variant not in suite.variants or shape not in suite.shapes:
            return result
        v, s, subject = suite.variants[variant], suite.shapes[shape], CaseSubject(Case(variant, shape))
        parts, bounds = time_parts(readings, Case(variant, shape)), self.bounds.get(subject)
        cures = [remedies(readings, shape).get(x.kind, [])[:3] for x in parts.limiters]
        result |= of(parts, cures, advice(readings, Case(variant, shape)), bounds, v.predictions)
        result |= of(
            [predictions.outcome_of(readings, p, v, p.shape or shape) for p in v.predictions],
        )
        for gap in bounds.gaps if bounds else ():
            result |= of(gap.ratio)
        points = [p for x in self.same.get(shape, (s,)) for p in self.points.get(Case(variant, x.name), ())]
        flop = [p.flop for p in points]
        result |= of([max(flop, default=1) / min(flop, default=1), min(flop, default=1) / max(flop, default=1)])
        for p in points:
            shares = [100 * (share or 0) for share in (p.share, p.share_of_measured)]
            result |= of(p, p.intensity, p.tflops, p.gbps, shares)
        for x in (subject, CaseSubject(Case(parent, shape))):
            result |= of([share(self.record, x) for share in (roofline.shared_busy, roofline.l1_busy)])
        for shapes in ((s,), self.same.get(shape, (s,))):
            result |= self.ladder(tuple(x.name for x in shapes))[variant]
        return result

    @functools.cache  # noqa: B019, a run is traced once
    def ladder(self, shapes: tuple[str, ...]) -> dict[str, set[str]]:
        """The figures of the ladder at identical shapes by variant: speed-ups, step, floor, fastest reference."""
        row = Row(self.readings, [self.record.suite.shapes[name] for name in shapes])
        steps = ladder(row)
        two = {name: self.readings.levels(row.shape.time, case) for name, case in row.cases.items()}
        marks = of(
            row.times.get(row.reference or ""),
            two.get(row.reference or ""),
            steps.floor and [steps.floor.floor_us, steps.floor.ratio],
        )
        result: dict[str, set[str]] = defaultdict(set)
        for name in row.cases:
            others = (self.record.suite.variants[name].parent, row.reference, self.record.suite.baseline)
            result[name] = marks | of(two[name], [row.over(name, other) for other in others])
        for step in steps.steps:
            result[step.variant.name] |= of(step.finding, step.speedup)
        return result

    @functools.cache  # noqa: B019, a run is traced once
    def listing(self, variant: str, shape: str) -> dict[str, set[str]]:
        """The figures of source lines and instructions by place."""
        result: dict[str, set[str]] = defaultdict(set)
        for x in self.record.listings:
            if x.subject.case == Case(variant, shape):
                alone = zip(x.instructions, heat.alone(x), strict=True)
                places = [(f"{i.offset:05x}", line) for i, line in alone]
                places += [(f"{line.file}:{line.number}", line) for line in heat.in_order(x)]
                for place, line in places:
                    offsets = " ".join(f"{i.offset:05x}" for i in line.instructions)
                    result[place] |= of(line, place, offsets, len(line.instructions))
                result[""] |= of([line.share for _, line in places], heat.shares(heat.in_order(x)))
        return result

    # --- rules ------------------------------------------------------------------------------------------

    def allowed(self, item: Item) -> set[str]:
        """The figures that an item may show."""
        lines = (part.strip() for text in item.texts for part in (text, text.partition(": ")[2]))
        result = set().union(*(figures(line) for line in lines if line in self.literals))
        rule = next((rule for start, rule in RULES.items() if item.caption.startswith(start)), None)
        more = rule(self, item) if rule else self.named(item)
        return result | (more or self.usual(item))

    def named(self, item: Item) -> set[str]:
        """The figures of the facts that its column or its row names, at the shape that these name."""
        if item.kind == "data":
            return set()
        places = [*item.column.split()[:1], *(x.split(", ")[0] for x in item.row[:2])]
        names = HEADINGS.get(item.column) or [x for x in places if x in FACTS][:1]
        variant, shape = (item.page, "") if item.page in self.variants else item.link
        shape = next((x for x in places if x in self.shapes), shape)
        return set().union(*(self.fact(name, variant, shape) for name in names))

    def usual(self, item: Item) -> set[str]:
        """The figures of the case that an item is about, and of the budgets that it names."""
        near = (item.shape,) * (item.page in self.variants)
        names = (item.page, *(item.row if item.kind == "data" else item.row[:1]), *near, *item.link, item.shape)
        variant, shape = (
            next((x for x in names if isinstance(x, str) and x in of), "") for of in (self.variants, self.shapes)
        )
        budgets = {item.caption.partition(":")[0], item.texts[0].split(" ")[0], *item.row[:2]} & self.verdicts.keys()
        same = self.same.get(shape, ()) if item.kind == "text" else ()  # a text is of the row, at any shape like it
        shapes = {shape, *(x.name for x in same)}
        cases = (self.case(name, at) for name in ([variant] if variant else self.variants) for at in shapes)
        return self.general.union(*cases, *(self.verdicts[x] for x in budgets))

    def sampled(self, item: Item) -> set[str]:
        mode = item.row[0].replace(" ", "_")
        times = sorted(self.samples[f"{item.page}/{item.shape}/{mode}"])
        ranks = [min(len(times) * percent // 100, len(times) - 1) for percent in QUANTILES]
        return of([times[rank] for rank in ranks], len(times), [*QUANTILES])

    def heat(self, item: Item) -> set[str]:
        here = self.listing(item.page, item.shape)
        if place := re.search(r" (\S+:\d+|no line is known), \d+ instr", " ".join((*item.row, item.texts[0]))):
            return here[place[1].replace("no line is known", ":0")]
        return here[""] | self.listing(self.variants[item.page]["parent"] or "", item.shape)[""]


#: By the beginning of a table's caption, or the heading of a chart's data.
RULES: dict[str, Callable[[Trace, Item], set[str]]] = {
    "Warp samples": Trace.heat,
    "Ceilings": lambda t, i: t.roofs,
    "code": lambda t, i: (
        t.listing(i.page, i.caption.split(" ")[-1])[i.row[0]] | figures(f"{i.row[0]} {i.row[1]}" * (":" in i.row[0]))
    ),
    "verdict": lambda t, i: t.fact(i.row[0][1], i.row[1], i.row[3] or "") | t.verdicts[i.row[1], i.row[0][1]],
    "From ": Trace.sampled,
    **dict.fromkeys(("Predicted and", "Counters that", "Accepted misses"), Trace.usual),
    "Limits with": lambda t, i: set[str]().union(
        *(t.verdicts[key] for x in (*i.row[:2], i.texts[0]) for key in (x, f"limits of {x}"))
    ),
    "Worst result": lambda t, i: t.verdicts["".join(i.row[:1]), i.column.replace(" ", "_")],
    "roof": lambda t, i: t.roofs.union(*(t.case(v, s.name) for v in t.variants for s in t.same[i.shape])),
}


def pages(run: Traversable, folder: Path) -> tuple[Trace, list[Item]]:
    """A run's figures, and the items of its rendered pages that show some."""
    pages = rendered(store.read(run), folder)
    items = (item for page in pages for item in Reader(page.read_text(encoding="utf-8"), page.stem).items)
    return Trace(run), [item for item in items if item.kind != "head" and item.shown]


@functools.cache
def of_a_run(folder: Path) -> tuple[Trace, list[Item]]:
    return pages(published_run(RUN), folder / "run")


def untraced(trace: Trace, items: Iterable[Item]) -> list[tuple[str, list[str], set[str]]]:
    return [(x.page, x.texts, more) for x in items if (more := x.shown - trace.allowed(x))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


#: With times, counters, samples and listings.
RUN = "20261201T143237Z-8188"


@pytest.mark.slow
def test_each_figure_of_a_run_is_the_records(folder: Path) -> None:
    trace, items = of_a_run(folder)
    assert untraced(trace, items) == []
    assert sum(len(item.shown) for item in items) > 25_000


def test_each_figure_without_a_gpu_is_the_records(folder: Path) -> None:
    (folder / "bare").mkdir()
    store.write(
        factory.bare_record(facts=factory.static_facts("fast"), environment=factory.environment(gpu=None)),
        folder / "bare",
    )
    assert untraced(*pages(folder / "bare", folder / "static")) == []


@pytest.mark.slow
def test_a_changed_digit_is_noticed(folder: Path) -> None:
    trace, items = of_a_run(folder)
    chosen = random.Random(25)
    changed = []
    for item in chosen.choices(items, [len(item.shown) for item in items], k=400):
        places = [(n, match) for n, text in enumerate(item.texts) for match in FIGURE.finditer(text)]
        at, figure = chosen.choice(places)
        digit = chosen.choice([n for n in range(*figure.span()) if figure.string[n].isdigit()])
        other = str((int(figure.string[digit]) + chosen.randint(1, 9)) % 10)
        texts = [*item.texts]
        texts[at] = texts[at][:digit] + other + texts[at][digit + 1 :]
        changed.append(replace(item, texts=texts))
    assert len(untraced(trace, changed)) >= 0.8 * len(changed)
