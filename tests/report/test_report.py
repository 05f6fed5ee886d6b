"""The report: the same bytes twice, everything escaped, nothing unmeasured that reads as a number."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from flashcore import report
from flashcore.errors import UsageError, WriteError
from flashcore.model import files
from flashcore.model.record import Artifact, CaseOutcome, Facts, Origin, Record, Roof
from flashcore.model.suite import Prediction
from tests import factory

TODAY = date(2026, 1, 2)
EVIL = "<script>alert('x')</script>\"'&"
PAGES = ("index.html", "ladder.html", "roofline.html", "guardrails.html")


class Page(HTMLParser):
    """What a test asks of a page: ids, addresses, scripts, and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.rows: list[list[tuple[str, str, str]]] = []  # (class, title, text)
        self.text: list[str] = []
        self._open = False
        self._in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {k: v or "" for k, v in attrs}
        self._in_script = tag == "script"
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "script":
            self.scripts.append("")
        for name in ("href", "src"):
            if name in given:
                self.links.append(given[name])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append((given.get("class", ""), given.get("title", ""), ""))
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False
        if tag in ("td", "th"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
            return
        self.text.append(data)
        if self._open:
            cls, title, text = self.rows[-1][-1]
            self.rows[-1][-1] = (cls, title, text + data)

    def row(self, name: str) -> list[tuple[str, str, str]]:
        """The first row whose first cell reads so."""
        return next(r for r in self.rows if r and r[0][2].split()[:1] == [name])


def render(record: Record, folder: Path, *, single_file: bool = False) -> dict[str, str]:
    """The pages' texts by path."""
    pages = report.render(record, folder, today=TODAY, single_file=single_file)
    return {p.relative_to(folder.resolve()).as_posix(): p.read_text(encoding="utf-8") for p in pages}


def full() -> Record:
    """A record with a bit of everything: failures, stale cases, waivers, goals, predictions, measured roofs."""
    variants = [
        factory.variant("slow", roof="fp32"),
        factory.variant(
            "fast",
            parent="slow",
            config={"M": 32},
            predictions=(
                Prediction("isolated_p50", 221.0, 100.0, "us", "FlashCore design 001", "L4", "mission"),
                Prediction("registers", None, 96.0, "1", "FlashCore design 000"),
                Prediction("phase_share_softmax", None, 45.0, "pct", "FlashCore design 001", "L4", "mission"),
            ),
        ),
        factory.variant("split", parent="fast"),
        factory.variant("broken", archs=("sm_89", "sm_90a"), unsupported={"sm_80": "needs sm_89"}),
        factory.variant("wrong", parent="fast"),
        factory.peer("cudnn"),
    ]
    shapes = [factory.shape(), factory.shape("long", factory.LONG)]
    budgets = [
        factory.budget("registers", "few_registers", maximum=90),
        factory.budget("theoretical_occupancy", "occupancy", minimum=30),
        factory.goal("tensor_active", "tensor_goal", minimum=60),
        factory.goal("isolated_p50", "latency_l4", maximum=40, stretch=30, device="L4"),
    ]
    waivers = [factory.waiver("few_registers", 96, variants=("fast",), reason="two accumulators live at once")]
    suite = factory.suite(variants, shapes, budgets, waivers, baseline="slow")
    phases = {"phase_share_load": 12.5, "phase_share_softmax": 52.0, "phase_share_other": 35.5}
    record = factory.record(
        suite,
        [
            factory.fact("shared_efficiency", None, "fast", shape="mission", note="not on GH100"),
            *factory.facts_of(phases, "fast", shape="mission"),
            factory.fact("phase_share_combine", None, "split", shape="mission", note="ncu gave no samples"),
            factory.fact("phase_share_other", None, "split", shape="mission", note="ncu gave no samples"),
        ],
    )
    gone = ("broken", "wrong")
    facts = [f for f in record.facts if f.subject.variant not in gone or f.name.startswith("formula")]
    return dataclasses.replace(
        record,
        facts=Facts(facts),
        artifacts=tuple(map(_failed, record.artifacts)),
        outcomes=tuple(map(_became, record.outcomes)),
        samples={k: v for k, v in record.samples.items() if k.split("/")[0] not in gone},
        stale={"split/long": "the kernel's code changed"},
        joined=(Origin("20260101T000000Z-0001", factory.GPU, "sm_90a", "12 facts"),),
        roofs=(Roof("l2", 5500.0, "GB/s", "measured", "NVIDIA H200", note="read kernel"),),
    )


def _failed(a: Artifact) -> Artifact:
    if a.variant != "broken" or a.status != "ok":
        return a
    return dataclasses.replace(a, status="failed", message='k.cu(12): error: "foo<T>" is undefined\n1 error')


def _became(o: CaseOutcome) -> CaseOutcome:
    if o.variant == "broken":
        return dataclasses.replace(o, status="skipped", reason="did not compile for sm_90a")
    if o.variant == "wrong":
        status = "failed" if o.stage == "check" else "skipped"
        return dataclasses.replace(o, status=status, reason="NaN in the output")  # type: ignore[arg-type]
    return o


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return render(full(), tmp_path_factory.mktemp("report") / "r")


# --- the folder -----------------------------------------------------------------------------------


def test_pages_are_the_overview_first_and_one_for_each_variant(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "r"
    found = report.render(full(), folder)
    assert [p.relative_to(folder).as_posix() for p in found[: len(PAGES)]] == list(PAGES)
    assert {p.stem for p in found[len(PAGES) :]} == set(full().suite.variants)
    assert (folder / "assets/plotly.min.js").stat().st_size > 1_000_000
    assert [p.name for p in folder.parent.iterdir()] == ["r"]  # nothing of the writing is left


@pytest.mark.parametrize("single_file", [False, True])
def test_same_bytes_twice(tmp_path: Path, single_file: bool) -> None:
    def contents(folder: Path) -> dict[str, bytes]:
        report.render(full(), folder, single_file=single_file, today=TODAY)
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    first = contents(tmp_path / "one")
    assert first == contents(tmp_path / "another")
    assert first == contents(tmp_path / "one")  # over itself


def test_an_earlier_report_is_replaced_whole(tmp_path: Path) -> None:
    report.render(full(), tmp_path / "r")
    report.render(factory.record(), tmp_path / "r", single_file=True)
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [report.MARKER, "index.html"]


def test_what_is_no_report_is_left_alone(tmp_path: Path) -> None:
    report.render(factory.record(), tmp_path / "r")
    (tmp_path / "r" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"found thesis\.txt"):
        report.render(factory.record(), tmp_path / "r")
    assert (tmp_path / "r" / "thesis.txt").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="found a file"):
        report.render(factory.record(), tmp_path / "file")


def test_a_render_that_fails_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = render(factory.record(), tmp_path / "r")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_swap", full_disk)
    with pytest.raises(WriteError, match="No space"):
        report.render(full(), tmp_path / "r")
    assert {n: (tmp_path / "r" / n).read_text(encoding="utf-8") for n in before} == before
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


# --- the pages ------------------------------------------------------------------------------------


def links_of(text: str) -> Iterator[str]:
    yield from Page(text).links


def test_links_resolve(pages: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "r"
    render(full(), folder)
    for name, text in pages.items():
        for link in links_of(text):
            address = urlsplit(link)
            if address.scheme == "data":
                continue
            assert not address.scheme and not address.netloc, f"{name} reaches out to {link}"
            target = (folder / name).parent / unquote(address.path) if address.path else folder / name
            assert target.resolve().is_file(), f"{name}: {link} leads nowhere"
            if address.fragment:
                assert address.fragment in Page(target.read_text(encoding="utf-8")).ids


def test_links_of_the_single_file_resolve(tmp_path: Path) -> None:
    page = Page(render(full(), tmp_path / "r", single_file=True)["index.html"])
    assert {f"variant-{n}" for n in full().suite.variants} < set(page.ids)
    for link in page.links:
        assert link.startswith("data:") or (link.startswith("#") and link[1:] in page.ids), link


@pytest.mark.parametrize("single_file", [False, True])
def test_ids_are_unique(tmp_path: Path, single_file: bool) -> None:
    for name, text in render(full(), tmp_path / "r", single_file=single_file).items():
        ids = Page(text).ids
        assert len(ids) == len(set(ids)), name


@pytest.mark.parametrize("single_file", [False, True])
def test_what_users_write_is_escaped(tmp_path: Path, single_file: bool) -> None:
    variants = [
        factory.variant("slow", technique=EVIL, tolerance_reason=EVIL, config={"A": EVIL}, source=EVIL),
        factory.variant("fast", parent="slow"),
        factory.peer("cudnn", technique=EVIL),
    ]
    waivers = [factory.waiver("few", 96, reason=EVIL)]
    suite = factory.suite(variants, [factory.shape()], [factory.budget("registers", "few", maximum=9, source=EVIL)],
                          waivers, title=EVIL, notes=(EVIL,))  # fmt: skip
    record = factory.record(suite, [factory.fact("throttle", EVIL, "fast", shape="mission"),
                                    factory.fact("l2_hit", None, "fast", shape="mission", note=EVIL)])  # fmt: skip
    record = dataclasses.replace(
        record,
        command=EVIL,
        environment=factory.environment(gpu=EVIL, host=EVIL),
        outcomes=(*record.outcomes, factory.outcome("fast", "mission", "bench", "failed", EVIL)),
        artifacts=(*record.artifacts, factory.artifact("slow", "sm_80", "failed", EVIL)),
        stale={"cudnn/mission": EVIL},
        roofs=(Roof("l2", 5500.0, "GB/s", "measured", EVIL, note=EVIL),),
    )
    for name, text in render(record, tmp_path / "r", single_file=single_file).items():
        scripts = [s for s in Page(text).scripts if "alert('x')" in s]
        # Inside data for the charts it is text; a script of its own would be exactly this.
        assert all(s.lstrip().startswith("{") for s in scripts), name
        assert "<script>alert" not in text, name
        assert EVIL not in text, name


def test_every_chart_has_its_words_and_its_data(pages: dict[str, str]) -> None:
    drawn = 0
    for name, text in pages.items():
        for attributes in re.findall(r'<div [^>]*class="plot"[^>]*>', text):
            drawn += 1
            assert re.search(r'aria-label="[^"]{20,}"', attributes), name
            data = re.search(r'data-figure="([^"]+)"', attributes)
            assert data and data[1] in Page(text).ids
    assert drawn >= 10


def test_tables_have_captions_and_scroll_by_themselves(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        assert text.count("<table") == text.count("<caption>") == len(re.findall(r'class="scroll', text)), name
        assert text.count("<h1>") == 1, name


# --- numbers --------------------------------------------------------------------------------------


def test_no_cell_is_blank(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        for row in Page(text).rows:
            for cls, _, content in row:
                assert content.strip(), f"{name}: a blank cell of class {cls!r} in {row}"


def test_unmeasured_has_a_reason_and_is_no_number(pages: dict[str, str]) -> None:
    seen = 0
    for name, text in pages.items():
        for row in Page(text).rows:
            for cls, title, content in row:
                if "missing" in cls.split():
                    seen += 1
                    assert content.strip() == "unmeasured" and title, f"{name}: {row}"
                elif content.strip() == "unmeasured":
                    assert "number" not in cls.split(), f"{name}: {row}"
    assert seen > 20


def test_an_unmeasured_counter_is_never_zero(pages: dict[str, str]) -> None:
    cls, title, text = Page(pages["variant/fast.html"]).row("shared_efficiency")[1]
    assert (cls, text) == ("missing", "unmeasured")
    assert "not on GH100" in title


def test_a_zero_is_shown_as_measured(pages: dict[str, str]) -> None:
    cls, title, text = Page(pages["variant/fast.html"]).row("spill_instructions")[1]
    assert cls == "number" and text == "0"
    assert "from ncu" in title and "fast/mission" in title


def test_the_ladder_says_what_failed_in_plain_sight(pages: dict[str, str]) -> None:
    page = Page(pages["index.html"])
    words = " ".join(" ".join(page.text).split())
    assert "wrong : failed in check: NaN in the output" in words
    assert "split : stale: the kernel's code changed" in words
    assert page.row("wrong")[1][2] == "wrong"
    assert page.row("fast")[1][2] == "right"
    p50 = page.row("fast")[3]
    assert p50[2].startswith("40.") and "isolated_p50" in p50[1] and "fast/mission" in p50[1]
    assert page.row("cudnn")[0][2] == "cudnn peer"
    assert page.row("slow")[0][2] == "slow baseline"


def test_fastest_stands_first(pages: dict[str, str]) -> None:
    names = [r[0][2].split()[0] for r in Page(pages["index.html"]).rows if len(r) == 20][1:7]
    assert names == ["cudnn", "split", "fast", "slow", "broken", "wrong"]


def test_a_failed_build_shows_the_compilers_words(pages: dict[str, str]) -> None:
    assert "error: &#34;foo&lt;T&gt;&#34; is undefined" in pages["variant/broken.html"]
    assert "needs sm_89" in pages["variant/broken.html"]


def test_predictions_stand_beside_what_was_measured(pages: dict[str, str]) -> None:
    row = [c[2] for c in Page(pages["variant/fast.html"]).row("isolated_p50")]
    assert row[1:4] == ["221.0 µs", "100.0 µs", "L4"]
    assert row[6].startswith("40") and row[7].startswith("40.")


def test_the_next_block_is_drawn_beside_its_words(pages: dict[str, str]) -> None:
    text = pages["variant/fast.html"]
    stairs = re.search(r"limited by [^<]*registers fewer give.*?<div class=\"stairs\">(.*?)</div>", text, re.DOTALL)
    assert stairs and stairs[1].count("<svg") == 2 and "next: " in stairs[1]
    assert 'class="stairs"' not in pages["variant/cudnn.html"]


def test_phases_stand_beside_what_was_said_of_them(pages: dict[str, str]) -> None:
    page = Page(pages["variant/fast.html"])
    assert [c[2] for c in page.row("softmax")] == ["softmax", "52.0 %", "45 %", "52.0 %"]
    assert [c[2] for c in page.row("load")][1:3] == ["12.5 %", "n/a"]
    assert page.row("phase_share_load")[1][2] == "12.5 %", "among the counters, too"
    assert [c[2] for c in Page(pages["variant/split.html"]).row("combine")][1:] == ["unmeasured", "n/a", "no bar"]
    (row,) = (r for r in Page(pages["ladder.html"]).rows if r[0][2].startswith("fast") and len(r) == 5)
    assert [c[2] for c in row][1:] == ["12.5", "52.0 predicted 45", "n/a", "35.5"]
    assert "Phases" not in pages["variant/slow.html"], "its sources mark none"


def test_waivers_and_goals(pages: dict[str, str]) -> None:
    text = pages["guardrails.html"]
    assert "two accumulators live at once" in text
    words = " ".join(" ".join(Page(text).text).split())
    assert "for L4 only" in words  # a goal of another device is unmeasured, with its reason
    assert re.search(r'<progress max="100" value="33"', text)


def test_a_measured_roof_is_drawn(pages: dict[str, str]) -> None:
    page = Page(pages["roofline.html"])
    figures = [s for s in page.scripts if "L2 5,500 GB/s (measured)" in s]
    assert figures
    assert "No L2 bandwidth roof is known" not in pages["roofline.html"]


def test_without_a_gpu_the_pages_say_so(tmp_path: Path) -> None:
    suite = factory.suite(shapes=[factory.shape()])
    record = dataclasses.replace(
        factory.bare_record(suite, factory.static_facts("fast", shapes=["mission"])),
        environment=factory.environment(gpu=None),
    )
    found = render(record, tmp_path / "r")
    words = " ".join(" ".join(Page(found["index.html"]).text).split())
    assert "No times at mission" in words and "no GPU" in words
    assert "No roof is known" in found["roofline.html"]
    assert Page(found["index.html"]).row("fast")[3][2] == "unmeasured"
    assert Page(found["index.html"]).row("fast")[15][2] == "96"


def test_an_empty_record_renders(tmp_path: Path) -> None:
    record = dataclasses.replace(factory.bare_record(), artifacts=(), plans=(), stages=(), facts=Facts())
    assert len(render(record, tmp_path / "r")) == len(PAGES) + len(record.suite.variants)


def test_many_cases_are_capped_and_counted(tmp_path: Path) -> None:
    record = factory.large_record(1500, [factory.budget("smem", "small", maximum=9)])
    found = render(record, tmp_path / "r")
    words = " ".join(" ".join(Page(found["index.html"]).text).split())
    assert "The first 12 shapes are shown; 88 more are in the record." in words
    assert max(map(len, found.values())) < 6_000_000
