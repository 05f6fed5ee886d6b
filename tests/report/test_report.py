"""The report: the same bytes twice, everything escaped, nothing unmeasured that reads as a number."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
from datetime import date
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from flashcore import report
from flashcore.errors import UsageError, WriteError
from flashcore.gate.judge import judge
from flashcore.gate.wording import summary
from flashcore.model import files
from flashcore.model.catalogue import FACTS, RULE
from flashcore.model.causes import CodeChanged, CompileFailed, DidNotCompile, Message, UnsupportedArch
from flashcore.model.record import (
    Artifact,
    CaseOutcome,
    Facts,
    Instruction,
    Listing,
    Origin,
    Record,
    Roof,
    SharingGpu,
    Source,
    Subject,
)
from flashcore.model.suite import CudaSource, Prediction
from flashcore.report import guardrail_page
from flashcore.report.overview_page import COLUMNS
from flashcore.report.view import Book
from tests import factory

TODAY = date(2026, 1, 2)
EVIL = "<script>alert('x')</script>\"'&"
PAGES = ("index.html", "roofline.html", "guardrails.html")


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

    @property
    def words(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.text).split())

    def row(self, name: str) -> list[tuple[str, str, str]]:
        """The first row whose first cell reads so."""
        return next(r for r in self.rows if r and r[0][2].split()[:1] == [name])

    def cells(self, name: str) -> dict[str, tuple[str, str, str]]:
        """The overview's table at its first shape: the cells of one variant by the keys of their columns."""
        keys = [key for key, *_ in COLUMNS]
        own = (r for r in self.rows if len(r) == len(keys) and r[0][2].split()[:1] == [name])
        return dict(zip(keys, next(own), strict=True))


def render(record: Record, folder: Path, *, single_file: bool = False) -> dict[str, str]:
    """The pages' texts by path; what a single file has packed, unpacked."""
    pages = report.render(record, folder, today=TODAY, single_file=single_file)
    return {p.relative_to(folder.resolve()).as_posix(): unpacked(p.read_text(encoding="utf-8")) for p in pages}


def unpacked(text: str) -> str:
    def html(packed: str) -> str:
        return gzip.decompress(base64.b64decode(packed)).decode()

    def section(found: re.Match[str]) -> str:
        return f'<section class="page" id="{found[1]}" data-title="{found[2]}">{html(found[3])}</section>'

    packed = r'<script type="text/plain" class="packed" data-anchor="([^"]*)" data-title="([^"]*)">([^<]*)</script>'
    shape = r'<script type="text/plain" class="packed byshape" data-shape="([^"]*)">([^<]*)</script>'
    text = re.sub(packed, section, text)
    return re.sub(shape, lambda x: f'<template class="byshape" data-shape="{x[1]}">{html(x[2])}</template>', text)


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
    budgets = [factory.budget("registers", maximum=128), factory.budget("smem", maximum=10_000)]
    values = {"fast": 124, "warp": 100}
    facts = [
        factory.fact(name, value, variant, arch="sm_90a", kernel="k")
        for variant, registers in values.items()
        for name, value in (("registers", registers), ("smem", 1024))
    ]
    suite = factory.suite(variants=[factory.variant(v) for v in values], budgets=budgets)
    view = guardrail_page.Guardrails(Book(factory.bare_record(suite, facts), "static", None))
    shown = [v for v in view.book.judgement.limits if v.status == "pass"]
    assert [view.state(v) for v in shown] == ["at_risk" if v.value == 124 else "pass" for v in shown]
    assert view.counts["at_risk"] == 1 and view.data["status"][0][-2:] == ["at_risk", "pass"]
    assert view.matrix.facts[-2:] == ["registers", "smem"] and view.matrix.quiet >= {"smem", "warp"}
    assert [variant.text for variant, _ in view.matrix.rows] == ["fast", "warp"]


def test_what_fails_stands_first_with_the_change_that_mends_it(tmp_path: Path) -> None:
    words = screen(limited(140.0, 128.0), tmp_path / "r")
    assert "1 failed , 0 waived" in words and "few_registers fast sm_90a : registers 140 , limit ≤ 128" in words
    assert "Next step few_registers of fast: keep fewer values alive" in words


def test_without_a_gpu_the_first_screen_says_what_static_facts_show(tmp_path: Path) -> None:
    suite = factory.suite(variants=[factory.variant("fast")], shapes=[factory.shape()])
    static = [f for f in factory.static_facts("fast", shapes=["mission"]) if f.name != "blocks"]
    blocks = factory.fact("blocks", 33, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    record = factory.bare_record(suite, [*static, blocks], environment=factory.environment(gpu=None))
    words = screen(record, tmp_path / "r")
    assert "nothing timed" in words and "fast : Idle SMs: 75 % of the GPU; nothing was timed" in words
    assert "fast : give every SM a block" in words and "at most 75 % here" in words


def test_the_pictures_figures_are_the_records(pages: dict[str, str]) -> None:
    """What is drawn can be taken away, and reads as it was recorded."""
    record = full()
    tables = re.findall(r"data-csv>(\[.*?)</script>", pages["index.html"])
    assert len(tables) == 2
    head, *rows = json.loads(tables[0])
    assert head[:4] == ["variant", "shape", "role", "isolated_p50 µs"]
    assert {r[0] for r in rows} == {"slow", "fast", "split", "cudnn"}
    for name, shape, _, time, *_ in rows:
        assert record.facts.number("isolated_p50", Subject(name, shape=shape)) == time


def test_fastest_stands_first(pages: dict[str, str]) -> None:
    names = [r[0][2].split()[0] for r in Page(pages["index.html"]).rows if len(r) == len(COLUMNS)][1:7]
    assert names == ["cudnn", "split", "fast", "slow", "broken", "wrong"]


def test_a_failed_build_shows_the_compilers_words(pages: dict[str, str]) -> None:
    assert "error: &#34;foo&lt;T&gt;&#34; is undefined" in pages["variant/broken.html"]
    assert "needs sm_89" in pages["variant/broken.html"]


def test_builds_that_are_missing_for_one_reason_are_said_once(tmp_path: Path) -> None:
    made = full()
    refused = [
        dataclasses.replace(a, status="unsupported", cause=UnsupportedArch(reason="needs sm_90a\nand more"))
        if (a.variant, a.arch) in {("slow", "sm_80"), ("slow", "sm_89"), ("fast", "sm_80"), ("fast", "sm_89")}
        else a
        for a in made.artifacts
    ]
    text = render(dataclasses.replace(made, artifacts=tuple(refused)), tmp_path / "r")["index.html"]
    listed = text[text.index("Missing builds") :].partition("</ul>")[0]
    assert re.findall("<li>(.*)</li>", unescape(re.sub("</?[^l/][^>]*>", "", listed))) == [
        'failed sm_89, sm_90a: k.cu(12): error: "foo<T>" is undefined (broken)',
        "unsupported sm_80, sm_89: needs sm_90a (slow, fast)",
        "unsupported sm_80: needs sm_89 (broken)",
    ]


def test_shapes_are_offered_by_problem_where_there_are_several(tmp_path: Path, pages: dict[str, str]) -> None:
    softmax = dataclasses.replace(factory.shape("other"), problem="softmax")
    shapes = [factory.shape(), softmax, factory.shape("long", factory.LONG)]
    text = render(factory.bare_record(factory.suite(shapes=shapes)), tmp_path / "r")["roofline.html"]
    found = re.findall('<optgroup label="([^"]*)">(.*?)</optgroup>', text)
    assert [(problem, re.findall('value="([^"]*)"', own)) for problem, own in found] == [
        ("attention", ["mission", "long"]),
        ("softmax", ["other"]),
    ]
    assert "<optgroup" not in pages["roofline.html"]


def test_predictions_stand_beside_what_was_measured(pages: dict[str, str]) -> None:
    cells = Page(pages["variant/fast.html"]).row("isolated_p50")
    row = [c[2] for c in cells]
    assert cells[0][1] == FACTS["isolated_p50"].why
    assert row[1:4] == ["221.0 µs", "100.0 µs", "L4"]
    assert row[6].startswith("40") and row[7].startswith("40.")


def test_the_next_block_is_drawn_beside_its_words(pages: dict[str, str]) -> None:
    text = pages["variant/fast.html"]
    stairs = re.search(r"limited by [^<]*registers fewer give.*?<div class=\"stairs\">(.*?)</div>", text, re.DOTALL)
    assert stairs and stairs[1].count("<svg") == 2 and "next: " in stairs[1]
    assert 'class="stairs"' not in pages["variant/cudnn.html"]


def test_phases_stand_beside_what_was_said_of_them(pages: dict[str, str]) -> None:
    page = Page(pages["variant/fast.html"])
    assert [" ".join(c[2].split()) for c in page.row("softmax")] == ["softmax", "52.0 predicted 45 %"]
    assert page.row("load")[1][2].strip() == "12.5"
    assert page.row("phase_share_load")[1][2] == "12.5 %", "among the counters, too"
    assert [c[2] for c in Page(pages["variant/split.html"]).row("combine")][1:] == ["unmeasured"]
    assert "Phases" not in pages["variant/slow.html"], "its sources mark none"


def test_a_variants_page_says_what_holds_it_with_evidence_and_what_helped_elsewhere(pages: dict[str, str]) -> None:
    page = Page(pages["variant/fast.html"])
    words = page.words
    assert re.search(r"40\.\d+ µs isolated, [\d.]+ × faster than its parent \[[\d.]+, [\d.]+\], [\d.]+ × above", words)
    row = page.row("barrier")  # the first of the ranking
    assert row[0][2] == "barrier stalls 6 %" and row[2][2].startswith("stall_share_barrier 5.56 %, issue_active 30 %")
    assert "waits for" not in words and "no step removed it" in row[3][2]


LISTED = Listing(
    Subject("fast", shape="mission", kernel="fast_kernel"),
    (
        Instruction(0, "LDS R2, [R4]", "fast.cu", 12, "x = tile[i];",
                    {"samples": 70.0, "executed": 64.0, "stall_mio_throttle": 60.0, "wavefronts": 96.0,
                     "wavefronts_ideal": 32.0}),
        Instruction(16, "STL [R1+0x8], R4", "fast.cu", 14, "y += x;", {"samples": 10.0, "executed": 8.0}),
        Instruction(32, "FADD R2, R2, R3", "fast.cu", 14, "y += x;", {"samples": 20.0, "executed": 64.0}),
        Instruction(48, "EXIT", "", 0, "", {}),
    ),
)  # fmt: skip


def test_source_lines_carry_samples_conflicts_and_local_memory(tmp_path: Path) -> None:
    parent = dataclasses.replace(LISTED, subject=Subject("slow", shape="mission", kernel="slow_kernel"))
    record = dataclasses.replace(full(), listings=(LISTED, parent))
    page = Page(render(record, tmp_path / "r")["variant/fast.html"])
    lines = [r for r in page.rows if len(r) == 6 and "fast.cu:" in r[1][2]]
    cells = [[" ".join(c[2].split()) for c in row] for row in lines]
    assert [(c[0], *c[2:]) for c in cells] == [
        ("70.0", "mio throttle 86 %", "64", "64", "0"),
        ("30.0", "n/a", "72", "0", "8"),
    ]
    assert "x = tile[i]; fast.cu:12, 1 instruction" in cells[0][1] and "LDS R2, [R4]" in cells[0][1]
    assert "STL [R1+0x8], R4" in cells[1][1]
    alone = Page(render(full(), tmp_path / "s")["variant/fast.html"])
    assert not [r for r in alone.rows if len(r) == 6 and "fast.cu:" in r[1][2]]


def test_the_memory_charts_figures_are_the_records(pages: dict[str, str]) -> None:
    found = re.search(
        r'id="variant-fast-memory-mission">.*?data-csv>(.*?)</script>', pages["variant/fast.html"], re.DOTALL
    )
    assert found
    head, *rows = json.loads(found[1])
    assert head == ["counter", "value", "parent"] and {"l2_bytes", "dram_read_bytes", "l1_hit"} < {r[0] for r in rows}
    facts = full().facts
    for name, value, parent in rows:
        if name not in ("shared_busy", "l1_busy"):
            assert value == facts.number(name, Subject("fast", shape="mission")), name
            assert parent == facts.number(name, Subject("slow", shape="mission")), name


def test_waivers_and_goals(pages: dict[str, str]) -> None:
    text = pages["guardrails.html"]
    assert "two accumulators live at once" in text
    words = Page(text).words
    assert "for L4 only" in words  # a goal of another device is unmeasured, with its reason
    assert re.search(r'<progress max="100" value="33"', text)


def test_the_guardrails_keep_what_holds_the_gate_without_scripts(pages: dict[str, str]) -> None:
    judged = judge(full(), require="static", today=TODAY)
    page = Page(pages["guardrails.html"])
    plain = [[text for _, _, text in row] for row in page.rows if len(row) == 10][1:]
    held = [(v.status, v.budget, v.subject.variant) for v in (*judged.failed, *judged.gaps)]
    assert sorted((r[0].strip(), r[1], r[2]) for r in plain) == sorted(held) and held
    assert summary(judged) in " ".join(page.text)


@pytest.mark.parametrize(
    ("limits", "value", "share", "text"),
    [
        ({"maximum": 128}, 96, 0.25, "25 %"),
        ({"maximum": 128}, 128, 0.0, "0 %"),
        ({"maximum": 128}, 129, -1 / 128, "−<1 %"),
        ({"minimum": 30}, 45.0, 0.5, "50 %"),
        ({"minimum": 30}, 15.0, -0.5, "−50 %"),
        ({"minimum": 10, "maximum": 100}, 12.0, 0.2, "20 %"),
        ({"maximum": 0}, 0, None, ""),
        ({"maximum": 128}, None, None, ""),
        ({"maximum": 128}, True, None, ""),
    ],
)
def test_headroom(limits: dict[str, Any], value: Any, share: float | None, text: str) -> None:
    found = guardrail_page.headroom(factory.budget("registers", **limits), value)
    assert found == pytest.approx(share) if share is not None else found is None
    assert found is None or guardrail_page.percent(found) == text


def test_packed_columns_unpack_to_what_they_were() -> None:
    column = [1, 1.5, None, None, "a", True, True, 1, [1, None], 1, 1, 1, "a"]
    distinct, which, long = guardrail_page.packed(column)
    assert [distinct[at] for at, n in zip(which, long, strict=True) for _ in range(n)] == column
    assert repr(distinct) == "[1, 1.5, None, 'a', True, [1, None]]"
    assert guardrail_page.packed([3, 1, 2, 1]) == [[3, 1, 2, 1], [], []]


def test_a_measured_roof_is_drawn(pages: dict[str, str]) -> None:
    assert [r["label"] for r in roofline_of(pages, "mission")["roofs"] if r["resource"] == "l2"] == [
        "5,500 GB/s (measured)"
    ]


def test_the_roofs_of_each_gpu_that_shared_a_run_are_listed_with_it(tmp_path: Path) -> None:
    own = {
        n: (Roof("l2", v, "GB/s", "measured", "NVIDIA H200", None, f"on GPU-{n}"),) for n, v in (("a", 5e3), ("b", 6e3))
    }
    gpus = tuple(SharingGpu(f"GPU-{n}", None, None, {}, None, None, (), {}, roofs=roofs) for n, roofs in own.items())
    page = Page(render(factory.record(roofs=own["a"], gpus=gpus), tmp_path / "r")["roofline.html"])
    rows = [[text for _, _, text in row] for row in page.rows if len(row) == 5 and row[0][2] == "l2"]
    assert [(r[1], r[4]) for r in rows if r[2] == "measured"] == [
        ("5,000 GB/s", "on GPU-a"),
        ("6,000 GB/s", "on GPU-b"),
    ]


def roofline_of(pages: dict[str, str], shape: str) -> dict[str, Any]:
    found = re.search(rf'id="roofline-{shape}-data">(.*?)</script>', pages["roofline.html"], re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_the_rooflines_points_are_the_records_facts(pages: dict[str, str]) -> None:
    record, drawn = full(), roofline_of(pages, "mission")
    head, *rows = drawn["table"]
    assert head[:5] == ["variant", "kernel", "shape", "level", "FLOPs by"]
    assert drawn["named"] == {"winner": "split", "baseline": "slow", "peer": "cudnn", "parent": "fast"}
    assert drawn["way"] == ["slow", "fast", "split"]
    whole = [r for r in rows if r[1] is None]
    assert {(r[0], r[3], r[4]) for r in whole} >= {("fast", level, "hardware") for level in ("dram", "l2", "l1")}
    for variant, _, shape, level, by, flop, amount, time, *_ in whole:
        subject = Subject(variant, shape=shape)
        assert amount == record.facts.number(f"{level}_bytes", subject)
        assert time == (record.facts.number("ncu_duration", subject) or 0) / 1e3
        assert by == "hardware" or flop == record.facts.number("formula_flop", subject)


def test_without_counters_the_roofline_is_drawn_from_the_formulas_and_says_so(tmp_path: Path) -> None:
    record = full()
    bare = dataclasses.replace(record, facts=Facts([f for f in record.facts if f.source != "ncu"]))
    pages = render(bare, tmp_path / "r")
    assert "No counters at mission: drawn from the FLOPs and bytes of the problem's formula" in unescape(
        pages["roofline.html"]
    )
    _, *rows = roofline_of(pages, "mission")["table"]
    assert {(r[0], r[3]) for r in rows} == {(v, s) for v in ("slow", "fast", "split", "cudnn") for s in ("dram", "l2")}
    for variant, _, shape, level, by, flop, amount, time, *_, regime in rows:
        subject = Subject(variant, shape=shape)
        assert by == "formula" and flop == bare.facts.number("formula_flop", subject)
        assert amount == bare.facts.number("formula_bytes", subject)
        assert time == bare.facts.number("cold_p50" if level == "dram" else "isolated_p50", subject)
        assert regime.startswith("cold p50" if level == "dram" else "isolated p50")


def test_shares_of_the_time_say_where_no_counter_stands_behind_them(tmp_path: Path) -> None:
    record = full()
    said = "No counters at mission: these shares are by the problem's formulas."
    bare = dataclasses.replace(record, facts=Facts([f for f in record.facts if f.source != "ncu"]))
    assert said in unescape(render(bare, tmp_path / "bare")["index.html"])
    one = factory.fact("dram_bytes", 1e6, "fast", shape="mission", source=Source.NCU)
    counted = dataclasses.replace(bare, facts=Facts([*bare.facts, one]))
    assert said not in unescape(render(counted, tmp_path / "counted")["index.html"])


def test_without_a_gpu_the_pages_say_so(tmp_path: Path) -> None:
    suite = factory.suite(shapes=[factory.shape()])
    record = dataclasses.replace(
        factory.bare_record(suite, factory.static_facts("fast", shapes=["mission"])),
        environment=factory.environment(gpu=None),
    )
    found = render(record, tmp_path / "r")
    words = Page(found["index.html"]).words
    assert "No times at mission" in words and "no GPU" in words
    assert "No roof is known" in found["roofline.html"]
    row = Page(found["index.html"]).cells("fast")
    assert row["time"][2] == "unmeasured" and row["registers"][2] == "96"


def test_links_in_the_texts_of_nvidias_rules_are_their_words(tmp_path: Path, sample_record: Any) -> None:
    marked = re.compile(r"@(section|url|source):")
    for name in ("app_full", "triton_full"):
        record = sample_record(name)
        kinds = {k for f in record.facts if f.name.startswith(RULE) for k in marked.findall(str(f.value))}
        assert kinds >= {"section", "url"}  # the record keeps them
        pages = {k: v for k, v in render(record, tmp_path / name).items() if k.startswith("variant/")}
        words = " ".join(Page(v).words for v in pages.values())
        assert not marked.search(words)
        assert "The Profiling Guide provides more details on each stall reason." in words
        assert "the top stall reasons on the Warp State Statistics and Source Counters sections." in words


def test_an_empty_record_renders(tmp_path: Path) -> None:
    record = dataclasses.replace(factory.bare_record(), artifacts=(), plans=(), stages=(), facts=Facts())
    assert len(render(record, tmp_path / "r")) == len(PAGES) + len(record.suite.variants)


def test_many_cases_are_capped_and_counted(tmp_path: Path) -> None:
    record = factory.large_record(300, [factory.budget("smem", "small", maximum=9)])
    found = render(record, tmp_path / "r")
    words = Page(found["index.html"]).words
    assert "The first 40 shapes are shown; 60 more are in the record." in words
    assert max(map(len, found.values())) < 1_200_000
