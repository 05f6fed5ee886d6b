"""The report in a real browser: charts are drawn, tables sort and filter, nothing is fetched or fails."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashcore import report
from tests.report.test_report import TODAY, full

BROWSER = next((b for n in ("chromium", "chromium-browser", "google-chrome") if (b := shutil.which(n))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH: the pages cannot be looked at")

#: Runs in the page after everything has loaded; what it returns is left in the document for the test to read.
PROBE = """
<script>
addEventListener("load", () => setTimeout(async () => {
  const out = document.createElement("script");
  out.type = "application/json";
  out.id = "probe";
  try { out.textContent = JSON.stringify(await (%s)()); }
  catch (error) { out.textContent = JSON.stringify({ error: String(error) }); }
  document.body.append(out);
}, 1500));
</script>
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("browser") / "r"
    report.render(full(), found, today=TODAY)
    return found


def load(page: Path, profile: Path, query: str = "", *more: str) -> tuple[str, list[str]]:
    """The document as it stands after scripts ran, and what the console complained of."""
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
        f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=15000",
        "--window-size=1280,2400", *more, "--dump-dom", page.resolve().as_uri() + query,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def probe(page: Path, profile: Path, function: str, query: str = "") -> Any:
    """What a JavaScript function gives when it is called in the loaded page."""
    probed = page.with_name(f"probe-{page.name}")
    text = page.read_text(encoding="utf-8").replace("</body>", PROBE % function + "</body>")
    probed.write_text(text, encoding="utf-8")
    try:
        document, complaints = load(probed, profile, query)
    finally:
        probed.unlink()
    assert complaints == []
    found = re.search(r'<script type="application/json" id="probe">(.*?)</script>', document, re.DOTALL)
    assert found, "the page's script never ran"
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize(
    "name", ["index", "ladder", "roofline", "guardrails", "variant/fast", "variant/wrong", "variant/cudnn"]
)
def test_charts_are_drawn_and_the_console_is_quiet(folder: Path, tmp_path: Path, name: str) -> None:
    document, complaints = load(folder / f"{name}.html", tmp_path)
    assert complaints == []
    plots = len(re.findall(r'class="plot', document))
    drawn = len(re.findall(r'class="main-svg"', document))
    assert plots == 0 or drawn >= 1
    if name in ("index", "ladder", "roofline", "variant/fast"):
        assert plots and drawn


DRAWN = """() => ({
  plots: document.querySelectorAll(".plot").length,
  visible: Array.from(document.querySelectorAll(".plot")).filter((p) => p.clientWidth).length,
  drawn: Array.from(document.querySelectorAll(".plot")).filter((p) => p.querySelector("svg.main-svg")).length,
  empty: Array.from(document.querySelectorAll(".plot[data-drawn]")).filter((p) => !p.querySelector("path")).length,
  requests: performance.getEntriesByType("resource").map((r) => r.name).filter((n) => !n.startsWith("file:")),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
})"""


@pytest.mark.parametrize("name", ["index", "ladder", "roofline", "variant/split"])
def test_only_the_chosen_shape_is_drawn_and_nothing_is_fetched(folder: Path, tmp_path: Path, name: str) -> None:
    found = probe(folder / f"{name}.html", tmp_path, DRAWN)
    assert found["requests"] == []
    assert found["empty"] == 0
    assert 0 < found["drawn"] <= found["visible"] < found["plots"]
    assert found["wide"] <= 0, "the page itself scrolls sideways"


SORT = """() => {
  const table = document.querySelector(".byshape:not([hidden]) table.sortable");
  const index = Array.from(table.tHead.rows[0].cells).findIndex((c) => c.textContent.startsWith("isolated p50"));
  const heading = table.tHead.rows[0].cells[index];
  const column = () => Array.from(table.tBodies[0].rows, (r) => r.cells[index].textContent);
  const seen = [];
  for (let i = 0; i < 2; i++) {
    heading.querySelector("button").click();
    seen.push([heading.getAttribute("aria-sort"), column()]);
  }
  return seen;
}"""


def test_a_column_sorts_as_numbers_with_the_unmeasured_last(folder: Path, tmp_path: Path) -> None:
    (up, ascending), (down, descending) = probe(folder / "index.html", tmp_path, SORT)
    assert (up, down) == ("ascending", "descending")
    known = [float(c.replace(",", "")) for c in ascending if c != "unmeasured"]
    assert known == sorted(known) and len(known) == 4
    assert [float(c.replace(",", "")) for c in descending if c != "unmeasured"] == known[::-1]
    for column in (ascending, descending):
        assert column[-2:] == ["unmeasured", "unmeasured"]


SWITCH = """async () => {
  const select = document.querySelector("[data-switch] select");
  const shown = () => Array.from(document.querySelectorAll(".byshape:not([hidden])"), (p) => p.dataset.shape);
  const before = shown();
  select.value = "long";
  select.dispatchEvent(new Event("change"));
  await new Promise((done) => setTimeout(done, 1500));
  const plot = document.querySelector(".byshape:not([hidden]) .plot");
  return { before, after: shown(), drawn: Boolean(plot.querySelector("svg.main-svg")) };
}"""


def test_the_shape_switch_shows_and_draws_another_shape(folder: Path, tmp_path: Path) -> None:
    found = probe(folder / "index.html", tmp_path, SWITCH)
    assert found == {"before": ["mission"], "after": ["long"], "drawn": True}


FILTER = """() => {
  const form = document.querySelector("[data-filter]");
  const rows = () => Array.from(document.querySelectorAll("#" + form.dataset.filter + " tbody tr:not([hidden])"));
  const by = () => Array.from(new Set(rows().map((r) => r.dataset.variant))).sort();
  const change = () => form.dispatchEvent(new Event("input", { bubbles: true }));
  const given = by();
  form.elements.variant.value = "";
  change();
  const every = rows().length;
  for (const box of form.querySelectorAll("[name=status]")) box.checked = box.value === "fail";
  change();
  return { given, every, statuses: Array.from(new Set(rows().map((r) => r.dataset.status))),
           said: form.querySelector("output").textContent };
}"""


def test_verdicts_filter_and_the_address_chooses_a_variant(folder: Path, tmp_path: Path) -> None:
    found = probe(folder / "guardrails.html", tmp_path, FILTER, "?variant=fast")
    assert found["given"] == ["fast"]
    assert found["statuses"] == ["fail"]
    assert found["said"].endswith(f"of {found['every']} shown")


WATERFALL = """() => {
  const plot = document.querySelector(".byshape:not([hidden]) .plot");
  const table = document.querySelector(".byshape:not([hidden]) table.steps");
  return {
    bars: plot.data.flatMap((t) => t.y.map((name, i) => [name, t.base[i], t.base[i] + t.x[i]])),
    chosen: Array.from(table.querySelectorAll("tr.chosen th a"), (a) => a.textContent),
    findings: Array.from(table.tBodies[0].rows, (r) => r.cells[r.cells.length - 1].textContent),
  };
}"""


def test_the_waterfall_leads_from_the_baseline_to_the_best(folder: Path, tmp_path: Path) -> None:
    found = probe(folder / "ladder.html", tmp_path, WATERFALL)
    names = [name for name, _, _ in found["bars"]]
    assert names == found["chosen"] == ["slow", "fast", "split"]
    for (_, low, _), (_, _, high) in zip(found["bars"][:-1], found["bars"][1:], strict=True):
        assert high <= (low or 1e9)  # each bar hangs from the one before; the first stands on 0
    assert all(found["findings"])


SINGLE = """async () => {
  const current = () => Array.from(document.querySelectorAll(".page.current"), (p) => p.id);
  const seen = [current()];
  location.hash = "#variant-fast-counters";
  await new Promise((done) => setTimeout(done, 1500));
  seen.push(current());
  return { seen, drawn: Boolean(document.querySelector("#variant-fast svg.main-svg")) };
}"""


def test_the_single_file_shows_one_page_at_a_time(tmp_path: Path) -> None:
    report.render(full(), tmp_path / "r", single_file=True, today=TODAY)
    found = probe(tmp_path / "r" / "index.html", tmp_path / "profile", SINGLE)
    assert found == {"seen": [["index"], ["variant-fast"]], "drawn": True}
