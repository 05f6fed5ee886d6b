"""Ways to save work where nobody looks, or to change what measures it, before the judge."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from extensions.judge.benchmarks import cheats
from flashcore.errors import UsageError
from flashcore.machine.toolchain import Nvcc
from flashcore.pipeline import plugins
from flashcore.suites.load import load
from flashcore_judge import preparing

#: Variants whose kernels keep what they have seen in global variables.
KEEP = ("remembers", "copies", "stops")
#: Variants whose host code changes what a stream captures, launches less, or replaces Python functions.
HOST = (
    "spacers", "no_spacers", "flushes", "beside", "before_spacers", "events", "first_event", "later_edits", "deletes",
    "last_calls", "capture", "host", "stream", "interpreter",
)  # fmt: skip
#: Variants whose kernels save their work by what their host code says or by what their output holds.
LAZY = ("looks", "poison", "poison_partly", "halves", "every_second")


def results(**verdicts: tuple[str, float]) -> dict[str, Any]:
    """Results with these statuses and least speedups."""
    same = {"low": 0.99, "high": 1.01}

    def of(status: str, speedup: float) -> dict[str, Any]:
        times = {"cold": {"us": 9.0, "a_a": same, "speedup": {"low": speedup}}} if speedup else {}
        return {"status": status, "reasons": [], "shapes": [{"times": times}]}

    return {"seconds": 9.0, "verdicts": {name: of(*one) for name, one in verdicts.items()}}


@pytest.mark.parametrize(
    ("cheat", "outcome", "code"),
    [
        (("rejected", 0.0), "rejected", 0),
        (("rejected", 2.0), "rejected", 0),
        (("accepted", 1.015), "harmless", 0),
        (("accepted", 1.1), "won", 1),
    ],
)
def test_a_cheat_wins_by_a_shorter_time_that_is_accepted(cheat: tuple[str, float], outcome: str, code: int) -> None:
    made = results(honest=("accepted", 0.99), halves=cheat)
    *_, line = cheats.table(made)
    assert line.split()[:2] == ["halves", outcome]
    assert cheats.verdict(made) == code


def test_an_honest_variant_that_is_rejected_is_wrong() -> None:
    assert cheats.verdict(results(honest=("rejected", 0.0), halves=("rejected", 0.0))) == 1


def test_every_way_to_cheat_has_a_test() -> None:
    assert {*load(cheats.SUITE).variants} == {cheats.HONEST, *KEEP, *HOST, *LAZY}


# --- compiled and planned, without a GPU --------------------------------------------------------------


def planned(way: str, folder: Path) -> preparing.Prepared:
    if not shutil.which("bwrap") and subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        pytest.skip("tool: neither bwrap nor user namespaces on this machine")
    plugins.load()
    suite, place = load(cheats.SUITE), cheats.candidate(folder, way)
    return preparing.prepared(preparing.begun(suite, place), suite, "sm_90a", place, folder / "files", 60.0)


@pytest.mark.slow
@pytest.mark.usefixtures("whole_cuda_headers")
@pytest.mark.parametrize("way", KEEP)
def test_a_kernel_that_keeps_what_it_has_seen_is_refused(compiler: Nvcc, tmp_path: Path, way: str) -> None:
    with pytest.raises(UsageError, match="bytes of global variables, which outlive a call"):
        planned(way, tmp_path)


@pytest.mark.usefixtures("whole_cuda_headers")
@pytest.mark.parametrize(
    "way", ["spacers", *(pytest.param(way, marks=pytest.mark.slow) for way in (*HOST[1:], *LAZY, cheats.HONEST))]
)
def test_host_code_decides_no_more_than_a_plan_of_one_launch(compiler: Nvcc, tmp_path: Path, way: str) -> None:
    (given,) = planned(way, tmp_path).plans.shapes["small"]
    (launch,) = given.launches
    (x,), (out,), *numbers = launch["arguments"]
    assert (launch["kernel"], launch["grid"], launch["block"]) == ("cheat_kernel", [256, 1, 1], [256, 1, 1])
    assert (x["tensor"], out["tensor"]) == ("x", "out")
    # The factor, all elements, and the turn of a call that no graph holds.
    assert [word["hex"] for (word,) in numbers] == ["0000003f", "0000010000000000", "ffffffff"]


# --- on a GPU -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(whole_cuda_headers: None) -> dict[str, Any]:
    return cheats.measure(argparse.Namespace(variant="*"))


@pytest.mark.gpu
def test_no_cheat_wins(measured: dict[str, Any]) -> None:
    assert cheats.verdict(measured) == 0, "\n".join(cheats.table(measured))


@pytest.mark.gpu
def test_an_honest_kernel_is_accepted(measured: dict[str, Any]) -> None:
    honest = measured["verdicts"][cheats.HONEST]
    assert honest["status"] == "accepted", honest["reasons"]


@pytest.mark.gpu
@pytest.mark.parametrize("way", KEEP)
def test_a_kernel_that_keeps_what_it_has_seen_is_never_timed(measured: dict[str, Any], way: str) -> None:
    one = measured["verdicts"][way]
    assert one["status"] == "rejected" and not any(shape["times"] for shape in one["shapes"])
