"""The report: the same bytes twice, everything escaped, nothing unmeasured that reads as a number."""

from __future__ import annotations

import base64
import gzip
import re
import sys
import tempfile
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from flashcore import report
from flashcore.errors import UsageError, WriteError
from flashcore.explain.advice import advice
from flashcore.gate import expand
from flashcore.gate.baseline import save
from flashcore.gate.judge import judge
from flashcore.gate.wording import summary
from flashcore.model import files
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, RULE
from flashcore.model.causes import UNSUPPORTED_ARCH, CodeChanged, CompileFailed
from flashcore.model.record import (
    CaseSubject,
    Facts,
    Record,
    Roof,
    SharingGpu,
    Source,
    StageNote,
)
from flashcore.model.suite import CudaSource, Stage
from flashcore.model.text import quantity
from flashcore.model.text import share as in_percent
from flashcore.report import budget_page
from flashcore.report.overview_page import COLUMNS, Overview
from tests import factory
from tests.marks import embedded, labels, marks
from tests.support.judged import book_of, rendered
from tests.support.pages import LISTED, TODAY, Page, full, render, unpacked

EVIL = "<script>alert('x')</script>\"'&"
PAGES = ("index.html", "roofline.html", "budgets.html")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return render(full(), tmp_path_factory.mktemp("report") / "r")


# --- the folder -----------------------------------------------------------------------------------


def test_pages_are_the_overview_first_and_one_for_each_variant(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "r"
    pages = rendered(full(), folder)
    assert [p.relative_to(folder).as_posix() for p in pages[: len(PAGES)]] == list(PAGES)
    assert {p.stem for p in pages[len(PAGES) :]} == set(full().suite.variants)
    assert (folder / "assets/plotly-basic.min.js").stat().st_size <= 600_000
    assert [p.name for p in folder.parent.iterdir()] == ["r"]  # nothing of the writing is left


@pytest.mark.parametrize("single_file", [False, True])
def test_same_bytes_twice(tmp_path: Path, single_file: bool) -> None:
    def contents(folder: Path) -> dict[str, bytes]:
        rendered(full(), folder, single_file=single_file, today=TODAY)
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    first = contents(tmp_path / "one")
    assert first == contents(tmp_path / "another")
    assert first == contents(tmp_path / "one")  # over itself


@pytest.mark.parametrize("single_file", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_several_processes_render_the_same_bytes(
    single_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = factory.record(factory.suite([factory.variant(f"v{i}") for i in range(20)], baseline="v0"))
    several = render(record, tmp_path / "several", single_file=single_file)
    monkeypatch.setattr(sys, "platform", "another")
    assert several == render(record, tmp_path / "one", single_file=single_file)
    assert single_file or len([name for name in several if name.startswith("variant/v")]) == 20


def test_an_earlier_report_is_replaced_whole(tmp_path: Path) -> None:
    rendered(full(), tmp_path / "r")
    rendered(factory.record(), tmp_path / "r", single_file=True)
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [report.MARKER, "index.html"]


def test_what_is_no_report_is_left_alone(tmp_path: Path) -> None:
    rendered(factory.record(), tmp_path / "r")
    (tmp_path / "r" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"found thesis\.txt"):
        rendered(factory.record(), tmp_path / "r")
    assert (tmp_path / "r" / "thesis.txt").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="found a file"):
        rendered(factory.record(), tmp_path / "file")


def test_a_render_that_fails_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = render(factory.record(), tmp_path / "r")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_swap", full_disk)
    with pytest.raises(WriteError, match="No space") as caught:
        rendered(full(), tmp_path / "r")
    assert caught.value.exit_code == 4, "the machine's failure, no wrong usage"
    assert {n: unpacked((tmp_path / "r" / n).read_text(encoding="utf-8")) for n in before} == before
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


@pytest.mark.parametrize("single_file", [False, True])
def test_shapes_beside_the_first_lie_packed(tmp_path: Path, single_file: bool) -> None:
    """They are most of an overview, and only a script can show them."""
    pages = rendered(full(), tmp_path / "r", today=TODAY, single_file=single_file)
    every = {p.stem: p.read_text(encoding="utf-8") for p in pages}
    for name in ("index",) if single_file else ("index", "roofline"):
        assert "Table at long" not in every[name]
        packed = re.findall('<script type="text/plain" class="packed byshape" data-shape="long">([^<]*)', every[name])
        assert len(packed) == (2 if name == "index" else 1)
        for part in packed:
            assert f'data-shape="long">{gzip.decompress(base64.b64decode(part)).decode()}' in unpacked(every[name])
    overview = Page(unpacked(every["index"]))
    assert [text for text in overview.text if text.startswith("Every variant on ")] == [
        f"Every variant on {shape}: time, speedups, distance from the floor, correctness, limits, limiter"
        for shape in ("mission", "long")
    ]


# --- the pages ------------------------------------------------------------------------------------


def assert_linked(folder: Path, pages: dict[str, str]) -> None:
    """Every link of the pages leads to a file or an id of this report, and no page has an id twice."""
    for name, text in pages.items():
        page = Page(text)
        assert len(page.ids) == len(set(page.ids)), name
        for link in page.links:
            address = urlsplit(link)
            if address.scheme == "data":
                continue
            assert not address.scheme and not address.netloc, f"{name} reaches out to {link}"
            target = folder / Path(name).parent / unquote(address.path) if address.path else None
            assert target is None or target.resolve().is_file(), f"{name}: {link} leads nowhere"
            ids = page.ids if target is None or not address.fragment else Page(target.read_text(encoding="utf-8")).ids
            assert not address.fragment or address.fragment.partition("?")[0] in ids, f"{name}: {link}"


@pytest.mark.parametrize("single_file", [False, True])
def test_links_resolve_and_ids_are_unique(tmp_path: Path, single_file: bool) -> None:
    pages = render(full(), tmp_path / "r", single_file=single_file)
    assert_linked(tmp_path / "r", pages)
    if single_file:
        page = Page(pages["index.html"])
        assert {f"variant-{n}" for n in full().suite.variants} < set(page.ids)
        assert all(link.startswith(("data:", "#")) for link in page.links)


@pytest.mark.parametrize("single_file", [False, True])
def test_what_users_write_is_escaped(tmp_path: Path, single_file: bool) -> None:
    variants = [
        factory.variant("slow", technique=EVIL, tolerance_reason=EVIL, config={"A": EVIL}, kind=CudaSource(EVIL)),
        factory.variant("fast", parent="slow"),
        factory.reference("cudnn", technique=EVIL),
    ]
    waivers = [factory.waiver("few", 96, reason=EVIL)]
    suite = factory.suite(variants, [factory.shape()], [factory.budget("registers", "few", maximum=9, source=EVIL)],
                          waivers, title=EVIL, notes=(EVIL,))  # fmt: skip
    record = factory.record(suite, [factory.fact("throttle", EVIL, "fast", shape="mission"),
                                    factory.fact("l2_hit", None, "fast", shape="mission", detail=EVIL)])  # fmt: skip
    record = replace(
        record,
        command=EVIL,
        environment=factory.environment(gpu=EVIL, host=EVIL),
        outcomes=(*record.outcomes, factory.outcome("fast", "mission", "bench", "failed", EVIL)),
        artifacts=(*record.artifacts, factory.artifact("slow", "sm_80", "failed", EVIL)),
        stale={Case("cudnn", "mission"): CodeChanged(EVIL)},
        roofs=(Roof("l2", 5500.0, "GB/s", "measured", EVIL, note=EVIL),),
    )
    for name, text in render(record, tmp_path / "r", single_file=single_file).items():
        scripts = [s for s in Page(text).scripts if "alert('x')" in s]
        # Inside data for the charts it is text; a script of its own would be exactly this.
        assert all(s.lstrip().startswith("{") for s in scripts), name
        assert "<script>alert" not in text, name
        assert EVIL not in text, name


def test_every_chart_has_its_words_and_its_data(pages: dict[str, str]) -> None:
    plots = re.findall(r'<div [^>]*class="plot[^>]*>', pages["roofline.html"])
    assert plots
    for attributes in plots:
        assert re.search(r'aria-label="[^"]{20,}"', attributes)
        data = re.search(r'data-figure="([^"]+)"', attributes)
        assert data and data[1] in Page(pages["roofline.html"]).ids


def test_the_chart_library_is_loaded_where_it_draws_and_nowhere_else(pages: dict[str, str]) -> None:
    assert {name for name, text in pages.items() if "plotly" in text} == {"roofline.html"}


def test_tables_have_captions_and_scroll_by_themselves(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        bars = text.count('<table class="bars"')  # they take the width that there is
        assert text.count("<table") == text.count("<caption>") == len(re.findall(r'class="scroll', text)) + bars, name
        assert len(re.findall(r"<h1[ >]", text)) == 1, name


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
    words = Page(pages["variant/fast.html"]).words
    zero = re.search(r"0 in every column: ([\w, ]+)", words)
    assert zero and re.search(r"\bspill_instructions\b", zero[1])


def test_counters_that_are_all_zero_are_measured(tmp_path: Path) -> None:
    """None of them may read as a case without counters."""
    suite = factory.suite(variants=[factory.variant("fast")], shapes=[factory.shape()])
    zero = factory.fact("spill_instructions", 0, "fast", shape="mission", source=Source.NCU)
    record = replace(factory.record(suite), facts=Facts([zero]))
    words = Page(render(record, tmp_path)["variant/fast.html"]).words
    assert "0 in every column: spill_instructions" in words
    assert "No counters:" not in words


def test_the_ladder_says_what_failed_in_plain_sight(pages: dict[str, str]) -> None:
    page = Page(pages["index.html"])
    words = page.words
    assert "wrong : failed in check: NaN in the output" in words
    assert "split : stale: the device code, the plan" in words
    assert page.cells("wrong")["correct"][2] == "wrong"
    assert page.cells("fast")["correct"][2] == "correct"
    time = page.cells("fast")["time"]
    assert time[2].startswith("40.") and "isolated_p50" in time[1] and "fast/mission" in time[1]
    assert page.cells("cudnn")["variant"][2] == "cudnn reference"
    assert page.cells("slow")["variant"][2] == "slow ★"  # where the way begins


def test_the_first_screen_names_the_fastest_its_limiter_the_budgets_and_the_next_step(pages: dict[str, str]) -> None:
    words = Page(pages["index.html"]).words
    fastest = (
        r"Fastest variant: split 20\.\d µs 0\.4\d\d × the speed of cudnn [\d.]+ × its floor of [\d.]+ µs .* isolated ; "
    )
    assert re.search(fastest + r"the ratio's 95 % interval is \[0\.4\d+, 0\.4\d+\]", words)
    assert re.search(r"Limited by 4 % waiting for the block's other warps at a barrier", words)
    assert re.search(r"Budgets \d+ failed , \d+ required unmeasured , \d+ at risk \d+ limits: \d+ waived", words)
    assert "Next step" in words


def screen(record: Record, folder: Path) -> str:
    """The first screen in words."""
    return Page(render(record, folder)["index.html"]).words.partition("Missing: ")[0]


def limited(value: float, maximum: float) -> Record:
    budgets = [factory.budget("registers", "few_registers", maximum=maximum)]
    facts = factory.facts_of(
        {"registers": value, "spill_store_bytes": 8, "spill_load_bytes": 8},
        "fast",
        arch="sm_90a",
        kernel="fast_kernel",
    )
    return factory.record(factory.suite(budgets=budgets), facts)


def test_a_variants_page_gives_the_advice_on_its_case(tmp_path: Path) -> None:
    page = Page(render(limited(124.0, 128.0), tmp_path / "r")["variant/fast.html"]).words
    first = advice(book_of(limited(124.0, 128.0)).readings, Case("fast", "mission"))[0]
    change, _, how = first.action.partition(":")
    assert f"Next step {change} :{how}; {first.at_most} . ({first.values})" in page
    assert (
        "No advice for waiting for the block's other warps at a barrier 4 %, the largest part above the floor" in page
    )


@pytest.mark.parametrize(
    ("before", "value", "risk"),
    [
        (118.0, 124.0, True),
        (118.0, 128.0, True),
        (124.0, 124.0, False),
        (128.0, 124.0, False),
        (None, 128.0, False),
        (100.0, 120.0, False),
    ],
)
def test_an_exact_limit_is_at_risk_if_its_little_headroom_shrank(
    before: float | None, value: float, risk: bool
) -> None:
    record = limited(value, 128.0)
    baseline = save(limited(before, 128.0), None).baseline if before else None
    judgement = judge(record, baseline=baseline)
    (verdict,) = (v for v in judgement.limits if v.budget == "few_registers" and v.value == value)
    assert verdict.status == "pass" and verdict.at_risk is risk and (verdict in judgement.at_risk) is risk


@pytest.mark.parametrize(("value", "risk"), [(124.0, "1 at risk"), (120.0, "0 at risk"), (128.0, "1 at risk")])
def test_a_measured_limit_is_at_risk_with_under_five_percent_of_room(value: float, risk: str, tmp_path: Path) -> None:
    facts = [factory.fact("bank_conflicts", value, "fast", shape="mission")]
    suite = factory.suite(budgets=[factory.budget("bank_conflicts", "few", maximum=128, variants=("fast",))])
    words = screen(factory.bare_record(suite, facts), tmp_path / "r")
    html = (tmp_path / "r" / "index.html").read_text(encoding="utf-8")
    assert ('class="badge at_risk">few' in html) is (risk[0] == "1")
    assert re.search(f"Budgets 0 failed , (\\d+ required unmeasured , )?{risk} ", words)
    assert ("few fast : bank_conflicts 124 for mission, expected: ≤ 128, 3 % headroom" in words) is (value == 124)


def test_limits_of_one_budget_and_value_are_one_row_and_failures_come_first() -> None:
    suite = factory.suite(budgets=[factory.budget("smem", maximum=166_912), factory.budget("registers", maximum=90)])
    view = budget_page.Budgets(book_of(factory.record(suite)))
    rows = [[cell.text for cell in row] for row in view.rows]
    assert sum(map(len, view.groups)) == len(view.book.judgement.limits)
    states = [row[0] for row in rows]
    assert states[0] == "fail" and "fail" not in states[states.count("fail") :]
    smem = [v for v in view.book.judgement.limits if v.budget == "smem_limit" and v.status == "pass"]
    (row,) = (row for row in rows if row[1] == "smem_limit" and row[0] == "pass")
    assert row[2:4] == [f"{len(smem)} cases", "33,792 of 166,912 B"] and len(smem) > 3


def test_the_winners_limits_at_risk_stand_first(tmp_path: Path) -> None:
    budgets = [factory.budget("bank_conflicts", "few", maximum=128)]
    facts = [
        factory.fact("bank_conflicts", conflicts, variant, shape="mission")
        for variant, conflicts in (("fast", 124), ("warp", 127))
    ]
    suite = factory.suite(variants=[factory.variant(v) for v in ("fast", "warp", "best")], budgets=budgets)
    overview = Overview(book_of(factory.bare_record(suite, facts)))
    assert [overview.worst(winner)[0][0].subject.variant for winner in ("fast", "warp", "best")] == [
        "fast",
        "warp",
        "warp",
    ]
    facts.append(factory.fact("isolated_p50", 5.0, "best", shape="mission", source=Source.EVENTS))
    assert "None of best's limits is at risk. few warp : bank_conflicts 127" in screen(
        factory.bare_record(suite, facts), tmp_path / "a"
    )
    facts.append(factory.fact("isolated_p50", 4.0, "fast", shape="mission", source=Source.EVENTS))
    words = screen(factory.bare_record(suite, facts), tmp_path / "b")
    assert "few fast : bank_conflicts 124 for mission" in words and "limits is at risk" not in words


def test_skipped_stages_are_named(tmp_path: Path) -> None:
    stages = (StageNote("build", "ok", 1.0), StageNote("bench", "skipped", 0.0, "no GPU"))
    words = Page(render(replace(factory.bare_record(), stages=stages), tmp_path / "r")["index.html"]).words
    assert "bench skipped 0.0 s; no GPU" in words


def states(view: budget_page.Budgets) -> list[str]:
    """Of the results, in their order."""
    values, at = view.data["columns"]["status"]
    return [*dict.fromkeys(values[i] for i in at)]


def test_the_budgets_show_what_is_at_risk_before_what_passes_and_fold_the_rest() -> None:
    facts = [
        factory.fact("bank_conflicts", conflicts, variant, shape="mission")
        for variant, conflicts in (("fast", 124), ("warp", 100))
    ]
    budgets = [factory.budget("bank_conflicts", maximum=128, shapes=("mission",))]
    suite = factory.suite(variants=[factory.variant(v) for v in ("warp", "fast")], budgets=budgets)
    view = budget_page.Budgets(book_of(factory.bare_record(suite, facts)))
    assert states(view) == ["at_risk", "unmeasured", "pass"]
    assert view.counts["at_risk"] == 1 and [
        v.value for v in view.book.judgement.limits if view.state(v) == "at_risk"
    ] == [124]
    quiet = view.matrix.quiet
    assert {"builds", "plan_matches"} <= quiet and "bank_conflicts" not in quiet, "what nothing measured, too"


def test_what_is_at_risk_stands_before_what_is_accepted() -> None:
    facts = [
        factory.fact("bank_conflicts", conflicts, variant, shape="mission")
        for variant, conflicts in (("fast", 124), ("warp", 160))
    ]
    suite = factory.suite(
        variants=[factory.variant(v) for v in ("warp", "fast")],
        budgets=[factory.budget("bank_conflicts", maximum=128)],
        waivers=[factory.waiver("bank_conflicts_limit", 160)],
    )
    view = budget_page.Budgets(book_of(factory.bare_record(suite, facts)))
    assert [state for state in states(view) if state in ("at_risk", "waived")] == ["at_risk", "waived"]
    assert [row[0].text for row in view.matrix.rows] == ["fast", "warp"]


def test_the_next_step_names_a_failed_budget_that_no_rule_explains(tmp_path: Path) -> None:
    budgets = [factory.budget("parameter_bytes", "few_parameters", maximum=32)]
    facts = [factory.fact("parameter_bytes", 64, "fast", arch="sm_90a", kernel="fast_kernel")]
    suite = factory.suite(variants=[factory.variant("fast")], shapes=[factory.shape()], budgets=budgets)
    words = screen(factory.bare_record(suite, facts), tmp_path / "r")
    assert (
        "Next step few_parameters of fast : bring parameter_bytes from 64 to ≤ 32 B; gain unmeasured: nothing was timed"
        in words
    )
    assert "no rule applies" not in words.partition("Next step")[2].partition("Budgets")[0]


def test_a_failed_build_is_the_first_thing_seen(tmp_path: Path) -> None:
    record = factory.record()
    failed = CompileFailed("k.cu(12): error: no such name\n1 error")
    artifacts = [replace(a, status="failed", cause=failed) if a.variant == "fast" else a for a in record.artifacts]
    words = screen(replace(record, artifacts=tuple(artifacts)), tmp_path / "r")
    assert words.index("build failed fast sm_80, sm_89, sm_90a: k.cu(12): error: no such name") < words.index("Fastest")


def test_what_fails_stands_first_with_the_change_that_mends_it(tmp_path: Path) -> None:
    words = screen(limited(140.0, 128.0), tmp_path / "r")
    assert re.search(r"Budgets 1 failed , (\d+ required unmeasured , )?0 at risk ", words)
    assert "few_registers fast : registers 140 on sm_90a, expected: ≤ 128" in words
    assert "Next step few_registers of fast : keep fewer values live" in words


def test_without_a_gpu_the_first_screen_says_what_static_facts_show(tmp_path: Path) -> None:
    suite = factory.suite(variants=[factory.variant("fast")], shapes=[factory.shape()])
    static = [f for f in factory.static_facts("fast", shapes=["mission"]) if f.name != "blocks"]
    blocks = factory.fact("blocks", 33, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    record = factory.bare_record(suite, [*static, blocks], environment=factory.environment(gpu=None))
    words = screen(record, tmp_path / "r")
    assert "nothing timed" in words and "Limited by unmeasured fast as planned: 75 % idle SMs" in words
    assert (
        "fast : give every SM a block" in words
        and "saves at most 75 % of its time ; gain unmeasured: nothing was timed" in words
    )


def test_without_a_gpu_and_without_advice_the_plan_and_how_to_measure_are_shown(tmp_path: Path) -> None:
    suite = factory.suite(variants=[factory.variant("fast")], shapes=[factory.shape()])
    left_out = ("blocks", "waves", "occupancy_limiter")
    static = [f for f in factory.static_facts("fast", shapes=["mission"]) if f.name not in left_out]
    blocks = factory.fact("blocks", 132, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel")
    record = factory.bare_record(suite, [*static, blocks], environment=factory.environment(gpu=None))
    words = screen(record, tmp_path / "r")
    assert re.search(r"Limited by unmeasured fast as planned: [\d.]+ % occupancy, [\d.]+ waves", words)
    assert "unattributed" not in words
    assert "on a machine with a GPU; gain unmeasured: nothing was timed" in words
    assert "Next step measure the times : run flashcore profile" in words


def test_without_times_the_table_shows_static_facts_first(tmp_path: Path) -> None:
    suite = factory.suite(variants=[factory.variant("fast")], shapes=[factory.shape()])
    facts = [f for f in factory.static_facts("fast", shapes=["mission"]) if f.name not in ("blocks", "waves")]
    facts.append(factory.fact("blocks", 33, "fast", arch="sm_90a", shape="mission", kernel="fast_kernel"))
    record = factory.bare_record(suite, facts, environment=factory.environment(gpu=None))
    page = Page(render(record, tmp_path / "r")["index.html"])
    assert "regs sm_90a" in page.words and "spills B sm_90a" in page.words
    assert "flashcore profile" in page.words and "Fastest for each problem" not in page.words
    (section,) = Overview(book_of(record)).sections
    shown = {key: cell for (key, *_), cell in zip(section.columns[:8], section.rows[0].cells[:8], strict=True)}
    assert not [key for key, cell in shown.items() if cell.text == "unmeasured"]
    per_sm = next(f.number for f in facts if f.name == "blocks_per_sm") or 0
    assert shown["waves"].sort == pytest.approx(33 / (132 * per_sm), abs=1e-3)


def test_fastest_stands_first(pages: dict[str, str]) -> None:
    names = [r[0][2].split()[0] for r in Page(pages["index.html"]).rows if len(r) == len(COLUMNS)][1:7]
    assert names == ["cudnn", "split", "fast", "slow", "broken", "wrong"]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (("bench", "profile"), ("correct on other shapes", "on other shapes; shape mission is not for check")),
        (("check", "bench", "profile"), ("unmeasured", "no check result of this case")),
    ],
)
def test_only_a_shape_that_is_not_checked_shows_the_correctness_of_others(
    stages: tuple[Stage, ...], expected: tuple[str, str], tmp_path: Path
) -> None:
    made = full()
    outcomes = [o for o in made.outcomes if (o.variant, o.shape, o.stage) != ("fast", "mission", "check")]
    shapes = {n: replace(s, stages=stages) if n == "mission" else s for n, s in made.suite.shapes.items()}
    suite = replace(made.suite, shapes=shapes)
    page = Page(render(replace(made, suite=suite, outcomes=tuple(outcomes)), tmp_path / "r")["index.html"])
    _, title, text = page.cells("fast")["correct"]
    assert text == expected[0] and title.startswith(expected[1])


def test_columns_without_a_value_are_not_among_the_shown_ones(tmp_path: Path) -> None:
    alone = factory.suite(variants=[factory.variant("fast")], shapes=[factory.shape()])
    (section,) = Overview(book_of(factory.record(alone, times={"fast": 10.0}))).sections
    shown = [cell.kind for cell in section.rows[0].cells[:8]]
    assert "missing" not in shown and "none" not in shown
    assert {cell.kind for cell in section.rows[0].cells[8:]} >= {"missing", "none"}


def test_a_failed_build_shows_the_compilers_words(pages: dict[str, str]) -> None:
    assert "error: &#34;foo&lt;T&gt;&#34; is undefined" in pages["variant/broken.html"]
    assert "needs sm_89" in pages["variant/broken.html"]


def test_builds_that_are_missing_for_one_reason_are_said_once(tmp_path: Path) -> None:
    made = full()
    refused = [
        replace(a, status="unsupported", cause=UNSUPPORTED_ARCH(reason="needs sm_90a\nand more"))
        if (a.variant, a.arch) in {("slow", "sm_80"), ("slow", "sm_89"), ("fast", "sm_80"), ("fast", "sm_89")}
        else a
        for a in made.artifacts
    ]
    text = render(replace(made, artifacts=tuple(refused)), tmp_path / "r")["index.html"]
    listed = text[text.index('id="index-missing"') :].partition("</ul>")[0]
    assert re.findall("<li>(.*)</li>", unescape(re.sub("</?[^l/][^>]*>", "", listed))) == [
        'failed sm_89, sm_90a: k.cu(12): error: "foo<T>" is undefined (broken)',
        "unsupported sm_80, sm_89: needs sm_90a (slow, fast)",
        "unsupported sm_80: needs sm_89 (broken)",
    ]


def test_shapes_are_offered_by_problem_where_there_are_several(tmp_path: Path, pages: dict[str, str]) -> None:
    softmax = replace(factory.shape("other"), problem="softmax")
    shapes = [factory.shape(), softmax, factory.shape("long", factory.LONG)]
    text = render(factory.bare_record(factory.suite(shapes=shapes)), tmp_path / "r")["index.html"]
    matches = re.findall('<optgroup label="([^"]*)">(.*?)</optgroup>', text)
    assert [(problem, re.findall('value="([^"]*)"', group)) for problem, group in matches] == [
        ("attention", ["mission", "long"]),
        ("softmax", ["other"]),
    ]
    assert "<optgroup" not in pages["roofline.html"]


def test_predictions_stand_beside_what_was_measured(pages: dict[str, str]) -> None:
    cells = Page(pages["variant/fast.html"]).row("isolated_p50")
    row = [c[2] for c in cells]
    assert cells[0][1] == FACTS["isolated_p50"].why
    assert row[1] == "221.0 µs → 100.0 µs for L4"
    assert row[3].startswith("40") and row[4].startswith("40.")


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
    assert re.search(
        r"40\.\d+ µs isolated, [\d.]+ × faster than its parent slow \[[\d.]+, [\d.]+\], "
        r"[\d.]+ × the speed of its reference cudnn \[[\d.]+, [\d.]+\], [\d.]+ × its floor",
        words,
    )
    row = next(r for r in page.rows if r[0][2] == "waiting for the block's other warps at a barrier")
    assert row[1][2].strip() == "3.8" and row[2][2].startswith("stall_share_barrier 5.56 %, issue_active 30 %")
    assert "elsewhere on the ladder" not in words and len(row) == 3, "no step reduced any"


def test_source_lines_carry_samples_conflicts_and_local_memory(tmp_path: Path) -> None:
    parent = replace(LISTED, subject=CaseSubject(Case("slow", "mission"), kernel="slow_kernel"))
    record = replace(full(), listings=(LISTED, parent))
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


def test_the_bars_of_memory_are_the_records_bytes(pages: dict[str, str]) -> None:
    text = pages["variant/fast.html"]
    table = re.search(r'id="variant-fast-memory-mission">(.*?)</table>', text, re.DOTALL)
    assert table
    rows = re.findall(
        r'<th scope="row">([^<]*)</th><td [^>]*title="([^"]*)">.*?width:([\d.]+)%.*?</span> ([^<]*)', table[1]
    )
    assert {"DRAM → L2", "L2 → DRAM"} <= {name for name, *_ in rows} and max(float(w) for _, _, w, _ in rows) == 100
    for name, title, _, figure in rows:
        fact = title.split("\n")[1].split(",")[0]
        value = full().facts.number(fact, CaseSubject(Case("fast", "mission")))
        assert value and figure in (quantity(value, "B")[0], quantity(value, "1")[0]), name


def test_waivers_and_goals(pages: dict[str, str]) -> None:
    text = pages["budgets.html"]
    assert "two accumulators live at once" in text
    words = Page(text).words
    assert "only for L4" in words  # a goal of another device is unmeasured, with its reason
    assert re.search(r'data-sort="33"><span class="bar">.*</span> 33 %</td>', text)


def test_the_budgets_keep_what_holds_the_gate_without_scripts(pages: dict[str, str]) -> None:
    judged = judge(full(), require="static", today=TODAY)
    page = Page(pages["budgets.html"])
    plain = [[text.strip() for _, _, text in row] for row in page.rows if len(row) == 7][1:]
    failing = {(v.status, v.budget) for v in judged.failed} | {("unmeasured required", v.budget) for v in judged.gaps}
    assert failing <= {(row[0], row[1]) for row in plain} and failing
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
        ({"minimum": 256, "maximum": 256}, 256, None, ""),
        ({"maximum": 128}, None, None, ""),
        ({"maximum": 128}, True, None, ""),
    ],
)
def test_headroom(limits: dict[str, Any], value: Any, share: float | None, text: str) -> None:
    found = expand.headroom(factory.budget("registers", **limits), value)
    assert found == pytest.approx(share) if share is not None else found is None
    assert found is None or in_percent(found) == text


def test_packed_columns_unpack_to_what_they_were() -> None:
    column = [3, 1.5, None, None, "b", True, True, 3, [1, None], 3, "A", "b"]
    distinct, which = budget_page.packed(column)
    assert [distinct[at] for at in which] == column
    assert repr(distinct) == "[True, 1.5, 3, [1, None], 'A', 'b', None]", "in their order, what has no value last"
    assert budget_page.packed(["low", None, "high"], {"high": 0, "low": 1}.get) == [["high", "low", None], [1, 2, 0]]


def test_a_measured_roof_is_drawn(pages: dict[str, str]) -> None:
    names = [trace.get("name") for trace in roofline_of(pages, "mission")["data"]]
    assert "L2 5,500 GB/s (measured)" in names and not any("unknown" in (name or "") for name in names)


def test_a_level_without_a_roof_says_that_it_is_unknown(tmp_path: Path) -> None:
    pages = render(replace(full(), roofs=()), tmp_path / "r")
    assert "L2 roof: unknown" in [trace.get("name") for trace in roofline_of(pages, "mission")["data"]]


def test_the_roofs_of_each_gpu_that_shared_a_run_are_listed_with_it(tmp_path: Path) -> None:
    roofs_of = {
        n: (Roof("l2", v, "GB/s", "measured", "NVIDIA H200", None, f"on GPU-{n}"),) for n, v in (("a", 5e3), ("b", 6e3))
    }
    gpus = tuple(SharingGpu(f"GPU-{n}", None, None, None, (), {}, roofs=roofs) for n, roofs in roofs_of.items())
    page = Page(render(factory.record(roofs=roofs_of["a"], gpus=gpus), tmp_path / "r")["roofline.html"])
    rows = [[text for _, _, text in row] for row in page.rows if len(row) == 5 and row[0][2] == "l2"]
    assert [(r[1], r[4]) for r in rows if r[2] == "measured"] == [
        ("5,000 GB/s", "on GPU-a"),
        ("6,000 GB/s", "on GPU-b"),
    ]


def roofline_of(pages: dict[str, str], shape: str) -> dict[str, Any]:
    return embedded(pages["roofline.html"], f"roofline-{shape}")


def test_the_rooflines_points_are_the_records_facts(pages: dict[str, str]) -> None:
    record, figure = full(), roofline_of(pages, "mission")
    assert labels(figure) == {
        "split": "fastest variant",
        "slow": "baseline",
        "cudnn": "fastest reference",
        "fast": "its parent",
    }
    whole = [m for m in marks(figure) if m["kernel"] is None]
    assert {(m["variant"], m["level"]) for m in whole if m["FLOPs by"] == "hardware"} >= {
        ("fast", level) for level in ("dram", "l2", "l1")
    }
    for m in whole:
        subject = CaseSubject(Case(m["variant"], m["shape"]))
        assert m["bytes"] == record.facts.number(f"{m['level']}_bytes", subject)
        useful = m["FLOPs by"] == "formula"
        time = record.facts.number("isolated_p50" if useful else "ncu_duration", subject) or 0
        assert m["time µs"] == (time if useful else time / 1e3)
        assert not useful or m["FLOP"] == record.facts.number("formula_flop", subject)


def test_without_counters_the_roofline_is_drawn_from_the_formulas_and_says_so(tmp_path: Path) -> None:
    record = full()
    bare = replace(record, facts=Facts([f for f in record.facts if f.source != "ncu"]))
    pages = render(bare, tmp_path / "r")
    assert "No counters on mission: the bytes are those of the problem's formula" in unescape(pages["roofline.html"])
    rows = marks(roofline_of(pages, "mission"))
    places = {(m["variant"], m["level"]) for m in rows}
    assert places == {(v, s) for v in ("slow", "fast", "split", "cudnn") for s in ("dram", "l2")}
    for m in rows:
        subject = CaseSubject(Case(m["variant"], m["shape"]))
        assert m["FLOPs by"] == "formula" and m["FLOP"] == bare.facts.number("formula_flop", subject)
        assert m["bytes"] == bare.facts.number("formula_bytes", subject)
        assert m["time µs"] == bare.facts.number("isolated_p50", subject) and m["timing"] == "isolated p50"


def test_shares_of_the_time_say_where_no_counter_stands_behind_them(tmp_path: Path) -> None:
    record = full()
    message = "No counters on mission: these shares are from the problem's formulas."
    bare = replace(record, facts=Facts([f for f in record.facts if f.source != "ncu"]))
    assert message in unescape(render(bare, tmp_path / "bare")["index.html"])
    counts = factory.facts_of({"ncu_duration": 30_000, "dram_throughput": 40.0}, "fast", shape="mission")
    counted = replace(bare, facts=Facts([*bare.facts, *counts]))
    assert message not in unescape(render(counted, tmp_path / "counted")["index.html"])


def test_without_a_gpu_the_pages_say_so(tmp_path: Path) -> None:
    suite = factory.suite(shapes=[factory.shape()])
    record = replace(
        factory.bare_record(suite, factory.static_facts("fast", shapes=["mission"])),
        environment=factory.environment(gpu=None),
    )
    pages = render(record, tmp_path / "r")
    words = Page(pages["index.html"]).words
    assert "No times on mission" in words and "recorded without a GPU" in words
    assert "roofline.html" not in pages, "a page with nothing on it has no tab"
    row = Page(pages["index.html"]).cells("fast")
    assert row["time"][2] == "unmeasured" and row["registers"][2] == "96"
    assert 'id="variant-fast-time"' not in pages["variant/fast.html"], "a section with nothing in it has no heading"


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
    record = replace(factory.bare_record(), artifacts=(), plans=(), stages=(), facts=Facts())
    assert len(render(record, tmp_path / "r")) == len(PAGES) + len(record.suite.variants)


def test_many_cases_are_capped_and_counted(tmp_path: Path) -> None:
    record = factory.large_record(300, [factory.budget("smem", "small", maximum=9)])
    pages = render(record, tmp_path / "r")
    words = Page(pages["index.html"]).words
    assert "The first 40 shapes of 100." in words
    assert max(map(len, pages.values())) < 1_200_000


# --- compiled templates ---------------------------------------------------------------------------


def test_templates_are_compiled_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jinja2 = pytest.importorskip("jinja2")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # another machine's, where nothing is compiled
    first = report.environment.__wrapped__(False)
    first.get_template("page.html.j2")
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *_, **__: pytest.fail("compiled again"))
    report.environment.__wrapped__(False).get_template("page.html.j2")


def test_templates_need_no_place_for_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    assert report.environment.__wrapped__(False).get_template("page.html.j2").name == "page.html.j2"
