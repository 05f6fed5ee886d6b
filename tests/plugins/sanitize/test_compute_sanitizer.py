"""compute-sanitizer: where it is found, and its counts read as it writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.errors import CapabilityError
from flashcore.measure.machine import toolchain
from flashcore.plugins.sanitize import compute_sanitizer
from flashcore.plugins.sanitize.compute_sanitizer import Report, parse
from tests.conftest import TESTS

STANDIN = TESTS / "standins" / "compute-sanitizer"


def test_without_the_tool_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(compute_sanitizer, "_PLACES", (tmp_path,))
    with pytest.raises(CapabilityError, match="install"):
        compute_sanitizer.find_sanitizer()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "compute-sanitizer").symlink_to(STANDIN)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert compute_sanitizer.find_sanitizer() == tmp_path / "bin" / "compute-sanitizer"


def test_its_version(tmp_path: Path) -> None:
    assert toolchain.tool_version(STANDIN) == "2025.3.1.0"
    assert toolchain.tool_version(tmp_path / "absent") is None


def test_a_report_without_errors_and_warnings_is_clean() -> None:
    assert [Report(*counts).clean for counts in ((0, 0), (1, 0), (0, 1))] == [True, False, False]


def test_counts_are_read_as_the_tool_writes_them() -> None:
    head = "========= COMPUTE-SANITIZER\n"
    assert parse(head + "========= ERROR SUMMARY: 0 errors\n", "memcheck") == Report(0)
    many = (
        head
        + "========= Invalid __shared__ read of size 2 bytes\n=========     at k+0x10\n"
        + "========= ERROR SUMMARY: 1,234 errors\n"
        + "========= ERROR SUMMARY: 1134 errors were not printed. Use --print-limit option to adjust\n"
    )
    assert parse(many, "memcheck") == Report(1234, 0, "Invalid __shared__ read of size 2 bytes at k+0x10")
    one = head + "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    assert parse(one, "racecheck") == Report(0, 1)
    assert isinstance(parse(one, "memcheck"), str), "a count of the other tool is none"
    silent = parse(
        head + "========= Error: Target application terminated before first instrumented API call\n", "memcheck"
    )
    assert isinstance(silent, str) and "before first instrumented" in silent
    assert isinstance(parse("", "racecheck"), str)
