"""nvcc's flags, and what its shell would not pass unchanged."""

from __future__ import annotations

import pytest

from flashcore.build.nvcc_command import compile_flags, refuse_unsafe
from flashcore.errors import UsageError
from flashcore.suites import load
from tests.conftest import TOY


def test_debug_flags() -> None:
    loaded = load.load(TOY)
    flags = compile_flags(loaded, loaded.variants["wide"], "sm_90a", debug=True)
    assert "-G" in flags and "-DDEBUG=1" in flags and "-O3" not in flags
    assert "-DELEMENTS=4" in flags


@pytest.mark.parametrize("text", ["a\nrule x", "$(touch x)", "`touch x`", 'a"b', "a\\", "\0", "-I/it's/build"])
def test_what_a_shell_would_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a path or flag that nvcc passes unchanged"):
        refuse_unsafe([text])


def test_other_odd_characters_are_taken() -> None:
    refuse_unsafe(["a b", "it's", "a;b&(c)|<d>", "ü", "#"])
