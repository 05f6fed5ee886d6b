"""The report in a real browser: charts are drawn, tables sort and filter, nothing is fetched or fails."""

from __future__ import annotations

import csv as csv_module
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

import pytest

from benchmarks.report import CLICKS, LABELS, MANY, verdicts_page
from flashcore.features.reports import page as imported_page
from flashcore.gate.judge import judge
from flashcore.model.record import Facts
from flashcore.model.text import number
from flashcore.records import store
from tests import factory
from tests.browser import PROGRAM, Browser, browser
from tests.conftest import published_run
from tests.marks import embedded, marks
from tests.support.compared import MORE, contradicting
from tests.support.judged import rendered
from tests.support.launches import launches
from tests.support.pages import LISTED, TODAY, data, full

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="tool: needs Chromium and Playwright"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as result:
        yield result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("browser") / "r"
    rendered(full(), result, today=TODAY, pages=MORE)
    return result


def probe(chromium: Browser, page: Path, function: str, query: str = "") -> Any:
    """The result of a JavaScript function in the loaded page; the console must stay empty."""
    with chromium.page(page, query, size=(1280, 2400)) as shown:
        result = shown.js(f"({function})()")
        assert shown.console == [] and shown.requests == []
        return result


PAGES = ["index", "roofline", "budgets", "compare", "variant/fast", "variant/wrong", "variant/cudnn"]


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("name", PAGES)
def test_the_console_is_quiet_and_nothing_is_fetched(chromium: Browser, folder: Path, name: str, scripts: bool) -> None:
    with chromium.page(folder / f"{name}.html", scripts=scripts) as shown:
        assert shown.console == [] and shown.requests == []
        hidden = "Array.from(document.querySelectorAll('{}'), (e) => getComputedStyle(e).display === 'none')"
        assert scripts or all(shown.js(hidden.format(".scripted"))), "what needs scripts is offered without them"
        assert all(shown.js(hidden.format(".packed"))), "a packed part is shown as it lies in the file"


def test_a_closed_table_is_unpacked_when_it_is_opened(chromium: Browser, folder: Path) -> None:
    with chromium.page(folder / "variant/fast.html") as shown:
        tables = "Array.from(document.querySelectorAll('details .closed table caption'), (c) => c.textContent)"
        assert shown.js(tables) == []
        shown.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        shown.until(f"{tables}.length === 1")
        assert shown.js(tables)[0].startswith("Hardware counters: a column for each case")


def test_the_first_column_stays_in_place_while_the_rest_loads(chromium: Browser, folder: Path) -> None:
    whole = folder / "index.html"
    text = whole.read_text(encoding="utf-8")
    half = whole.with_name("half.html")
    half.write_text(text[: text.index('<div class="cell next"')], encoding="utf-8")
    places = []
    for path in (half, whole):
        with chromium.page(path) as shown:
            places.append(
                shown.js("JSON.stringify(document.querySelector('.first-screen .cell').getBoundingClientRect())")
            )
    assert places[0] == places[1]


DRAWN = """() => ({
  plots: document.querySelectorAll(".plot").length,
  visible: Array.from(document.querySelectorAll(".plot")).filter((p) => p.clientWidth).length,
  drawn: Array.from(document.querySelectorAll(".plot")).filter((p) => p.querySelector("svg.main-svg")).length,
  empty: Array.from(document.querySelectorAll(".plot[data-drawn]")).filter((p) => !p.querySelector("path")).length,
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
})"""


@pytest.mark.parametrize("name", ["roofline"])
def test_only_the_chosen_shape_is_drawn_and_nothing_is_fetched(chromium: Browser, folder: Path, name: str) -> None:
    with chromium.page(folder / f"{name}.html", size=(1280, 2400)) as shown:
        shown.until("document.querySelector('.plot[data-drawn] path') !== null")
        state = shown.js(f"({DRAWN})()")
        assert shown.console == [] and shown.requests == []
    assert state["empty"] == 0
    assert 0 < state["drawn"] <= state["visible"] == state["plots"]  # the other shapes' lie in templates
    assert state["wide"] <= 0, "the page itself scrolls sideways"


SORT = """() => {
  const table = document.querySelector(".byshape:not([hidden]) table[data-main]");
  const headings = Array.from(table.tHead.rows[0].cells);
  const index = headings.findIndex((c) => c.dataset.key === "time");
  const column = () => Array.from(table.tBodies[0].rows, (r) => r.cells[index].textContent);
  const seen = [];
  for (let i = 0; i < 2; i++) {
    headings[index].querySelector("button").click();
    seen.push([headings[index].getAttribute("aria-sort"), column(), location.search]);
  }
  return seen;
}"""


def test_a_column_sorts_as_numbers_with_the_unmeasured_last(chromium: Browser, folder: Path) -> None:
    (up, ascending, rising), (down, descending, falling) = probe(chromium, folder / "index.html", SORT)
    assert (up, down, rising, falling) == ("ascending", "descending", "?sort=time", "?sort=-time")
    recorded = [float(c.replace(",", "")) for c in ascending if c != "unmeasured"]
    assert recorded == sorted(recorded) and len(recorded) == 4
    assert [float(c.replace(",", "")) for c in descending if c != "unmeasured"] == recorded[::-1]
    for column in (ascending, descending):
        assert column[-2:] == ["unmeasured", "unmeasured"]


VISIBLE = """() => {
  const table = document.querySelector(".byshape:not([hidden]) table[data-main]");
  return {
    columns: Array.from(table.tHead.rows[0].cells).filter((c) => c.offsetWidth).map((c) => c.dataset.key),
    widths: Array.from(table.rows, (r) => Array.from(r.cells).filter((c) => c.offsetWidth || r.hidden).length),
    rows: Array.from(table.tBodies[0].rows).filter((r) => r.offsetHeight).map((r) => r.querySelector("a").innerText),
    boxes: Array.from(document.querySelectorAll("[name=col]:checked"), (b) => b.value),
    sideways: table.parentElement.scrollWidth - table.parentElement.clientWidth,
  };
}"""


def test_eight_columns_are_shown_and_others_can_be_chosen(chromium: Browser, folder: Path) -> None:
    usual = ["variant", "time", "over-parent", "over-reference", "above-floor", "correct", "limits", "limiter"]
    state = probe(chromium, folder / "index.html", VISIBLE)
    assert state["columns"] == usual and set(state["widths"]) == {8}
    assert state["sideways"] <= 0 and state["boxes"][: len(usual) - 1] == usual[1:]
    state = probe(chromium, folder / "index.html", VISIBLE, "?cols=limiter,registers")
    assert state["columns"] == [*usual[:-1], "registers"] and set(state["widths"]) == {8}
    state = probe(chromium, folder / "index.html", VISIBLE, "?q=wro&sort=variant")
    assert state["rows"] == ["wrong"]


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_the_first_screen_holds_the_answer(chromium: Browser, folder: Path, size: tuple[int, int]) -> None:
    with chromium.page(folder / "index.html", size=size) as shown:
        places = shown.js("""Object.fromEntries(Array.from(
          document.querySelectorAll(".byshape:not([hidden]) [data-is]"),
          (e) => {
            const box = e.getBoundingClientRect();
            return [e.dataset.is, [box.left, box.top, box.right, box.bottom]];
          }))""")
    assert set(places) == {"winner", "time", "floor", "limiter", "budgets", "next"}
    for name, (left, top, right, bottom) in places.items():
        if size[0] < 640 and name == "budgets":  # the badge at the top has them
            continue
        assert 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1], (name, places[name])


def test_a_table_that_is_whole_has_no_scrollbar(chromium: Browser, tmp_path: Path) -> None:
    """Not even where its height is no whole number of pixels, as in this run's report."""
    rendered(store.read(published_run("20261201T175658Z-d6aa")), tmp_path / "r", today=TODAY)
    with chromium.page(tmp_path / "r/index.html", size=(1280, 800)) as shown:
        scrolls = """Array.from(document.querySelectorAll(".scroll:not(.tall)")).filter(
          (e) => e.scrollHeight > e.clientHeight && getComputedStyle(e).overflowY !== "hidden").length"""
        assert shown.js(scrolls) == 0


#: The visible marks of the first chart with their places on the page, its labels, and its lines.
CHART = """() => {
  const plot = document.querySelector(".byshape:not([hidden]) .plot");
  const { left, top } = plot.getBoundingClientRect();
  const { xaxis, yaxis, _size } = plot._fullLayout;
  const within = (axis, at) => axis.d2p(at) >= 0 && axis.d2p(at) <= axis._length;
  const marks = plot.data.flatMap((t) => t.visible === true && t.customdata ? t.customdata.map((row, i) => ({
    name: row[0], level: row[3], x: left + _size.l + xaxis.d2p(t.x[i]), y: top + _size.t + yaxis.d2p(t.y[i]),
    inside: within(xaxis, t.x[i]) && within(yaxis, t.y[i]),
  })) : []);
  const labels = Array.from(plot.querySelectorAll(".annotation-text"), (e) => {
    const box = e.getBoundingClientRect();
    return [e.textContent, box.left - left, box.top - top, box.right - left, box.bottom - top];
  });
  return { marks, labels, size: [plot.clientWidth, plot.clientHeight], range: [...xaxis.range],
    shown: plot.data.filter((t) => t.visible === true).map((t) => t.name),
    wide: document.documentElement.scrollWidth - innerWidth };
}"""
DRAWN_CHART = "document.querySelector('.byshape:not([hidden]) .plot[data-drawn] .points path') !== null"


def views(shown: Any) -> list[str]:
    options = "Array.from(document.querySelectorAll('.byshape:not([hidden]) [name=view] option'), (o) => o.textContent)"
    return list(shown.js(options))


def view(shown: Any, index: int) -> dict[str, Any]:
    shown.js(f"""(() => {{
      const select = document.querySelector(".byshape:not([hidden]) [name=view]");
      select.value = "{index}";
      select.dispatchEvent(new Event("change"));
    }})()""")
    shown.settle()
    return dict(shown.js(f"({CHART})()"))


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False), (1920, False)])
def test_each_view_of_the_roofline_fits_its_marks_and_labels(
    chromium: Browser, folder: Path, width: int, dark: bool
) -> None:
    with chromium.page(folder / "roofline.html", size=(width, 900), dark=dark) as shown:
        shown.until(DRAWN_CHART)
        names = views(shown)
        assert [n for n in names if n.startswith("useful")] == [
            f"useful FLOPs, bytes of {level}" for level in ("DRAM", "L2", "L1", "all levels")
        ]
        for index, name in enumerate(names):
            chart = view(shown, index)
            assert len(chart["marks"]) >= 3 and all(m["inside"] for m in chart["marks"]), name
            levels = {m["level"] for m in chart["marks"]}
            assert levels == ({"dram", "l2", "l1"} if "all" in name else {name.rpartition(" ")[2].lower()})
            text = " | ".join(label for label, *_ in chart["labels"])
            for named in ("split", "slow", "cudnn", "fast"):
                assert named in text, (name, text)
            wide, tall = chart["size"]
            boxes = [box for _, *box in chart["labels"]]
            assert all(left >= 0 and top >= 0 and right <= wide and low <= tall for left, top, right, low in boxes), (
                name
            )
            for i, one in enumerate(boxes):
                for other in boxes[i + 1 :]:
                    apart = (
                        one[2] <= other[0] + 1
                        or other[2] <= one[0] + 1
                        or one[3] <= other[1] + 1
                        or other[3] <= one[1] + 1
                    )
                    assert apart, (name, width, chart["labels"])
            assert chart["wide"] <= 0
        assert shown.console == [] and shown.requests == []


def test_the_roofline_zooms_and_a_click_opens_the_variant(chromium: Browser, folder: Path) -> None:
    with chromium.page(folder / "roofline.html", size=(1280, 1000)) as shown:
        shown.until(DRAWN_CHART)
        shown.js("document.querySelector('.plot').scrollIntoView({ block: 'center' })")
        before = shown.js(f"({CHART})()")
        mark = next(m for m in before["marks"] if m["name"] == "split")
        shown.tab.mouse.move(mark["x"] - 90, mark["y"] - 70)
        shown.tab.mouse.down()
        shown.tab.mouse.move(mark["x"] + 60, mark["y"] + 60, steps=4)
        shown.tab.mouse.up()
        shown.until(f"({CHART})().range[0] > {before['range'][0]!r}")
        after = shown.js(f"({CHART})()")
        assert after["range"][1] < before["range"][1], "zoomed in"
        mark = next(m for m in after["marks"] if m["name"] == "split")
        assert mark["inside"]
        shown.tab.mouse.move(mark["x"], mark["y"])
        shown.until("document.querySelector('.hoverlayer').textContent.includes('MHz')")
        hover = shown.js("document.querySelector('.hoverlayer').textContent")
        for unit in ("TFLOP/s", "µs", "FLOP/B", "GB/s", "%"):
            assert unit in hover, hover
        shown.tab.mouse.click(mark["x"], mark["y"])
        shown.tab.wait_for_url("**/variant/split.html?shape=mission")
        assert shown.console == []


def test_the_legend_hides_and_shows_a_family(chromium: Browser, folder: Path) -> None:
    with chromium.page(folder / "roofline.html", size=(1280, 1000)) as shown:
        shown.until(DRAWN_CHART)
        shown.js("document.querySelector('.plot').scrollIntoView({ block: 'center' })")
        before = shown.js(f"({CHART})()")["shown"]
        shown.tab.locator(".legend .traces", has_text="references").locator(".legendtoggle").click()
        shown.until(f"({CHART})().shown.length < {len(before)}")
        hidden = {*before} - {*shown.js(f"({CHART})()")["shown"]}
        assert len(hidden) == 1 and hidden.pop().startswith("references")


def test_the_keyboard_reaches_every_mark_and_opens_its_page(chromium: Browser, folder: Path) -> None:
    with chromium.page(folder / "roofline.html") as shown:
        shown.until(DRAWN_CHART)
        names = [m["name"] for m in shown.js(f"({CHART})()")["marks"]]
        shown.tab.focus(".plot")
        told = []
        for _ in names:
            shown.tab.keyboard.press("ArrowRight")
            told.append(shown.js("document.querySelector('.plot').ariaLabel"))
        assert sorted(text.partition(" ")[0] for text in told) == sorted(names) and "TFLOP/s" in told[0]
        shown.tab.keyboard.press("Enter")
        shown.tab.wait_for_url(f"**/variant/{told[-1].partition(' ')[0]}.html?shape=mission")


@pytest.mark.parametrize("dark", [False, True])
def test_paper_has_the_whole_roofline_in_light_colors(chromium: Browser, folder: Path, dark: bool) -> None:
    with chromium.page(folder / "roofline.html", size=(1920, 1000), dark=dark) as shown:
        shown.until(DRAWN_CHART)
        shown.tab.emulate_media(media="print")
        shown.js("dispatchEvent(new Event('beforeprint'))")
        shown.settle()
        chart = shown.js(f"({CHART})()")
        assert all(m["inside"] and m["x"] < 720 for m in chart["marks"]), "within the width of a sheet"
        assert shown.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shown.tab.emulate_media(media="screen")
        shown.js("dispatchEvent(new Event('afterprint'))")
        shown.settle()
        assert shown.js("document.querySelector('.plot svg').clientWidth") > 1000


SAVED = """async () => {
  const plot = document.querySelector(".plot");
  const [svg, png] = [await charts.picture(plot, "svg"), await charts.picture(plot, "png")];
  const text = decodeURIComponent(svg.slice(svg.indexOf(",") + 1));
  return { svg: text, png: png.slice(0, 22), csv: charts.csv(plot) };
}"""


def test_the_roofline_is_saved_as_png_svg_and_csv(chromium: Browser, folder: Path) -> None:
    saved = []
    for dark in (False, True):
        with chromium.page(folder / "roofline.html", dark=dark) as shown:
            shown.until(DRAWN_CHART)
            saved.append(shown.js(f"({SAVED})()"))
            buttons = shown.js("Array.from(document.querySelectorAll('.tools button'), (b) => b.textContent)")
            assert buttons == ["PNG", "SVG", "CSV"]
    for made in saved:
        words = {t.text for t in ElementTree.fromstring(made["svg"]).iter() if t.tag.endswith(("text", "tspan"))}
        assert any("TFLOP/s" in (word or "") for word in words)
        assert made["png"] == "data:image/png;base64,"
        numbers = re.findall(r'(?<=id="defs-)\w{6}|(?<=scatter trace)\w{6}', made["svg"])
        made["svg"] = ElementTree.canonicalize(re.sub("|".join(numbers) or "$", "", made["svg"]))
    assert saved[0] == saved[1], "the light page's colors, also from a dark one"
    rows = list(csv_module.DictReader(io.StringIO(saved[0]["csv"])))
    wanted = marks(embedded((folder / "roofline.html").read_text(encoding="utf-8"), "roofline-mission"))
    assert len(rows) == len(wanted)
    for row, mark in zip(rows, wanted, strict=True):
        assert float(row["TFLOP/s"]) == mark["y"] and float(row["FLOP per byte"]) == mark["x"]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_header_of_a_phone_is_one_line(chromium: Browser, folder: Path, width: int) -> None:
    with chromium.page(folder / "roofline.html", size=(width, 844)) as shown:
        assert shown.js("document.querySelector('header.top').offsetHeight") < 56
        assert shown.js("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("single", [False, True])
def test_a_variant_is_found_by_a_part_of_its_name(chromium: Browser, tmp_path: Path, single: bool) -> None:
    rendered(full(), tmp_path / "r", single_file=single, today=TODAY)
    with chromium.page(tmp_path / "r" / "index.html", "#index?shape=long" if single else "?shape=long") as shown:
        shown.tab.fill("[role=search] input", "spl")
        shown.tab.keyboard.press("Enter")
        shown.until("document.readyState === 'complete' && /variant.split/.test(location.href)")
        assert "shape=long" in shown.js("location.href")
        assert shown.console == []


def test_the_keyboard_walks_a_table_and_reads_its_sources(chromium: Browser, folder: Path) -> None:
    with chromium.page(folder / "index.html") as shown:
        shown.tab.focus(".byshape:not([hidden]) .scroll:has(.overview)")
        seen = []
        for key in ("Enter", "ArrowRight", "ArrowDown", "ArrowLeft"):
            shown.tab.keyboard.press(key)
            at = "document.activeElement.closest('td, th')"
            seen.append(shown.js(f"[{at}.parentElement.rowIndex, {at}.cellIndex, inspector.textContent.trim()]"))
        assert [tuple(place) for *place, _ in seen] == [(1, 0), (1, 1), (2, 1), (2, 0)]
        assert "isolated_p50" in seen[1][2] and seen[1][2] != seen[2][2]
        shown.tab.keyboard.press("Escape")
        assert shown.js("inspector.hidden") and shown.console == []


@pytest.mark.parametrize("name", [*PAGES, "variant/split"])
def test_targets_have_at_least_24_pixels(chromium: Browser, folder: Path, name: str) -> None:
    small = """Array.from(document.querySelectorAll("main a, header a, button, summary, select, label"), (e) =>
      [e.textContent.trim(), e.offsetParent ? Math.max(...Array.from(e.getClientRects(), (b) => b.height)) : 24])
      .filter(([, height]) => height < 23.9)"""
    with chromium.page(folder / f"{name}.html") as shown:
        shown.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        shown.settle()
        assert shown.js(small) == []


def test_labels_that_cover_each_other_are_found(chromium: Browser, folder: Path) -> None:
    """bench-report's counts detect planted faults."""
    with chromium.page(folder / "index.html") as shown:
        assert shown.js(LABELS) == []
        shown.js("""(() => {
          const lane = document.querySelector(".byshape:not([hidden]) .lane");
          for (const text of ["one", "two"]) {
            const label = document.createElement("b");
            label.textContent = text;
            label.style.left = "40%";
            lane.append(label);
          }
        })()""")
        assert ["one", "two"] in [result[1:] for result in shown.js(LABELS)]


SHAPES = "Array.from(document.querySelectorAll('.byshape:not([hidden])'), (p) => p.dataset.shape)"
SWITCH = """() => {
  const select = document.querySelector("[data-switch] select");
  select.value = "long";
  select.dispatchEvent(new Event("change"));
}"""


def test_the_shape_switch_shows_and_draws_another_shape(chromium: Browser, folder: Path) -> None:
    with chromium.page(folder / "roofline.html") as shown:
        assert shown.js(SHAPES) == ["mission"]
        shown.js(f"({SWITCH})()")
        shown.until(f"{SHAPES}.includes('long') && {DRAWN_CHART}")
        assert shown.js(SHAPES) == ["long"] and shown.console == []


VERDICTS = """() => {
  const table = document.querySelector("table[data-verdicts]");
  const head = Array.from(table.tHead.rows[0].cells, (c) => c.dataset.key);
  const { form } = verdicts;
  const row = (at) => {
    const { cells } = verdicts.row(at, 0);
    return Object.fromEntries(head.map((key, i) => [key, cells[i].textContent]));
  };
  const rows = () => Array.from(verdicts.rows, row);
  const change = () => form.dispatchEvent(new Event("input", { bubbles: true }));
  const given = rows();
  form.elements.variant.value = "";
  form.elements.kind.value = "all";
  change();
  const every = rows();
  for (const box of form.querySelectorAll("[name=status]")) box.checked = box.value === "fail";
  change();
  const failed = { rows: rows(), said: form.querySelector("output").textContent, address: location.search };
  form.elements.clear.click();
  const button = table.tHead.rows[0].cells[head.indexOf("value")].querySelector("button");
  button.click();
  const up = Array.from(verdicts.rows, (at) => verdicts.get("value", at));
  button.click();
  return { given, every, failed, up, down: Array.from(verdicts.rows, (at) => verdicts.get("value", at)) };
}"""


def test_every_verdict_is_reachable_by_filter_and_order(chromium: Browser, folder: Path) -> None:
    state = probe(chromium, folder / "budgets.html", VERDICTS, "?variant=fast")
    judged = judge(full(), require="static", today=TODAY)
    assert {r["variant"] for r in state["given"]} == {"fast"}
    wanted = sorted((v.budget, v.subject.variant, v.limit, v.subject.shape or "any") for v in judged.verdicts)
    assert sorted((r["budget"], r["variant"], r["limit"], r["shape"]) for r in state["every"]) == wanted
    assert Counter(r["status"].split()[0] for r in state["every"])["fail"] == len(judged.failed) > 0
    failed = state["failed"]
    assert {r["status"] for r in failed["rows"]} == {"fail"} and len(failed["rows"]) == len(judged.failed)
    assert failed["said"] == f"{len(judged.failed)} of {len(wanted)} shown"
    assert "without=at_risk%2Cwaived%2Cunmeasured%2Cpass%2Copen" in failed["address"]
    for shown, way in ((state["up"], 1), (state["down"], -1)):
        numbers = [way * v for v in shown if v is not None]
        assert numbers == sorted(numbers) and len(numbers) == sum(v.value is not None for v in judged.limits)
        assert all(v is None for v in shown[len(numbers) :]), "what was not measured stays last"
    texts = {r["value"] for r in state["every"]}
    for v in judged.verdicts:
        if isinstance(v.value, float) and v.unit != "us":
            assert number(v.value, v.unit) in texts  # as the gate itself writes it


def test_the_focused_cell_of_the_results_stays_focused_when_rows_are_drawn_again(
    chromium: Browser, tmp_path: Path
) -> None:
    with chromium.page(verdicts_page(full(), tmp_path / "r"), "?without=none") as shown:
        shown.until("window.verdicts?.body.rows.length > 20")
        shown.js("verdicts.box.focus()")
        shown.tab.keyboard.press("Enter")
        for _ in range(60):
            shown.tab.keyboard.press("ArrowDown")
            shown.js("new Promise(requestAnimationFrame).then(() => 1)")
        row = "Number(document.activeElement.closest('tr')?.getAttribute('aria-rowindex'))"
        assert shown.js(row) == 62
        shown.js("verdicts.box.scrollTop = 1e6")
        shown.settle()
        assert shown.js("document.activeElement === verdicts.box"), "its row is no longer there"


def test_the_first_screen_leads_to_the_limits_that_it_counts(chromium: Browser, folder: Path) -> None:
    judged = judge(full(), require="static", today=TODAY)
    with chromium.page(folder / "index.html") as shown:
        failed = shown.js("document.querySelector('[data-is=budgets] a').getAttribute('href')")
        (more,) = shown.js(
            "Array.from(document.querySelectorAll('.failing li a.detail'), (a) => a.getAttribute('href'))"
        )[:1]
    for link in (failed, more):
        page, _, query = link.partition("?")
        budget = dict(parse_qsl(query)).get("q")
        with chromium.page(folder / page, f"?{query}") as shown:
            wanted = [v for v in judged.failed if budget in (None, v.budget)]
            assert shown.js("verdicts.rows.length") == len(wanted) > 0


def test_a_cell_of_the_matrix_leads_to_its_verdicts(chromium: Browser, folder: Path) -> None:
    judged = judge(full(), require="static", today=TODAY)
    with chromium.page(folder / "budgets.html") as shown:
        shown.js("document.querySelector('.matrix td.fail button').click()")
        query = dict(parse_qsl(shown.js("location.search.slice(1)")))
        rows = shown.js("verdicts.rows.length")
        assert rows == sum(v.subject.variant == query["variant"] and v.fact == query["fact"] for v in judged.limits) > 0
        shown.js("document.querySelector('.matrix button').focus()")
        shown.tab.keyboard.press("ArrowRight")
        assert shown.js("document.activeElement.closest('td').cellIndex") > 1
        assert shown.console == []


def test_forty_thousand_verdicts_are_all_there_and_few_are_drawn(chromium: Browser, tmp_path: Path) -> None:
    page = verdicts_page(full(), tmp_path / "r")
    assert page.stat().st_size < 1_000_000
    with chromium.page(page) as shown:
        words = shown.js("document.querySelector('.verdicts tbody').textContent")
        assert "fail" in words and "pass" not in words, "what passes is folded"
        assert 0 < shown.tab.pdf().count(b"/Type /Page\n") <= 20
    state = probe(chromium, page, CLICKS, "?without=none")
    assert state["count"] == MANY and state["nodes"] < 10_000


def test_what_was_chosen_stays_in_the_address_and_goes_along_with_links(chromium: Browser, folder: Path) -> None:
    with chromium.page(folder / "index.html", "?q=s") as shown:
        shown.js("""(() => {
          const select = document.querySelector("[data-switch] select");
          select.value = "long";
          select.dispatchEvent(new Event("change"));
        })()""")
        assert shown.js("location.search") == "?q=s&shape=long"
        shown.js("document.querySelector('nav a[href*=roofline]').click()")
        shown.until("location.pathname.endsWith('roofline.html') && window.flashcore !== undefined"
                    " && !document.documentElement.classList.contains('pending')")  # fmt: skip
        assert shown.js("location.search") == "?shape=long"
        visible = "Array.from(document.querySelectorAll('.byshape:not([hidden])'), (p) => p.dataset.shape)"
        assert set(shown.js(visible)) == {"long"}
        assert shown.console == []


@pytest.mark.parametrize("name", ["index", "roofline", "budgets", "variant/slow", "variant/{}"])
def test_a_phone_shows_names_of_120_characters_without_scrolling(chromium: Browser, tmp_path: Path, name: str) -> None:
    long = "v" * 120
    variants = [factory.variant("slow"), factory.variant(long, parent="slow"), factory.reference("p" * 120)]
    suite = factory.suite(variants, [factory.shape()], [factory.budget("registers", "b" * 120, maximum=128)])
    record = factory.record(suite, factory.static_facts(long, shapes=["mission"]))
    rendered(record, tmp_path / "r", today=TODAY)
    with chromium.page(tmp_path / "r" / f"{name.format(long)}.html", size=(390, 844)) as shown:
        assert shown.js("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_back_undoes_a_choice(chromium: Browser, folder: Path, tmp_path: Path) -> None:
    """The letters of one word are one step."""
    shape = "document.querySelector('.page.current .byshape:not([hidden]), .page .byshape:not([hidden])').dataset.shape"
    rendered(full(), tmp_path / "r", single_file=True, today=TODAY)
    for page, query in ((folder / "index.html", ""), (tmp_path / "r" / "index.html", "#index")):
        with chromium.page(page, query) as shown:
            shown.js("""(() => {
              const select = document.querySelector("[data-switch] select");
              select.value = "long";
              select.dispatchEvent(new Event("change"));
              const words = document.querySelector("form[data-controls]").elements.q;
              for (const text of ["w", "wr"]) {
                words.value = text;
                words.dispatchEvent(new Event("input", { bubbles: true }));
              }
            })()""")
            for address, wanted in (("shape=long&q=wr", "long"), ("shape=long", "long"), ("", "mission")):
                shown.until(
                    f"(location.search || location.hash).replace(/^[^?]*[?]|^#index$/, '') === '{address}'"
                    f" && {shape} === '{wanted}'"
                )
                assert shown.js("document.querySelector('form[data-controls]').elements.q.value") == address[13:]
                shown.js("void setTimeout(() => history.back(), 50)") if address else None


def test_the_single_file_keeps_what_was_chosen_behind_the_pages_name(chromium: Browser, tmp_path: Path) -> None:
    rendered(full(), tmp_path / "r", single_file=True, today=TODAY, pages=MORE)
    with chromium.page(tmp_path / "r" / "index.html", "#roofline?shape=long") as shown:
        seen = "Array.from(document.querySelectorAll('.page.current .byshape:not([hidden])'), (p) => p.dataset.shape)"
        assert set(shown.js(seen)) == {"long"}
        shown.js("document.querySelector('nav a[href*=budgets]').click()")
        shown.settle()
        assert shown.js("location.hash") == "#budgets?shape=long"
        assert shown.js("document.querySelector('.page.current').id") == "budgets"
        assert shown.console == []


# --- two side by side -----------------------------------------------------------------------------

VERDICT = """Array.from(
  document.querySelectorAll("[data-part=answer], .contradiction:not([hidden]), [data-part=times]"),
  (e) => e.innerText.replaceAll("\\u00a0", " ").replace(/\\s+/g, " "))"""
BESIDE = """Array.from(document.querySelectorAll(".diff tbody tr"),
  (r) => Array.from(r.cells, (c) => [c.className, c.innerText]))"""


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "c"
    rendered(contradicting(), folder, today=TODAY, pages=MORE)
    return folder


@pytest.mark.parametrize("shape", ["mission", "long"])
def test_the_script_shows_what_the_page_holds_of_every_pair(chromium: Browser, compared: Path, shape: str) -> None:
    page = compared / "compare.html"
    given = data(page.read_text(encoding="utf-8"), "compare")
    with chromium.page(page, f"?shape={shape}") as shown:
        for key, wanted in given["shapes"][shape]["pairs"].items():
            focus, against = (given["sides"][int(i)][0] for i in key.split())
            shown.js(f"flashcore.state.set({{ focus: '{focus}', against: '{against}' }})")
            message = shown.js(VERDICT)
            between, behind = wanted["answer"]
            assert message[0] == f"{focus} {between} {against}{behind}.".replace("\u00a0", " ")
            odd = [text for text in message if "contradict" in text]
            assert len(odd) == bool(wanted["contradiction"])
            times = [
                text
                for mode, row in zip(given["modes"], wanted["times"], strict=True)
                for text in (mode, *(x if isinstance(x, str) else "unmeasured" for x in row))
            ]
            assert message[-1].split() == " ".join(times).replace("\u00a0", " ").split()
        assert shown.console == []


def test_the_first_answer_reads_the_same_with_and_without_scripts(chromium: Browser, compared: Path) -> None:
    read = []
    for scripts in (True, False):
        with chromium.page(compared / "compare.html", scripts=scripts) as shown:
            read.append(shown.js(VERDICT)[0])
    assert read[0] == read[1] and " cudnn, isolated, 95 %" in read[0]


def test_the_source_of_both_is_whole_and_what_is_equal_is_aligned(chromium: Browser, compared: Path) -> None:
    with chromium.page(compared / "compare.html", "?focus=split&against=fast") as shown:
        rows = shown.js(BESIDE)
        assert "1 of 4 lines differ" in shown.js("document.querySelector('.diff caption').innerText")
        texts = [(row[1], row[3]) for row in rows]
        assert [(a[1], b[1]) for a, b in texts if a[0] == "same"] == [
            (t, t) for t in ("float x = 0;", "out[i] = x;", "return;")
        ]
        assert [(a, b) for a, b in texts if a[0] != "same"] == [
            (["gone", "x += a[i];"], ["new", "x = fma(a[i], b, x);"])
        ]
        assert rows[0][0][1] == "fast.cu:10" and rows[1][2][1] == "11"
    with chromium.page(compared / "compare.html", "?focus=split&against=cudnn") as shown:
        assert "No source was recorded of cudnn" in shown.js("document.querySelector('[data-part=source]').innerText")


def test_long_names_of_kernels_leave_their_figures_in_view(chromium: Browser, tmp_path: Path) -> None:
    record = launches((f"at::native::kernel<{'std::array<char*,3>,' * 12}>", 8, 9e3, ()), ("short", 8, 1e3, ()))
    rendered(record, tmp_path / "r", today=TODAY, pages=[imported_page.page])
    for width in (390, 1280):
        with chromium.page(tmp_path / "r" / "index.html", size=(width, 844)) as shown:
            assert shown.js("document.documentElement.scrollWidth") <= width
            rows = shown.js("""Array.from(document.querySelectorAll(".kernels tbody tr"),
              (row) => [row.offsetHeight, row.cells[2].getBoundingClientRect().right])""")
            assert all(height < 100 and right < width for height, right in rows)


LEANS = """Array.from(document.querySelectorAll("[data-part=counters] > .scroll tbody tr"), (row) => {
  const [bar, axis] = ["i", "u"].map((part) => row.querySelector(`.lean ${part}`).getBoundingClientRect());
  const width = row.querySelector(".lean").clientWidth / 2;
  return [row.cells[0].innerText, row.cells[4].innerText, bar.width / width, bar.right > axis.right + 1,
    getComputedStyle(row.querySelector(".lean i")).backgroundColor];
})"""


def test_differences_diverge_from_one_axis_the_largest_first(chromium: Browser, tmp_path: Path) -> None:
    """Better to the left and worse to the right in colors of their own; what is neither in a third."""
    record = contradicting()
    given = {
        "bank_conflicts": (100, 485), "l2_bytes": (1000, 400), "op_fmul": (10, 30), "dram_bytes": (100, 99),
        "stall_share_wait": (20.0, 50.0), "stall_share_barrier": (0.1, 1.0),
    }  # fmt: skip
    values = [(name, (("fast", was), ("split", now))) for name, (was, now) in given.items()]
    facts = [factory.fact(n, value, v, shape="mission") for n, both in values for v, value in both]
    record = replace(record, facts=Facts([*record.facts, *facts]))
    rendered(record, tmp_path / "r", today=TODAY, pages=MORE)
    with chromium.page(tmp_path / "r" / "compare.html", "?focus=split&against=fast") as shown:
        rows = {name: rest for name, *rest in shown.js(LEANS) if name in given}
        assert list(rows) == ["bank_conflicts", "op_fmul", "l2_bytes", "stall_share_wait"]
        assert [(row[0], row[2]) for row in rows.values()] == [
            ("worse", True), ("changed", True), ("better", False), ("worse", True)
        ]  # fmt: skip
        assert [row[1] for row in rows.values()] == pytest.approx([385 / 485, 2 / 3, 0.6, 0.3], abs=0.02)
        assert len({row[3] for row in rows.values()}) == 3
        others = shown.js("document.querySelector('[data-part=counters] details').textContent")
        assert "dram_bytes" in others and "stall_share_barrier" in others and "no difference" in others
        assert shown.console == []


def test_a_pair_is_kept_in_the_address_and_goes_along(chromium: Browser, compared: Path) -> None:
    with chromium.page(compared / "variant" / "split.html") as shown:
        shown.js(
            "Array.from(document.querySelectorAll('main a')).find((a) => a.innerText === 'Compare with fast').click()"
        )
        shown.until("location.pathname.endsWith('compare.html') && window.comparison !== undefined")
        assert dict(parse_qsl(shown.js("location.search.slice(1)"))) == {
            "focus": "split", "against": "fast", "shape": "mission"
        }  # fmt: skip
        shown.js("""(() => {
          const { against } = document.querySelector("form[data-pair]").elements;
          against.value = "slow";
          against.dispatchEvent(new Event("change", { bubbles: true }));
        })()""")
        assert "slow" in shown.js("document.querySelector('h1').innerText")
        shown.js("document.querySelector('nav a[href*=roofline]').click()")
        shown.until("location.pathname.endsWith('roofline.html') && window.flashcore !== undefined"
                    " && !document.documentElement.classList.contains('pending')")  # fmt: skip
        assert "focus=split&against=slow" in shown.js("location.search")
        shown.js("document.querySelector('nav a[href*=compare]').click()")
        shown.until("location.pathname.endsWith('compare.html') && window.comparison !== undefined")
        assert shown.js("[comparison.form.elements.focus.value, comparison.form.elements.against.value]") == [
            "split",
            "slow",
        ]
        assert shown.console == []


def test_in_the_single_file_too(chromium: Browser, tmp_path: Path) -> None:
    rendered(contradicting(), tmp_path / "r", single_file=True, today=TODAY, pages=MORE)
    with chromium.page(tmp_path / "r" / "index.html", "#compare?focus=fast&against=slow&shape=long") as shown:
        heading = "document.querySelector('.page.current h1').innerText"
        shown.until(f"{heading}.startsWith('fast')")
        assert "slow" in shown.js(heading)
        shown.js("location.hash = '#variant-split'")
        shown.until("document.querySelector('.page.current').id === 'variant-split'")
        shown.js("document.querySelector('.page.current a[href*=compare]').click()")
        shown.until(f"document.querySelector('.page.current').id === 'compare' && {heading}.startsWith('split')")
        for chosen in ("fast", "slow"):  # the second time the page of the roofline is there already
            shown.js(f"flashcore.state.set({{ focus: '{chosen}' }})")
            shown.js("document.querySelector('nav a[href*=roofline]').click()")
            shown.until(
                f"document.querySelector('.page.current').id === 'roofline' && location.hash.includes('focus={chosen}')"
            )
            shown.js("document.querySelector('nav a[href*=compare]').click()")
            shown.until(f"document.querySelector('.page.current').id === 'compare' && {heading}.startsWith('{chosen}')")
        assert shown.console == []


def test_another_run_is_chosen_by_its_id(chromium: Browser, tmp_path: Path) -> None:
    older = replace(contradicting(), id="20260101T000000Z-0000")
    rendered(contradicting(), tmp_path / "r", today=TODAY, pages=MORE, against=older)
    with chromium.page(tmp_path / "r" / "compare.html", "?focus=fast") as shown:
        assert shown.js("comparison.form.elements.against.value") == "fast@20260101T000000Z-0000"
        heading = shown.js("document.querySelector('[data-part=answer]').innerText.replaceAll('\u00a0', ' ')")
        assert "fast has 1.00 × the speed of fast (0000), isolated, no interval" in heading
        assert heading.endswith("times of two runs are not judged.")
        assert "not judged" in shown.js("document.querySelector('[data-part=times]').innerText")
        assert "are the same" in shown.js("document.querySelector('[data-part=source]').innerText")
        assert shown.console == []


def test_only_what_got_worse_is_shown_if_asked_for(chromium: Browser, tmp_path: Path) -> None:
    older = replace(factory.record(full().suite, times={"split": 10.0, "slow": 900.0}), id="20260101T000000Z-0000")
    rendered(full(), tmp_path / "r", today=TODAY, pages=MORE, against=older)
    rows = "Array.from(document.querySelectorAll('.changed tbody tr'), (r) => r.hidden ? '' : r.cells[0].innerText)"
    with chromium.page(tmp_path / "r" / "compare.html") as shown:
        assert {"split/mission", "slow/mission"} <= {*shown.js(rows)}
        shown.js("document.querySelector('[data-worse]').click()")
        assert {*shown.js(rows)} == {"", "split/mission", "split/long"}
        assert shown.console == []


def test_no_script_but_the_reports_own_runs(chromium: Browser, folder: Path) -> None:
    """Were something not escaped somewhere, the page's policy would still keep it from running."""
    text = (folder / "index.html").read_text(encoding="utf-8")
    bad = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
    planted = folder / "planted.html"
    planted.write_text(text.replace("</body>", f"{bad}</body>"), encoding="utf-8")
    with chromium.page(planted) as shown:
        assert shown.js("window.ran === undefined")
        assert any("Content Security Policy" in line for line in shown.console)
    planted.unlink()


CURRENT = "Array.from(document.querySelectorAll('.page.current'), (p) => p.id)"


def test_the_single_file_shows_one_page_at_a_time(chromium: Browser, tmp_path: Path) -> None:
    rendered(full(), tmp_path / "r", single_file=True, today=TODAY, pages=MORE)
    with chromium.page(tmp_path / "r" / "index.html") as shown:
        assert shown.js(CURRENT) == ["index"]
        shown.js("location.hash = '#variant-fast-counters'")
        shown.until("document.querySelector('#variant-fast table.bars')?.clientWidth > 0")
        assert shown.js(CURRENT) == ["variant-fast"] and shown.console == []


def test_source_and_machine_code_are_walked_by_keyboard(chromium: Browser, tmp_path: Path) -> None:
    exit_ = LISTED.instructions[-1]
    long = tuple(replace(exit_, offset=64 + 16 * i) for i in range(5000))
    listed = replace(LISTED, instructions=(*LISTED.instructions, *long))
    rendered(replace(full(), listings=(listed,)), tmp_path / "r", today=TODAY)
    marked = """Array.from(document.querySelectorAll(".panes > *"), (pane) =>
      Array.from(pane.querySelectorAll("[aria-selected]"), (e) => e.textContent.replace(/\\s+/g, " ").trim()))"""
    load = "70.0 00000 LDS R2, [R4] mio throttle 86 %, 64 bank conflicts"
    tile = "70.0 fast.cu:12 x = tile[i]; mio throttle 86 %, 64 bank conflicts"
    spill, add = "10.0 00010 STL [R1+0x8], R4 local memory 8 ×", "20.0 00020 FADD R2, R2, R3"
    line = "30.0 fast.cu:14 y += x; local memory 8 ×"
    call = "fast.cu:17 add(y, x); inlined code 20.0 %"
    with chromium.page(tmp_path / "r/variant/fast.html") as shown:
        assert shown.js("document.querySelectorAll('[role=option]').length") == 0, "built before it is opened"
        shown.tab.focus("details.code summary")
        shown.tab.keyboard.press("Enter")
        shown.until("document.querySelector('.panes') !== null")
        assert shown.js(marked) == [[tile], [load]], "the hottest line is chosen first"
        for key, wanted in (
            ("Tab", [[tile], [load]]),
            ("ArrowDown", [["fast.cu:13 // sum"], []]),
            ("ArrowDown", [[line], [spill, add]]),
            ("ArrowUp", [["fast.cu:13 // sum"], []]),
            ("n", [[tile], [load]]),
            ("n", [[line], [spill, add]]),
            ("p", [[tile], [load]]),
            ("Tab", [[tile], [load]]),
            ("ArrowDown", [[line], [spill]]),
            ("n", [[line], [spill]]),
            ("p", [[line, call], [add]]),
            ("Shift+Tab", [[line, call], [add]]),
            ("ArrowDown", [["fast.cu:15 }"], []]),
            ("ArrowDown", [["fast.cu:16"], []]),
            ("ArrowDown", [[call], [add]]),
            ("Tab", [[call], [add]]),
            ("Home", [[tile], [load]]),
            ("ArrowDown", [[line], [spill]]),
            ("p", [[line, call], [add]]),
        ):
            shown.tab.keyboard.press(key)
            assert shown.js(marked) == wanted, key
        active = shown.js(
            "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).textContent"
        )
        assert "FADD" in active
        assert shown.js("document.querySelectorAll('[role=option]').length") == 7 + 5004
        assert shown.console == [] and shown.requests == []
