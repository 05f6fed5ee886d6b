"""`flashcore phases`."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.measure.machine import toolchain
from flashcore.measure.machine.gpu import Gpu
from tests.conftest import ROOT, TOY, flashcore, hide_disassembler

ATTENTION, SOFTMAX = ROOT / "kernels" / "attention", ROOT / "examples" / "row_softmax"


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
        (["plain", "--blocks", "-1"], "--blocks -1: expected 1 to 4096"),
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
def test_the_warps_of_a_pipeline_have_their_roles_and_phases_in_order(tmp_path: Path) -> None:
    trace, page = recorded(tmp_path, ATTENTION, "warp_specialized", "--shape", "mission", "--blocks", "4")
    warps = by_warp(trace)
    assert len({block for block, _ in warps}) == 4 and {warp for _, warp in warps} == set(range(6))
    roles = {warp: {e["cat"] for (_, w), events in warps.items() if w == warp for e in events} for warp in range(6)}
    assert roles == {**{i: {"compute"} for i in range(4)}, 4: {"keys"}, 5: {"values"}}
    tiles = {"keys": ["wait_empty", "fetch"], "compute": ["wait_keys", "scores", "softmax", "wait_values", "output"]}
    tiles["values"] = tiles["keys"]
    first = {"compute": ["queries"]}
    last = {"compute": ["store"], "keys": ["wait_copies"], "values": ["wait_copies"]}
    for events in warps.values():
        role = events[0]["cat"]
        names = [e["name"] for e in events]
        count = (len(names) - 2 - len(first.get(role, []))) // len(tiles[role])
        assert count > 1
        assert names == ["(unmarked)", *first.get(role, []), *(count * tiles[role]), *last[role]]
        for one, other in itertools.pairwise(events):
            assert one["ts"] + one["dur"] == pytest.approx(other["ts"], abs=2e-6)
    # The clocks' scale: what was recorded fits the call, whose time two events bound from above.
    end = max(e["ts"] + e["dur"] for events in warps.values() for e in events)
    assert 0.2 * trace["otherData"]["marked_us"] < end <= 1.02 * trace["otherData"]["call_us"] + 1
    overhead = re.search(r"overhead: .* ([\d.]+) times as long", page)
    assert overhead and 0.9 < float(overhead[1]) < 3
    assert "no phase was dropped" in page and "block 0, SM" in page and "compute, warp 0" in page


@pytest.mark.gpu
def test_hoppers_warpgroups_have_a_producer_and_consumers(tmp_path: Path) -> None:
    gpu = Gpu.find()
    if gpu is None or gpu.capability != (9, 0):
        pytest.skip("gpu: no Hopper GPU")
    trace, _ = recorded(tmp_path, ATTENTION, "wgmma_lazy", "--shape", "d64_s512_h8", "--blocks", "2")
    entered: set[str] = set()  # consumers whose rows lie beyond the last have no scores
    for (_, warp), events in by_warp(trace).items():
        names = [e["name"] for e in events]
        if warp < 12:  # three warpgroups of consumers
            assert {e["cat"] for e in events} == {"consumer"}
            assert names[:3] == ["(unmarked)", "queries", "load"] and names[-1] == "store"
            entered.update(names)
        else:  # one lane of one warp asks for tiles
            assert warp == 12 and {e["cat"] for e in events} == {"producer"}
            assert {*names} == {"(unmarked)", "wait_keys", "bring_keys", "wait_values", "bring_values"}
    assert entered == {"(unmarked)", "queries", "load", "scores", "softmax", "output", "store"}


@pytest.mark.gpu
def test_an_example_is_recorded_and_full_buffers_are_said(tmp_path: Path) -> None:
    trace, _ = recorded(tmp_path, SOFTMAX, "warp", "--shape", "main")
    for events in by_warp(trace).values():
        assert [e["name"] for e in events] == ["(unmarked)", "maximum", "sum", "write"]
        assert {e["cat"] for e in events} == {"row"}
        assert all(e["dur"] > 0 for e in events[1:])
    short, page = recorded(tmp_path, SOFTMAX, "warp", "--shape", "main", "--events", "2")
    for events in by_warp(short).values():
        assert [e["name"] for e in events] == ["(unmarked)", "maximum"]  # where `sum` ends was dropped
    assert "later phases had no place (--events 2)" in page
