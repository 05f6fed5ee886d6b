"""The file decides how its numbers are to be read, never a value by itself."""

from __future__ import annotations

import pytest

from flashcore.readers.ncu import numerals


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        (["27.595.520", "117.344"], ","),  # 117,344 ns: the first says so
        (["65,77", "117.344"], ","),
        (["27,595,520", "117,344"], "."),
        (["65.77", "117,344"], "."),
        (["0,123"], ","),
        (["1234.567"], "."),
        (["1.234,5"], ","),
        (["12", "saxpy(int, float)", "9.000000", "2,614000", "(256, 1, 1)"], "."),  # nothing that differs
        ([], "."),
    ],
)
def test_what_only_one_convention_can_have_written_decides(cells: list[str], mark: str) -> None:
    assert numerals.decimal_mark((cell, "sm__a.ratio", "") for cell in cells) == mark


@pytest.mark.parametrize(
    ("cell", "metric", "unit", "mark"),
    [
        ("12,345", "gpu__time_duration.sum", "ns", "."),
        ("12.345", "gpu__time_duration.sum", "nsecond", ","),
        ("1,024", "smsp__inst_executed.sum", "inst", "."),
        ("1.024", "smsp__inst_executed.max", "inst", ","),
        ("4,096", "dram__bytes.sum", "byte", "."),
        ("1,024", "launch__grid_size", "", "."),
        ("48,128", "launch__shared_mem_per_block_dynamic", "byte/block", "."),
        ("2.048", "device__attribute_max_threads_per_multiprocessor", "", ","),
        ("45,678", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", ","),
        ("45.678", "l1tex__t_sector_hit_rate.pct", "%", "."),
    ],
)
def test_where_no_number_decides_its_metric_and_unit_do(cell: str, metric: str, unit: str, mark: str) -> None:
    """Counts, bytes and nanoseconds are whole, and no share is 1,000 % and more."""
    assert numerals.decimal_mark([(cell, metric, unit)]) == mark


def test_a_number_of_one_form_decides_against_metrics_and_units() -> None:
    cells = [("999.744", "gpu__time_duration.sum", "ns"), ("1234.567", "gpu__time_duration.sum", "ns")]
    assert numerals.decimal_mark(cells) == "."


@pytest.mark.parametrize(
    ("cell", "metric", "unit", "readings"),
    [
        ("12,345", "gpu__time_duration.sum", "usecond", "12,345 or 12.345"),
        ("1.234", "dram__bytes.sum", "Kbyte", "1.234 or 1,234"),
        ("1,234", "sm__cycles_elapsed.avg", "cycle", "1,234 or 1.234"),
        ("1,234", "launch__waves_per_multiprocessor", "", "1,234 or 1.234"),
        ("5,706", "derived__pct_occupancy_per_block_size", "%", "5,706 or 5.706"),
    ],
)
def test_where_two_readings_remain_both_are_named(cell: str, metric: str, unit: str, readings: str) -> None:
    with pytest.raises(numerals.Undecided, match=f"{cell} {unit} of {metric}, which is {readings}"):
        numerals.decimal_mark([(cell, metric, unit)])


@pytest.mark.parametrize("cells", [["117.344"], ["117,344", "12"], ["65,77", "0.5"], ["1,234.5", "1.234,5"]])
def test_what_cannot_be_told_is_refused(cells: list[str]) -> None:
    with pytest.raises(numerals.Undecided):
        numerals.decimal_mark((cell, "sm__a.ratio", "") for cell in cells)


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [
        ("117.344", ",", 117344),
        ("117.344", ".", 117.344),
        ("27.595.520", ",", 27595520),
        ("65,77", ",", 65.77),
        ("1.234,5", ",", 1234.5),
        ("1,234.50", ".", 1234.5),
        ("5706.000000", ",", 5706.0),
        ("18446744073709551615", ".", 2**64 - 1),
        ("-3", ".", -3),
        ("1e-3", ".", 0.001),
        ("12,34", ".", None),
        ("1,2345.6", ".", None),
        ("PolicySpread", ".", None),
        ("", ".", None),
        ("0x7f", ".", None),
        ("nan", ".", None),
    ],
)
def test_a_number_is_read_by_its_files_convention(text: str, mark: str, value: float | None) -> None:
    result = numerals.number(text, mark)
    assert result == value and type(result) is type(value)


def test_metrics_that_contradict_each_other_are_refused() -> None:
    cells = [("12,345", "gpu__time_duration.sum", "ns"), ("45,678", "l1tex__t_sector_hit_rate.pct", "%")]
    with pytest.raises(numerals.Undecided, match=r"a decimal point in 12,345 ns .* and a decimal comma in 45,678 %"):
        numerals.decimal_mark(cells)
