"""Every page that ncu prints as CSV, in both conventions of writing numbers, against the report that it is of."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import RecordError
from flashcore.explain import roofline
from flashcore.features.reports import assemble
from flashcore.features.reports.read import read_report
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Record
from flashcore.readers.ncu.results import Report, Result
from tests.recorded import RECORDED

SAXPY = "saxpy(int, float, const float *, float *)"


def text_of(name: str) -> str:
    return (RECORDED / "reports" / f"{name}.csv").read_bytes().decode()


def read(text: str, folder: Path) -> Report:
    path = folder / "page.csv"
    path.write_text(text)
    return read_report(path)


def recorded(report: Report) -> Record:
    return assemble.record_of("20260101T000000Z-0000", [report])


def european(text: str) -> str:
    """The page as a program with a decimal comma would have written it: every number of it, nothing else."""
    rows = list(csv.reader(io.StringIO(text[text.index('"ID"') :])))
    swap = str.maketrans(",.", ".,")
    skip = {i for i, c in enumerate(rows[0]) if c in ("ID", "CC", "Block Size", "Grid Size", "Kernel Name")}
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows[1:]:
        numeric = (re.fullmatch(r"[\d.,]+", cell) and not re.fullmatch(r"\d+\.\d{6}", cell) for cell in row)
        writer.writerow(c.translate(swap) if n and i not in skip else c
                        for i, (c, n) in enumerate(zip(row, numeric, strict=True)))  # fmt: skip
    return out.getvalue()


def value(result: Result, metric: str) -> float | None:
    return result.read(metric).value


# --- each page ------------------------------------------------------------------------------------


def test_the_raw_page_says_what_the_report_says(sample_report: Any, tmp_path: Path) -> None:
    page = recorded(read(text_of("app_full.import_raw"), tmp_path))
    report = recorded(sample_report("app_full"))
    assert list(page.suite.variants) == list(report.suite.variants)
    assert list(page.suite.shapes) == list(report.suite.shapes)
    compared = 0
    for fact in page.facts:
        if fact.subject.launch is None and fact.value is not None and fact.subject.kernel is None:
            other = report.facts.number(fact.name, fact.subject)
            assert fact.number == pytest.approx(other, rel=1e-3, abs=0.006), fact
            compared += 1
    assert compared > 250


def test_a_page_does_not_say_what_became_of_the_caches(tmp_path: Path) -> None:
    record = recorded(read(text_of("app_full.import_raw"), tmp_path))
    saxpy = CaseSubject(Case("saxpy", "g16384_b256"))
    assert roofline.timing_mode(record, saxpy) == "ncu (cache control unknown)"


def test_the_raw_page_in_automatic_units(tmp_path: Path) -> None:
    report = read(text_of("app_raw_units"), tmp_path)
    facts = recorded(report).facts
    assert facts.number("ncu_duration", CaseSubject(Case("spilly_96", "g64_b128"))) == 6720.0  # printed as 6.720000 us
    assert facts.number("ncu_dynamic_smem", CaseSubject(Case("saxpy", "g16384_b256"))) == 0
    assert report.results[0].text("device__attribute_display_name") == "NVIDIA H200"


def test_a_size_in_automatic_units_is_its_bytes(tmp_path: Path) -> None:
    """Also where the catalogue has no such metric, and in the name of the shape."""
    header = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    header += '"Device","CC","gpu__time_duration.sum","launch__shared_mem_per_block_dynamic","x__traffic.sum"\n'
    row = ',"1","a","h","k(int)","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0"'
    text = f'{header}"","","","","","","","","","","","msecond","Kbyte/block","Mbyte"\n'
    text += f'"0"{row},"1.25","213.220","1.1"\n"1"{row},"1.20","0.024","2"\n'
    record = recorded(read(text, tmp_path))
    assert {s: record.suite.shapes[s].params["dynamic_smem"] for s in record.suite.shapes} == {
        "g4_b32_s213220": 213_220, "g4_b32_s24": 24,
    }  # fmt: skip
    facts = record.facts
    assert facts.number("ncu_dynamic_smem", CaseSubject(Case("k", "g4_b32_s213220"))) == 213_220
    assert facts.number("ncu_duration", CaseSubject(Case("k", "g4_b32_s24"))) == 1_200_000
    traffic = facts.get("x__traffic.sum", CaseSubject(Case("k", "g4_b32_s213220"), kernel="k(int)", launch=0))
    assert traffic is not None and (traffic.value, traffic.unit) == (1_100_000, "byte")


def test_the_details_page_with_labels_and_rules(tmp_path: Path) -> None:
    report = read(text_of("app_details"), tmp_path)
    facts = recorded(report).facts
    spilly = CaseSubject(Case("spilly_96", "g64_b128"))
    expected = {"ncu_duration": 6816.0, "instructions": 327168, "achieved_occupancy": 6.25, "ncu_registers": 32}
    assert {name: facts.number(name, spilly) for name in expected} == expected
    sm_clock = facts.get("sm_clock", spilly)
    assert sm_clock is not None and sm_clock.value is None, "SM Frequency is another metric in every other version"
    finding = next(f for f in report.results[5].findings if f.rule == "AchievedOccupancy")
    assert finding.speedup is not None and finding.message.startswith("The difference between calculated")


def test_the_long_form_that_metrics_prints_by_itself(tmp_path: Path) -> None:
    header = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    header += '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    row = '"0","1","a","h","k(int)","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","Command line profiler metrics",'
    text = f'==PROF== Connected\nits own output\n{header}{row}"gpu__time_duration.sum","usecond","1.50"\n'
    text += f'{row}"smsp__inst_executed.sum","inst","1,024"\n'
    (result,) = read(text, tmp_path).results
    assert (value(result, "smsp__inst_executed.sum"), value(result, "gpu__time_duration.sum")) == (1024, 1500)
    assert recorded(read(text, tmp_path)).facts.number("ncu_duration", CaseSubject(Case("k", "g4_b32"))) == 1500


def test_a_summary_has_averages_and_says_so(tmp_path: Path) -> None:
    report = read(text_of("app_summary"), tmp_path)
    assert [r.averaged for r in report.results] == [5, 1, 1, 1]
    facts = recorded(report).facts
    whole = CaseSubject(Case("saxpy", "g16384_b256"))
    seen = facts.get("profiled_launches", whole)
    assert seen is not None and (seen.value, seen.note) == (5, "the report is a summary: the other facts are averages")
    assert facts.number("ncu_duration", whole) == 14329.6
    assert not [f for f in facts if f.subject.launch is not None]


def test_the_source_page_lists_instructions_each_once(tmp_path: Path) -> None:
    report = read(text_of("app_source"), tmp_path)
    assert [r.kernel for r in report.results].count(SAXPY) == 5
    record = recorded(report)
    whole = CaseSubject(Case("spilly_96", "unknown"))
    assert record.facts.number("instructions", whole) == 327168
    listing = next(x for x in record.listings if x.subject.variant == "saxpy")
    first = listing.instructions[0]
    assert (first.offset, first.text, first.line, first.values["executed"]) == (0, "LDC R1, c[0x0][0x28]", 4, 131072)
    assert [i.offset for i in listing.instructions] == sorted({i.offset for i in listing.instructions})
    assert record.gpu_arch is None


def test_a_functions_lines_are_of_several_files(tmp_path: Path) -> None:
    files = {"k.cu": "0x10", "k.cuh": "0x20"}
    lines = '"Line No","Source","Address","Source","Instructions Executed"\n"7","line","-","-","4"\n'
    page = "".join(
        f'"File Path","{file}"\n"Function Name","k"\n{lines}"","","{at}","NOP","4"\n' for file, at in files.items()
    )
    (listing,) = recorded(read(page, tmp_path)).listings
    assert {i.file: hex(16 + i.offset) for i in listing.instructions} == files


def test_nvtx_ranges_are_kept(tmp_path: Path) -> None:
    text = (RECORDED / "ncu_raw_domain.csv").read_bytes().decode()
    report = read(text, tmp_path)
    assert report.results[0].ranges == ("flashcore:v0/mission",)
    launch = CaseSubject(Case("gemm_v0", "g8x8_b128"), kernel="gemm_v0", launch=0)
    assert recorded(report).facts.get("nvtx__ranges", launch) is not None


# --- both conventions -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["app_full.import_raw", "app_basic.import_raw", "app_details"])
def test_a_european_file_holds_the_same_numbers(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    point, comma = read(text, tmp_path), read(european(text), tmp_path)
    assert european(text) != text
    for one, other in zip(point.results, comma.results, strict=True):
        numbers = [m for m in one.metrics if not isinstance(one.metrics[m].value, str)]
        assert len(numbers) > 20
        assert [str(one.metrics[m].value) for m in numbers] == [str(other.metrics[m].value) for m in numbers]


# --- what is refused ------------------------------------------------------------------------------

RAW = """"ID","Kernel Name","Block Size","Grid Size","CC","a__b.sum"
{units}"0","k","(1, 1, 1)","(1, 1, 1)","9.0","{cell}"
"""
UNITS = '"","","","","","inst"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a header"),
        ("some,other,table\n1,2,3\n", "a header"),
        (RAW.format(units="", cell="1"), "a row of units"),
        (RAW.format(units=UNITS.replace("inst", "us"), cell="1,024"), "1,024 us of a__b.sum, which is 1,024 or 1.024"),
        (RAW.format(units=UNITS, cell="0.5 (x: 0,5)"), "a decimal point in 0.5 and a decimal comma in 0,5"),
        (RAW.format(units=UNITS, cell="1").rstrip('"\n'), "cut short"),
        (RAW.format(units=UNITS, cell="1").rstrip('"1\n'), "2 fields|5 fields|CSV|cut short"),
        (RAW.format(units=UNITS, cell="1").rstrip('"\n') + "\n", "CSV"),
        (RAW.format(units=UNITS, cell="1") + '"1","k"\n', "2 fields, but the header has 6"),
        (RAW.format(units=UNITS, cell="1").replace('"9.0"', '"nine"'), "compute capability"),
        (RAW.format(units=UNITS, cell="1") * 2, "expected one header, found a second"),
        ('"Function Name","k"\n"#","Source"\n"1","MOV"\n', "lines with the instructions below them"),
    ],
)
def test_what_cannot_be_read_without_guessing_is_refused_with_the_command(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RecordError, match=message) as error:
        read(text, tmp_path)
    assert "LC_ALL=C ncu --import" in str(error.value)


def test_the_command_in_a_refusal_overwrites_no_source(tmp_path: Path) -> None:
    (tmp_path / "fast.cu").write_text("__global__ void fast() {}\n")
    with pytest.raises(RecordError) as error:
        read_report(tmp_path / "fast.cu")
    assert str(error.value).endswith("> fast.csv")


def test_a_page_without_its_beginning_is_refused(tmp_path: Path) -> None:
    lines = text_of("app_source").splitlines(keepends=True)
    with pytest.raises(RecordError, match="no rows above the header"):
        read("".join(lines[10:]), tmp_path)


def test_a_result_that_is_not_there_is_said(tmp_path: Path) -> None:
    lines = text_of("app_raw_units").splitlines(keepends=True)
    record = recorded(read("".join(lines[:-3] + lines[-2:]), tmp_path))
    assert "it has no result 5" in record.stages[0].reason


# --- what ncu prints of single launches ----------------------------------------------------------

LAUNCH = "ID,Process ID,Kernel Name,Block Size,Grid Size,Device,CC"
RULES = "Rule Name,Rule Type,Rule Description,Estimated Speedup Type,Estimated Speedup"


def page(header: str, *rows: str) -> str:
    """A page of which every field is quoted; fields are separated by bars."""
    lines = [header.split(","), *(row.split("|") for row in rows)]
    return "".join(",".join(f'"{field}"' for field in line) + "\n" for line in lines)


def long(*metrics: str, launch: int = 0) -> list[str]:
    """The rows of one launch of a page of --metrics: each is a metric, a unit and a value."""
    return [f"{launch}|1|k(int)|(32, 1, 1)|(4, 1, 1)|0|9.0|profiler metrics|{metric}" for metric in metrics]


LONG = f"{LAUNCH},Section Name,Metric Name,Metric Unit,Metric Value"
SUMMARY = (
    "Process ID,Kernel Name,Block Size,Grid Size,Device,CC,Invocations,Metric Name,Metric Unit,Minimum,Maximum,Average"
)
NO_NUMBERS = ("nan", "-nan", "inf", "-nan(ind)", "1.#INF", "n/a", "N/A", "")


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("again", [1, 2])  # sections of the details page repeat metrics
def test_a_metric_without_a_number_is_unmeasured_and_the_others_are_read(text: str, again: int, tmp_path: Path) -> None:
    metrics = [
        "gpu__time_duration.sum|ns|5,000",
        *[f"smsp__inst_executed.sum|inst|{text}"] * again,
        "x__own.sum|inst|7.25",
    ]
    rows = long(*metrics) + long("gpu__time_duration.sum|ns|5,000", "smsp__inst_executed.sum|inst|8,192", launch=1)
    record = recorded(read(page(LONG, *rows), tmp_path))
    launches = [CaseSubject(Case("k", "g4_b32"), kernel="k(int)", launch=n) for n in (0, 1)]
    assert [record.facts.number("ncu_duration", s) for s in launches] == [5000, 5000]
    assert record.facts.number("instructions", launches[1]) == 8192
    missing = record.facts.get("instructions", launches[0])
    assert missing is not None and missing.value is None and missing.cause is not None


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_page_of_one_metric_without_a_number_is_read(text: str, tmp_path: Path) -> None:
    """Also under a name that the catalogue does not have."""
    rows = long(f"gpu__time_duration.sum|ns|{text}", f"x__own.sum|inst|{text or 'n/a'}")
    facts = recorded(read(page(LONG, *rows), tmp_path)).facts
    launch = CaseSubject(Case("k", "g4_b32"), kernel="k(int)", launch=0)
    for name in ("ncu_duration", "x__own.sum"):
        fact = facts.get(name, launch)
        assert fact is not None and fact.value is None and fact.cause is not None


def test_a_number_in_one_section_and_none_in_another_is_unmeasured(tmp_path: Path) -> None:
    rows = long("gpu__time_duration.sum|ns|5,000", "dram__bytes.sum|byte|n/a", "dram__bytes.sum|byte|4,096")
    (result,) = read(page(LONG, *rows), tmp_path).results
    assert value(result, "dram__bytes.sum") is None and value(result, "gpu__time_duration.sum") == 5000
    with pytest.raises(RecordError, match=r"expected one value of dram__bytes.sum for a result, found 4096"):
        read(page(LONG, *rows[:1], *long("dram__bytes.sum|byte|4,096", "dram__bytes.sum|byte|8,192")), tmp_path)


def test_a_summary_without_a_number_or_with_many_launches_is_read(tmp_path: Path) -> None:
    row = "1|k(int)|(32, 1, 1)|(4, 1, 1)|0|9.0|1,234|"
    text = page(
        SUMMARY, f"{row}gpu__time_duration.sum|ns|5,000|5,010|5,005.50", f"{row}dram__bytes.sum|byte|nan|nan|nan"
    )
    (result,) = read(text, tmp_path).results
    assert (result.averaged, value(result, "gpu__time_duration.sum")) == (1234, 5005.5)
    assert value(result, "dram__bytes.sum") is None


DETAILS = f"{LONG},{RULES}"
TIME, CYCLES = "Duration|ns|5,000", "Elapsed Cycles|cycle|9,000"
RULE = "||||SOLBottleneck|OPT|Low compute|global|12.5"


@pytest.mark.parametrize(
    "last",
    [
        [f"{TIME}|||||", f"{CYCLES}|||||"],  # no rule found anything
        [f"{TIME}|||||"],
        [f"{CYCLES}|||||"],  # a label that names no metric in every version
        [RULE.removeprefix("|")],
    ],
)
def test_a_last_launch_with_less_than_the_others_is_no_cut_page(last: list[str], tmp_path: Path) -> None:
    rows = [line for n in range(3) for line in long(f"{TIME}|||||", f"{CYCLES}|||||", RULE.removeprefix("|"), launch=n)]
    report = read(page(DETAILS, *rows, *long(*last, launch=3)), tmp_path)
    assert [r.id for r in report.results] == [0, 1, 2, 3] and not report.notes
    assert [value(r, "gpu__time_duration.sum") for r in report.results[:3]] == [5000] * 3
    assert recorded(report).outcomes


@pytest.mark.parametrize("sizes", ["(0, 0, 0)|(0, 0, 0)", "|", "n/a|n/a"])
@pytest.mark.parametrize("kind", ["graph", "range"])
def test_a_graph_or_a_range_may_end_a_page(sizes: str, kind: str, tmp_path: Path) -> None:
    graph = f"3|1|{kind}|{sizes}|0|9.0|Speed Of Light|Duration|ns|99,345|||||"
    rows = [line for n in range(3) for line in long(f"{TIME}|||||", f"{CYCLES}|||||", launch=n)]
    record = recorded(read(page(DETAILS, *rows, graph), tmp_path))
    assert record.facts.number("ncu_duration", CaseSubject(Case(kind, kind))) == 99_345


def test_a_finding_of_which_nothing_is_left_is_no_whole_row(tmp_path: Path) -> None:
    finding = RULE.removeprefix("|")
    text = page(DETAILS, *long(f"{TIME}|||||", finding))
    for end in range(text.rindex('"profiler metrics"'), len(text) - 1):
        with pytest.raises(RecordError):
            read(text[:end], tmp_path)


@pytest.mark.parametrize("form", ["details", "raw"])
def test_a_page_that_ends_within_a_row_or_a_quote_is_refused(form: str, tmp_path: Path) -> None:
    """Wherever it was cut. The details page itself leaves out empty columns of rules."""
    rows = [*long(f"{TIME}|||||", RULE.removeprefix("|")), *long(f"{CYCLES}|||||", launch=1)]
    text = page(DETAILS, *rows) if form == "details" else RAW.format(units=UNITS, cell="1024")
    last = text.rstrip("\n").rindex("\n") + 1
    whole = {len(text) - 1, *(len(text) - 1 - 3 * n for n in range(1, 6) if form == "details")}
    for end in range(last + 1, len(text)):
        if end in whole:
            assert len(read(text[:end], tmp_path).results) == (2 if form == "details" else 1)
        else:
            with pytest.raises(RecordError):
                read(text[:end], tmp_path)


def test_a_whole_last_row_needs_no_end_of_line(tmp_path: Path) -> None:
    for text in (page(LONG, *long("gpu__time_duration.sum|ns|5,000")), RAW.format(units=UNITS, cell="1,024")):
        assert len(read(text.rstrip("\n"), tmp_path).results) == 1


def test_a_page_that_ends_between_two_rows_is_read(tmp_path: Path) -> None:
    lines = text_of("app_details").splitlines(keepends=True)
    assert [r.id for r in read("".join(lines[:-30]), tmp_path).results] == [*range(8)]


def test_pages_of_early_versions_have_no_sizes_and_no_gpu(tmp_path: Path) -> None:
    header = "ID,Process ID,Process Name,Host Name,Kernel Name,Kernel Time,Context,Stream,"
    row = "|1|a|h|k(int)|2021-Nov-13 18:14:36|1|7|"
    metrics = ("gpu__time_duration.sum|nsecond|152,192", "smsp__inst_executed.sum|inst|1,024")
    text = page(
        f"{header}Section Name,Metric Name,Metric Unit,Metric Value", *(f"0{row}profiler metrics|{m}" for m in metrics)
    )
    raw = page(
        f"{header}gpu__time_duration.sum,smsp__inst_executed.sum", "|||||||||nsecond|inst"[1:], f"0{row}152,192|1,024"
    )
    for form in (text, raw):
        record = recorded(read(form, tmp_path))
        assert record.facts.number("ncu_duration", CaseSubject(Case("k", "unknown"))) == 152_192
        assert record.gpu_arch is None


# --- what ncu says beside a page ------------------------------------------------------------------

MESSAGES = """==PROF== Connected to process 4242 (/home/u/app)
==ERROR== LaunchFailed
step 1: ==ERROR== is the program's own
==WARNING== Note: Running with uncontrolled GPU caches.
==ERROR== LaunchFailed
"""


def test_what_ncu_reports_beside_a_page_are_notes(tmp_path: Path) -> None:
    text = MESSAGES + page(LONG, *long("gpu__time_duration.sum|ns|5,000"))
    report = read(text.replace("\n", "\r\n"), tmp_path)
    notes = ("==ERROR== LaunchFailed", "==WARNING== Note: Running with uncontrolled GPU caches.")
    assert report.notes == notes
    assert all(note in recorded(report).stages[0].reason for note in notes)
    assert value(report.results[0], "gpu__time_duration.sum") == 5000


@pytest.mark.parametrize(
    ("text", "quoted", "hint"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "- The user does not", "CAP_SYS_ADMIN"),
        ("==WARNING== No kernels were profiled.", "No kernels were profiled", "--target-processes all"),
        ("==PROF== No kernels were profiled.", "No kernels were profiled", "--target-processes all"),
        ("==ERROR== Failed to find metric x__y.sum", "Failed to find metric x__y.sum", "LC_ALL=C ncu --import"),
    ],
)
@pytest.mark.parametrize("header", ["", page(LONG)])
def test_what_ncu_reports_is_the_reason_of_a_page_without_results(
    text: str, quoted: str, hint: str, header: str, tmp_path: Path
) -> None:
    with pytest.raises(RecordError) as error:
        read(f"==PROF== Connected\nhello\n{text}\n{header}", tmp_path)
    reason, remedy = str(error.value).split("hint: ")
    assert quoted in reason and hint in remedy
