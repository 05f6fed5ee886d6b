"""The file decides how its numbers are to be read, never a value by itself."""

from __future__ import annotations

import math

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
    assert numerals.decimal_mark(cells) == mark


@pytest.mark.parametrize("cells", [["117.344"], ["117,344", "12"], ["65,77", "0.5"], ["1,234.5", "1.234,5"]])
def test_what_cannot_be_told_is_refused(cells: list[str]) -> None:
    with pytest.raises(numerals.Undecided):
        numerals.decimal_mark(cells)


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
    ],
)
def test_a_number_is_read_by_its_files_convention(text: str, mark: str, value: float | None) -> None:
    result = numerals.number(text, mark)
    assert result == value and type(result) is type(value)


def test_a_word_for_no_number_is_nan() -> None:
    result = numerals.number("nan", ".")
    assert result is not None and math.isnan(result)
