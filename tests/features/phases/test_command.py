"""`flashcore phases`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from tests.conftest import ROOT, TOY, flashcore, hide_disassembler

SOFTMAX = ROOT / "examples" / "row_softmax"


def test_a_kernel_without_markers_is_told_what_to_include_and_where(
    compiler: toolchain.Nvcc, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_disassembler(monkeypatch)
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)  # no operator
    assert main(["phases", "plain", "--suite", str(TOY), "--build-dir", str(tmp_path), "-q"]) == Exit.USAGE
    error = capsys.readouterr().err
    assert "scale.cu: expected a kernel that marks its phases, found no #include <flashcore/phases.cuh>" in error
    assert "FLASHCORE_ROLE(phases, " in error and "FLASHCORE_PHASE(phases, " in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["torch_mul"], "torch_mul: expected the name of a variant with a CUDA source"),
        (["pla*"], "pla*: expected the name of a variant with a CUDA source"),
        (["none"], "expected a glob matching one of"),
        (["plain", "--shape", "large"], "--shape large: expected one of"),
        (["plain", "--events", "0"], "--events 0: expected 1 to 4096"),
        (["plain", "--events", "4097"], "--events 4097: expected 1 to 4096"),
    ],
)
def test_wrong_words_are_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["phases", *words, "--suite", str(TOY), "-q"]) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_a_marked_kernel_needs_a_gpu(
    compiler: toolchain.Nvcc, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_disassembler(monkeypatch)
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)
    monkeypatch.setattr(Gpu, "find", lambda: None)
    assert main(["phases", "warp", "--suite", str(SOFTMAX), "--build-dir", str(tmp_path), "-q"]) == Exit.INCAPABLE
    assert "no GPU on this machine" in capsys.readouterr().err


# --- on a GPU -----------------------------------------------------------------------------------


def recorded(folder: Path, suite: Path, *words: str) -> tuple[dict[str, Any], str]:
    """The trace and the page of a variant."""
    paths = ("--build-dir", str(folder / "build"), "-o", "phases.html", "--trace", "trace.json")
    done = flashcore("phases", *words, "--suite", str(suite), *paths, cwd=folder)
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    return json.loads((folder / "trace.json").read_text()), (folder / "phases.html").read_text(encoding="utf-8")


def by_warp(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    warps: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            warps[event["pid"], event["tid"]].append(event)
    return warps


@pytest.mark.gpu
@pytest.mark.usefixtures("whole_cuda_headers")
def test_an_example_is_recorded_and_full_buffers_are_said(tmp_path: Path) -> None:
    trace, page = recorded(tmp_path, SOFTMAX, "warp", "--shape", "main")
    overhead = re.search(r"overhead: ([\d.]+) µs .* ([\d.]+) times as long", page)
    call = re.search(r"a call of ([\d.]+) µs", page)
    assert overhead and call and 0.9 < float(overhead[2]) < 3
    # The clocks' scale: what was recorded fits the call, whose time two events bound from above.
    end = max(e["ts"] + e["dur"] for events in by_warp(trace).values() for e in events)
    assert 0.2 * float(overhead[1]) < end <= 1.02 * float(call[1]) + 1
    for events in by_warp(trace).values():
        assert [e["name"] for e in events] == ["(unmarked)", "maximum", "sum", "write"]
        assert {e["cat"] for e in events} == {"row"}
        assert all(e["dur"] > 0 for e in events[1:])
    short, page = recorded(tmp_path, SOFTMAX, "warp", "--shape", "main", "--events", "2")
    for events in by_warp(short).values():
        assert [e["name"] for e in events] == ["(unmarked)", "maximum"]  # where `sum` ends was dropped
    assert "later phases had no place and are missing (raise --events)" in page
