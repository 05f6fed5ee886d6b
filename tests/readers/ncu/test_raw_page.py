"""ncu's CSV: what was recorded on an H200 reads as it should, and nothing broken reads as a value."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcore.readers.ncu.numerals import convert
from flashcore.readers.ncu.raw_page import NVTX_COLUMN, LayoutError, RawTable, cell, numbers_in, parse, ranges_of
from flashcore.readers.ncu.results import EXECUTED, MetricReading, Result
from tests.recorded import RECORDED

NVTX = f"{NVTX_COLUMN}:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
HEADER = ["ID", "Process ID", NVTX, "Kernel Name", "Block Size", "Grid Size", "Device", "CC"]


def recorded(name: str) -> str:
    return (RECORDED / name).read_bytes().decode()


def table(metrics: dict[str, tuple[str, list[str]]], ranges: list[str]) -> str:
    """A CSV as ncu prints it: metric → (unit, a value per row), and the range of each row."""
    rows = [[*HEADER, *metrics], [""] * len(HEADER) + [unit for unit, _ in metrics.values()]]
    for i, name in enumerate(ranges):
        nvtx = f'9  "flashcore:{name}:none:none:RGB:0xff:REGISTERED:{name}" '
        rows.append([str(i), "9", nvtx, "k", "(128, 1, 1)", "(8, 2, 1)", "0", "9.0"])
        rows[-1] += [values[i] for _, values in metrics.values()]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def reading(text: str) -> MetricReading:
    """The reading of a launch whose only metric has this cell."""
    return Result(0, "k", "kernel", (1, 1, 1), (1, 1, 1), (9, 0), {"m__a.sum": cell(text)}).read("m__a.sum")


def range_of(text: str, domain: str) -> str | None:
    return Result(0, "k", "kernel", (1, 1, 1), (1, 1, 1), (9, 0), {}, ranges_of(text)).range_in(domain)


SMALL = table({"m__a.sum": ("inst", ["1,234", "5"]), "m__b.pct": ("%", ["6.25", "n/a"])}, ["v/s", "w/s"])


# --- what was recorded ---------------------------------------------------------------------------


def test_recorded_ranges_of_our_domain() -> None:
    parsed = parse(recorded("ncu_raw_domain.csv"))
    assert list(parsed.by_range()) == [f"v{i}/mission" for i in range(8)]
    assert parsed.notes == () and not parsed.suspects
    row = parsed.rows[2]
    assert (row.kernel, row.grid, row.block, row.cc) == ("gemm_v2", (4, 8, 1), (128, 1, 1), (9, 0))
    duration = row.read("gpu__time_duration.sum")
    assert (duration.value, duration.unit) == (15744.0, "ns")
    opcodes = row.read("sass__inst_executed_per_opcode")
    assert opcodes.value == 552576 and opcodes.instances is not None
    assert opcodes.instances["BAR"] == 2048 and sum(opcodes.instances.values()) == opcodes.value
    assert row.read("launch__occupancy_limit_registers").value == 4  # "4 (0: 4)"
    assert row.read("launch__kernel_name").value is None


def test_what_single_instructions_did_is_read_though_its_name_has_no_unit() -> None:
    text = table({"memory_l1_wavefronts_shared": ("", ["6 (0x7f00: 4; 0x7f10: 2)"])}, ["v/s"])
    (row,) = parse(text).rows
    assert row.read("memory_l1_wavefronts_shared").instances == {"0x7f00": 4, "0x7f10": 2}


def test_recorded_case_of_many_kernels() -> None:
    text = recorded("ncu_raw_multi_kernel.csv")
    groups = parse(text, domain="<default domain>").by_range()
    assert {name.removeprefix("sdpa_"): len(rows) for name, rows in groups.items()} == {
        "FLASH_ATTENTION": 2, "EFFICIENT_ATTENTION": 1, "CUDNN_ATTENTION": 1, "MATH": 14,
    }  # fmt: skip
    assert [row.read("gpu__time_duration.sum").value for row in groups["sdpa_FLASH_ATTENTION"]] == [7648, 5728]
    assert parse(text).by_range() == {}, "another domain's ranges are none of ours"


def test_a_metric_that_ncu_left_out_is_no_value() -> None:
    result = parse(SMALL).rows[0].read("smsp__inst_executed_barrier.sum")
    assert (result.value, result.note) == (None, "ncu did not return it")


# --- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("0.57", 0.57), ("536,870,912", 536870912.0), ("+3", 3.0), ("1,234.50", 1234.5), ("1.5e+09", 1.5e9)],
)
def test_numbers(text: str, value: float) -> None:
    assert reading(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "n/a", "(n/a)", "N/A", "-", "nan", "-nan", "inf", "-Infinity", "1,23", "12,5", "1.2.3", "0x7f",
        "all", "1e999", "(0: gemm_v0)", "nan (IMAD: 1)", "１２", "1e308", "-1e31", "-3", "1" + "0" * 400, "9" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_number_is_no_value_and_says_so(text: str) -> None:
    result = reading(text)
    assert result.value is None and result.note.startswith("ncu gave")
    assert (result.note == "ncu gave an empty value") == (not text.strip())


def test_instances() -> None:
    result = reading("2,627 (IMAD: 2,000; HMMA.16816.F32: 600; BAR: 27)")
    assert result.value == 2627 and result.instances == {"IMAD": 2000, "HMMA.16816.F32": 600, "BAR": 27}
    assert reading("1 (0: 0-15)").instances is None
    assert reading("1 (A: 1; A: 2)").instances is None
    assert reading("1 (A: 2; A: -1)").instances is None
    assert reading("1 (A: 1e308; B: 1e308)").instances is None, "their sum is not finite"
    assert reading("7").instances is None


@pytest.mark.parametrize(
    ("value", "unit", "wanted", "expected"),
    [
        (5, "ns", "ns", 5), (5, "us", "ns", 5000), (5, "usecond", "ns", 5000), (2, "ms", "ns", 2e6),
        (1, "s", "ns", 1e9),
        (5, "byte", "B", 5), (5, "byte/block", "B", 5), (1.5, "Kbyte", "B", 1500), (2, "Gbyte", "B", 2e9),
        (3, "Mbyte", "B", 3e6), (3, "Tbyte", "B", 3e12),
        (7, "%", "pct", 7), (7, "", "pct", None), (7, "inst", "pct", None), (7, "byte", "pct", None),
        (3, "", "1", 3), (3, "inst", "1", 3), (3, "register/thread", "1", 3), (3, "SM", "1", 3), (3, "cycle", "1", 3),
        (3, "%", "1", None), (3, "Kinst", "1", None), (3, "byte", "1", None), (3, "ns", "1", None),
        (1.9, "Ghz", "Hz", 1.9e9), (4, "hz", "Hz", 4), (1.5, "cycle/nsecond", "Hz", 1.5e9), (9, "cycle/s", "Hz", 9),
        (3, "inst/warp", "1", 3), (3, "sectors", "1", 3), (3, "branches", "1", 3), (3, "ops", "1", 3),
        (3, "minute", "1", None), (3, "hour", "1", None), (3, "joule", "1", None), (3, "inst/cycle", "1", None),
        (3, "mwarp", "1", None), (3, "dB", "1", None), (3, "mole", "1", None), (3, "/warp", "1", None),
        (3, "inst/second", "1", None), (3, "parsec", "ns", None), (3, "ns", "B", None), (3, "byte/s", "B", None),
    ],
)  # fmt: skip
def test_units(value: float, unit: str, wanted: str, expected: float | None) -> None:
    result = convert(value, unit, wanted)
    assert result == (None if expected is None else pytest.approx(expected))


def test_a_field_of_many_instances_is_read_whole() -> None:
    # A large kernel's per-instruction instances fill more than 128 KiB, the csv module's default limit.
    long = "7 (" + "; ".join(f"{140000000000000 + n}: 1" for n in range(12000)) + ")"
    assert len(long) > 200_000
    parsed = parse(table({"sass__inst_executed": ("inst", [long])}, ["v/s"]))
    assert parsed.notes == ()
    assert parsed.rows[0].read("sass__inst_executed").value == 7


def test_range_of_nested_and_foreign_ranges() -> None:
    ours = '"flashcore:v0/mission:none:none:RGB:0xff:REGISTERED:v0/mission"'
    inner = '"flashcore:v1/tail:none:none:RGB:0xff:REGISTERED:v1/tail"'
    torch = '"<default domain>:aten::mm:none:none:none:none:none:none"'
    assert range_of(f"831  {ours} ", "flashcore") == "v0/mission"
    assert range_of(f"831  {ours} {inner} {torch} ", "flashcore") == "v1/tail"
    assert range_of(f"831  {torch} ", "flashcore") is None
    assert range_of("", "flashcore") is range_of('9  "flashcore"', "flashcore") is None
    assert range_of('9  "flashcore:v/s"', "flashcore") == "v/s"


# --- broken text ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.\n", "No kernels|==PROF=="),
        ("\x7fELF\x00 garbage", "garbage"),
        (SMALL.replace('"Grid Size"', '"Grid"'), "expected the columns Grid Size; found ID, Process ID"),
        (SMALL.replace(NVTX_COLUMN, "NVTX"), "profile with --nvtx"),
        (SMALL.replace(",", ";"), "semicolons"),
        (SMALL.replace("6.25", "6,25"), "decimal comma"),
        (SMALL.replace("1,234", "1.234,50"), "decimal comma"),
        (SMALL[:40], "damaged"),
        ("".join(SMALL.splitlines(keepends=True)[::2]), "expected a row of units"),
    ],
)
def test_another_layout_is_refused(text: str, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        parse(text)


def test_chatter_around_and_between_the_rows() -> None:
    head, *lines = SMALL.splitlines(keepends=True)
    noisy = "".join(
        ["hi\n", "==PROF== Connected\n", head, *lines[:2], "==WARNING== x\n", "\n", *lines[2:], "==PROF== x\n"]
    )
    assert parse(noisy) == parse(SMALL)
    assert parse("\ufeff" + SMALL.replace("\n", "\r\n")) == parse(SMALL)


def test_a_torn_row_is_dropped_and_its_neighbours_are_suspect() -> None:
    text = table({"m__a.sum": ("inst", ["1", "2", "3", "4"])}, ["a/s", "b/s", "c/s", "d/s"])
    lines = text.splitlines(keepends=True)
    lines[3] = lines[3][:30] + "\n"  # the row of b
    parsed = parse("".join(lines))
    assert [row.range_in("flashcore") for row in parsed.rows] == ["a/s", "c/s", "d/s"]
    assert parsed.suspects == {"a/s", "c/s"}
    assert len(parsed.notes) == 1 and parsed.notes[0].startswith("line 4: damaged")


def test_a_row_of_other_width_or_without_its_sizes_is_dropped() -> None:
    lines = SMALL.splitlines(keepends=True)
    wide = parse("".join([*lines[:2], lines[2].replace('"6.25"', '"6.25","7"'), lines[3]]))
    assert [row.id for row in wide.rows] == [1] and "11 fields, but the header has 10" in wide.notes[0]
    blind = parse(SMALL.replace('"(8, 2, 1)"', '"8x2"', 1))
    assert [row.id for row in blind.rows] == [1] and "8x2" in blind.notes[0]


def lines_of_four() -> list[str]:
    text = table({"m__a.sum": ("inst", ["1", "2", "3", "4"])}, ["a/s", "b/s", "c/s", "d/s"])
    return text.splitlines(keepends=True)


@pytest.mark.parametrize("lost", [[2], [3], [4], [3, 4], [2, 3]])
def test_a_row_that_is_not_there_is_missed(lost: list[int]) -> None:
    lines = lines_of_four()
    parsed = parse("".join(line for i, line in enumerate(lines) if i not in lost))
    near = {"abcd"[i - 2] + "/s" for i in (min(lost) - 1, max(lost) + 1) if i >= 2}
    assert parsed.suspects == near
    assert len(parsed.notes) == 1 and "expected ID" in parsed.notes[0]


@pytest.mark.parametrize("order", [(2, 2, 3), (2, 3, 2), (2, 3, 3), (3, 2, 4), (2, 3, 4, 5, 2, 3, 4, 5)])
def test_a_row_twice_or_out_of_turn_is_refused(order: tuple[int, ...]) -> None:
    lines = lines_of_four()
    with pytest.raises(LayoutError, match="expected rising IDs, found"):
        parse("".join([*lines[:2], *(lines[i] for i in order)]))


def test_two_reports_in_one_text_are_refused() -> None:
    with pytest.raises(LayoutError, match="expected one header, found a second on line 5"):
        parse(SMALL + SMALL)


def test_a_column_twice_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"expected each column once, found m__a\.sum several times"):
        parse(SMALL.replace("m__b.pct", "m__a.sum"))


@pytest.mark.parametrize(
    ("old", "new"), [('"0","9"', f'"{"9" * 5000}","9"'), ("(8, 2, 1)", f"({'9' * 5000}, 1, 1)"), ("9.0", "9" * 5000)]
)
def test_integers_of_any_length_are_a_torn_row(old: str, new: str) -> None:
    parsed = parse(SMALL.replace(old, new, 1))
    assert [row.id for row in parsed.rows] == [1] and len(parsed.notes[0]) < 400
    assert parsed.suspects == {"w/s"}


def test_a_header_without_rows() -> None:
    lines = SMALL.splitlines(keepends=True)
    for text in (lines[0], "".join(lines[:2]), lines[0] + lines[1][:20]):
        assert parse(text).rows == ()


def assert_prefix(part: RawTable, whole: RawTable) -> None:
    assert part.rows == whole.rows[: len(part.rows)]


def test_truncated_at_every_byte_nothing_is_invented() -> None:
    whole = parse(SMALL)
    assert len(whole.rows) == 2
    for end in range(len(SMALL)):
        try:
            part = parse(SMALL[:end])
        except LayoutError:
            assert end < SMALL.index("\n") + 1, "the header is whole: its rows can be told"
            continue
        assert_prefix(part, whole)
        assert len(part.rows) < 2


SEVERAL_KERNELS = recorded("ncu_raw_multi_kernel.csv")
WHOLE = parse(SEVERAL_KERNELS, domain="<default domain>")


@settings(max_examples=60, deadline=None)
@given(end=st.integers(0, len(SEVERAL_KERNELS) - 1))
def test_recorded_truncated_anywhere_nothing_is_invented(end: int) -> None:
    try:
        part = parse(SEVERAL_KERNELS[:end], domain="<default domain>")
    except LayoutError:
        return
    assert_prefix(part, WHOLE)
    if part.notes and part.rows:
        assert part.rows[-1].range_in("<default domain>") in part.suspects


@settings(max_examples=100, deadline=None)
@given(noise=st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.decode(errors="replace")))
def test_noise_is_refused_or_empty(noise: str) -> None:
    try:
        parsed = parse(noise)
    except LayoutError:
        return
    assert parsed.rows == ()


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}/[a-z][a-z0-9_]{0,12}", fullmatch=True)
VALUES = st.integers(0, 10**15).map(lambda n: (f"{n:,}", float(n))) | st.integers(0, 10**12).map(
    lambda n: (f"{n / 100:,.2f}", float(f"{n / 100:.2f}"))
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(NAMES, VALUES, VALUES), min_size=1, max_size=6))
def test_round_trip(rows: list[tuple[str, tuple[str, float], tuple[str, float]]]) -> None:
    text = table(
        {"m__a.sum": ("byte", [a for _, (a, _), _ in rows]), "m__b.avg": ("%", [b for *_, (b, _) in rows])},
        [name for name, *_ in rows],
    )
    parsed = parse(text)
    assert parsed.notes == ()
    got = [(r.range_in("flashcore"), r.read("m__a.sum").value, r.read("m__b.avg").value) for r in parsed.rows]
    assert got == [(name, a, b) for name, (_, a), (_, b) in rows]
    assert {r.read("m__a.sum").unit for r in parsed.rows} == {"byte"}


def test_another_layout_names_what_it_has_and_a_torn_header_its_end() -> None:
    names = [f"c{i}" for i in range(17)]
    line = ",".join(f'"{c}"' for c in ["ID", "Process ID", *names]) + "\n"
    with pytest.raises(LayoutError, match=r"found ID, Process ID, c0, .*c13, …\. "):
        parse(line)
    with pytest.raises(LayoutError, match=r"found ID, Process ID, c0\. "):
        parse('"ID","Process ID","c0"\n')
    with pytest.raises(LayoutError) as error:
        parse('"ID","Process ID",' + ",".join(f'"{c}"' for c in names) + ',"the torn end')
    assert "the torn end" in str(error.value) and '"ID"' not in str(error.value).partition("(")[2]


def test_a_row_keeps_metrics_and_what_was_executed_alone() -> None:
    row = parse(table({"m__a.sum": ("inst", ["1"]), "Aaa": ("", ["2"]), EXECUTED: ("", ["3"])}, ["v/s"])).rows[0]
    assert set(row.metrics) == {"m__a.sum", EXECUTED}


@pytest.mark.parametrize(
    ("text", "numbers"), [("7.5", ["7.5"]), (" 3 (a: 1; b::c: 2)", ["3", "1", "2"]), ("no number", ["no number"])]
)
def test_a_cell_has_the_numbers_of_its_instances(text: str, numbers: list[str]) -> None:
    assert list(numbers_in(text)) == numbers
