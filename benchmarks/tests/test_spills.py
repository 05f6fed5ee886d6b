"""The output of the benchmark of spill bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import spills
from flashcore.errors import UsageError

ROWS = ["13.0.88 sm_80 a 8 8 8 8", "13.0.88 sm_80 b 8 8", "13.0.88 sm_90a a 8 8 8 8", "9.2.1 sm_80 a 4 4"]


def test_each_compiler_has_a_line() -> None:
    assert spills.table({"kernels": ROWS}) == [
        "ptxas 9.2.1     sm_80 1 unmeasured",
        "ptxas 13.0.88   sm_80 1 equal, 1 unmeasured; sm_90a 1 equal",
    ]


def test_a_value_that_differs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for more, code in (([], 0), (["13.0.88 sm_80 c 8 8 8 4"], 1)):
        monkeypatch.setattr(spills, "measure", lambda _, rows=more: {"kernels": ROWS + rows})
        assert spills.main([]) == code


def test_only_a_missing_arch_is_passed_over(tmp_path: Path) -> None:
    compiler = tmp_path / "ptxas"
    compiler.write_text('#!/bin/sh\necho "$(cat "$4")" >&2; exit 1\n')
    compiler.chmod(0o755)
    source = tmp_path / "code.ptx"
    source.write_text("Value 'sm_80' is not defined for option 'gpu-name'")
    assert spills.compared(compiler, "sm_80", source) == []
    source.write_text("syntax error")
    with pytest.raises(UsageError, match="syntax error"):
        spills.compared(compiler, "sm_80", source)


def test_the_kernels_spill_in_every_way() -> None:
    text = spills.ptx()
    assert text.count(".visible .entry") == 30
    assert "bra AGAIN" in text and "st.local" in text and text.count("call.uni") == 18
