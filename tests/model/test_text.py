"""How values read, in each of the styles, and which name is suggested."""

from __future__ import annotations

import pytest

from flashcore.model.record import Value
from flashcore.model.text import (
    did_you_mean,
    exact,
    fixed,
    in_words,
    number,
    quantity,
    shortened,
    significant,
    unit_text,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1024, "B", "1,024 B"),
        (30.0, "pct", "30 %"),
        (8.75, "us", "8.75 µs"),
        (128.4, "1", "128.4"),
        (None, "B", "unmeasured"),
    ],
)
def test_numbers_read_well(value: Value | None, unit: str, text: str) -> None:
    assert number(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0, "1", ("0", "")),
        (1234567, "1", ("1.235", "M")),
        (96, "1", ("96", "")),
        (99_840, "B", ("99,840", "B")),
        (2_097_152, "B", ("2.097", "MB")),
        (8812, "ns", ("8.812", "µs")),
        (2870.4, "us", ("2,870", "µs")),
        (0.0004, "pct", ("4.0e-04", "%")),
        (0.004, "pct", ("0.0040", "%")),
        (1.97e9, "Hz", ("1,970", "MHz")),
        (3.2e-5, "1", ("3.20e-05", "")),
        (True, "1", ("yes", "")),
        ("registers", "text", ("registers", "")),
    ],
)
def test_quantities(value: float | int | str, unit: str, shown: tuple[str, str]) -> None:
    assert quantity(value, unit) == shown


def test_rounding_never_makes_a_zero() -> None:
    for exponent in range(-12, 12):
        assert float(significant(3 * 10.0**exponent).replace(",", "")) > 0


def test_values_are_said_for_reading() -> None:
    assert in_words(37888, "B") == "37 KiB"
    assert in_words(-9216, "B", sign=True) == "−9 KiB"
    assert in_words(12.5, "pct", sign=True) == "+12.5 points"
    assert in_words(0.4125, "us") == "0.412 µs"
    assert in_words(1_234_567, "1") == "1,234,567"


def test_a_column_keeps_its_digits_and_is_never_empty() -> None:
    assert [fixed(v, 2) for v in (1234.5, 7, "warps", None)] == ["1,234.50", "7", "warps", "unmeasured"]
    assert fixed(None, absent="-") == "-"


def test_a_recorded_value_stands_in_its_own_unit() -> None:
    assert (exact(12345.678, "ns"), exact(3, "1"), exact("none", "text")) == ("12,345.678 ns", "3", "none")
    assert exact(8.8125, "us") == "8.8125 µs"
    assert [unit_text(u) for u in ("ns", "Hz", "pct", "1", "B")] == ["µs", "MHz", "%", "", "B"]


@pytest.mark.parametrize(("length", "shown"), [(98, 98), (100, 100), (101, 100), (500, 100)])
def test_a_long_value_is_cut_to_a_hundred_characters(length: int, shown: int) -> None:
    text = shortened("x" * (length - 2))  # with its quotes
    assert len(text) == shown and text.endswith("...") == (length > 100)


def test_a_column_has_one_digit_unless_it_says_otherwise() -> None:
    assert [fixed(v) for v in (1.26, 1000.0, True)] == ["1.3", "1,000.0", "True"]


def test_the_nearest_name_is_offered_and_only_a_near_one() -> None:
    known = ("registers", "spill_store_bytes", "NVIDIA H200")
    for near, at in {"regsters": 0, "spill_stores_*": 1, "spill*": 1, "my_spills": 1, "nvidia h20": 2}.items():
        assert did_you_mean(near, known) == f" (did you mean {known[at]}?)"
    two = ["bytes_of_spill_stores", "bytes_of_spill_loads"]
    assert did_you_mean("spills", two) == f" (did you mean {' or '.join(two)}?)"
    for far in ("occupancy", "*", "r", 9.5):
        assert did_you_mean(far, known) == ""
    assert did_you_mean("x", ()) == did_you_mean("reduce", [f"reduce<{'policy,' * 40}>"]) == ""
