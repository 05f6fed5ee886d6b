"""Formats values as text for every output; compares names and suggests the nearest one.

Everywhere :func:`percentage`, :func:`bracketed` and :func:`count`; :func:`number` for verdicts, :func:`quantity` for
pages, :func:`significant` within their sentences, :func:`fixed` for terminal columns, :func:`in_words` for findings,
:func:`exact` for recorded values.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

#: A fact's value.
Value = float | int | str | bool

#: Shown for a fact without a value: never an empty cell, never 0.
UNMEASURED = "unmeasured"

#: Display names of units; all others are shown as recorded.
_UNITS = {"1": "", "text": "", "pct": "%", "us": "µs", "C": "°C"}
#: Units that pages convert: the displayed unit, and the divisor.
_SCALED = {"ns": ("µs", 1e3), "Hz": ("MHz", 1e6)}

_COLOR = re.compile("\x1b\\[[0-9;]*m")
#: Control characters except tab and line end, and characters that are not seen: for directions, of no width, fillers,
#: selectors, tags.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_CONTROL = re.compile(f"[\0-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}](?<!\r(?=\n))")


def visible(text: str) -> str:
    """The text without ANSI colors, its control and invisible characters as escapes (``\\u001b``).

    Otherwise foreign text (from a compiler, a kernel, a report) could overwrite the terminal or the page around it.
    """
    return _CONTROL.sub(lambda m: f"\\u{c:04x}" if (c := ord(m[0])) < 1 << 16 else f"\\U{c:08x}", _COLOR.sub("", text))


def matches_any(name: str, globs: Sequence[str]) -> bool:
    """Whether a glob matches, and no glob that starts with ``!`` does."""
    return any(glob == "*" or glob == name or fnmatchcase(name, glob) for glob in globs) and not any(
        glob[:1] == "!" and fnmatchcase(name, glob[1:]) for glob in globs
    )


def as_words(name: str) -> str:
    """A name as words: ``back to back``."""
    return name.replace("_", " ")


def same_hardware(one: str, other: str) -> bool:
    """Whether two archs name the same hardware: sm_90 and sm_90a do."""
    return one.rstrip("af") == other.rstrip("af")


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """`` (did you mean X?)`` with the closest name, else one that starts with ``name``, else up to three that have a
    word of it; empty if there is none. Names of templates that fill a terminal's lines are not suggested."""
    by_lower, text = {n.lower(): n for n in names if len(n) <= 100}, str(name).strip("*?").lower()
    words = [word.rstrip("s") for word in re.split("[^a-z0-9]+", text)]
    near = (
        difflib.get_close_matches(text, by_lower, n=1)
        or [n for n in by_lower if text[2:] and n.startswith(text)][:1]
        or [n for n in by_lower if any(word in n for word in words if word[2:])][:3]
    )
    return f" (did you mean {' or '.join(by_lower[n] for n in near)}?)" if near else ""


def misspelled(name: str, names: Iterable[str]) -> str:
    """The quoted name, with :func:`did_you_mean`."""
    return repr(name) + did_you_mean(name, names)


def unit_text(unit: str) -> str:
    """The unit in headings: display name, after conversion."""
    return _SCALED[unit][0] if unit in _SCALED else _UNITS.get(unit, unit)


def recorded_unit(unit: str) -> str:
    """The display name of a recorded unit, without conversion."""
    return _UNITS.get(unit, unit)


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text


def number(value: Value | None, unit: str = "") -> str:
    """A value with its unit: whole numbers exactly, others to six significant digits."""
    if value is None:
        return UNMEASURED
    if isinstance(value, (bool, str)):
        return str(value).lower() if isinstance(value, bool) else value
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
    return _with_unit(f"{int(value):,}" if whole else f"{value:,.6g}", recorded_unit(unit))


def whole(value: float) -> str:
    """``12,345``: a value rounded to a whole number."""
    return f"{value:,.0f}"


def percentage(value: float, digits: int = 0) -> str:
    """``12.5 %``, of a value in percent, to ``digits`` decimals."""
    return f"{value:,.{digits}f} %"


def share(value: float) -> str:
    """A share in whole percents, rounded down: ``6 %``; never to 0."""
    size = abs(100 * value)
    text = "0" if size == 0 else "<1" if size < 1 else f"{math.floor(size):,}"
    return f"{'−' if value < 0 else ''}{text} %"


def bracketed(low: float, high: float) -> str:
    """The interval of a ratio: ``[1.930, 1.980]``."""
    return f"[{low:.3f}, {high:.3f}]"


def count(number: int, word: str) -> str:
    """``1 error``, ``2 errors``, ``3 launches``."""
    ending = "es" if word.endswith(("ch", "s", "sh", "x")) else "s"
    return f"{number:,} {word}{'' if number == 1 else ending}"


def abbreviated(names: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 2 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")


def function_name(function: object) -> str:
    """The name of a function, or of the type of what else can be called."""
    return str(getattr(getattr(function, "func", function), "__name__", type(function).__name__))


def fixed(value: Value | None, digits: int = 1, absent: str = UNMEASURED) -> str:
    """A value for a terminal column: floats to ``digits`` decimals, others unchanged."""
    if value is None:
        return absent
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return str(value) if isinstance(value, (bool, str)) else f"{value:,}"


def significant(value: float, digits: int = 4) -> str:
    """``value`` to ``digits`` significant digits, with thousands separators.

    Integer digits are never rounded away; values below 0.001 get an exponent, so that they do not read as 0.
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -3:
        return f"{value:.{max(digits - 2, 1)}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def six_digits(value: float) -> float | int:
    """A value for a chart: integers exactly, others to six significant digits."""
    return int(value) if float(value).is_integer() else float(f"{value:.6g}")


def faster(ratio: float, than: str = "", shown: str = "") -> str:
    """A speedup in words: ``2.00 × faster than THAN``, ``0.950 × the speed of THAN``. It is never inverted.

    Args:
        ratio: the time of ``than`` over this one.
        shown: the ratio as text; by default to three significant digits.
    """
    shown = shown or significant(ratio, 3)
    if ratio >= 1:
        return f"{shown} × faster" + (f" than {than}" if than else "")
    return f"{shown} × the speed" + (f" of {than}" if than else "")


def quantity(value: Value, unit: str) -> tuple[str, str]:
    """A value and its unit as a page shows them: ``("8.81", "µs")``, ``("1,970", "MHz")``."""
    if isinstance(value, bool):
        return ("yes" if value else "no"), ""
    if isinstance(value, str):
        return value, ""
    shown, scale = _SCALED.get(unit, (recorded_unit(unit), 1))
    value = value / scale if scale != 1 else value
    if shown == "%":
        return (f"{value:,.1f}" if value == 0 or abs(value) >= 0.05 else significant(value, 2)), shown
    if shown in ("MHz", "°C"):
        return f"{value:,.0f}", shown
    if shown in ("µs", "TFLOP/s"):
        return significant(value, 4 if shown == "µs" else 3), shown
    for step, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= step:
            return significant(value / step), f"{prefix}{shown}"
    return (f"{value:,.0f}" if float(value).is_integer() else significant(value)), shown


def exact(value: Value, unit: str) -> str:
    """The value as recorded, without rounding."""
    shown = f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return _with_unit(shown, recorded_unit(unit))


def in_words(value: float, unit: str, *, sign: bool = False) -> str:
    """A value for a sentence: ``0.41 µs``, ``+9 KiB``, ``−12.5 points``."""
    if unit == "B" and abs(value) >= 1024:
        value, unit = value / 1024, "KiB"
    size = abs(value)
    digits = f"{size:,.0f}" if size >= 1000 or float(size).is_integer() else f"{size:.3g}"
    lead = "−" if value < 0 else "+" if sign and value > 0 else ""
    return lead + _with_unit(digits, "points" if sign and unit == "pct" else recorded_unit(unit))


def shortened(value: object) -> str:
    """The ``repr`` of any value for an error message, in at most 100 characters."""
    text = f"a {value.bit_length()}-bit integer" if isinstance(value, int) and abs(value) > 1e30 else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
