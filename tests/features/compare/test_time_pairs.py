"""Turns: real child processes on the CPU, and what keeps two builds of one variant apart in one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.features.compare import time_pairs
from flashcore.features.compare.time_pairs import Contest, LostContest, order
from flashcore.model.settings import Bench, Check, Limits
from flashcore.runner.kernel_call import KernelCall, Operator
from flashcore.runner.queue import Pool
from tests import update_cases
from tests.conftest import ROOT, Built
from tests.softmax_cases import case
from tests.support import staged

PROCESSES = 2
pytestmark = pytest.mark.usefixtures("forked")


def contest(before: str, after: str, shape: str = "small", columns: int = 37) -> Contest:
    """Two operators of the softmax suite as if they were two builds of one."""
    old, new = (replace(case(v, shape, columns=columns), rank_by="back_to_back") for v in (before, after))
    return Contest(f"{before}_{after}/{shape}", old, new, old)


def turns(
    contests: list[Contest], folder: Path, processes: int, rounds: int = 100, seconds: float = 60.0, **changes: Any
) -> time_pairs.Timings:
    bench, check = Bench(samples=rounds), Check(limits=Limits(time_limit=seconds))
    with Pool() as workers:
        job = staged.context(folder, workers=workers, bench=bench, check=check, **changes)
        return time_pairs.run(job, contests, processes)


@pytest.fixture(scope="module")
def timings(tmp_path_factory: pytest.TempPathFactory) -> time_pairs.Timings:
    """Two shapes; on the small one a build raises, one takes the process along, one hangs while it is timed."""
    contests = [contest("right", v) for v in ("right", "slower", "raises", "exits", "hangs_late")]
    contests += [contest("raises", "right"), contest("right", "slower", "wide", columns=300)]
    folder = tmp_path_factory.mktemp("turns")
    lines: list[str] = []

    def run() -> time_pairs.Timings:
        return turns(contests, folder, PROCESSES, rounds=15, seconds=15.0, say=lines.append)

    result = run()
    logs = len(list(folder.glob("turns/*/child-*.log")))
    assert run() == result, "what is answered is not run again"
    assert len(list(folder.glob("turns/*/child-*.log"))) == logs
    # One a repetition; in the first one two builds take theirs along, and the other shape is left behind once.
    assert logs == PROCESSES + 3
    assert lines[:PROCESSES] == [f"against: process {i + 1} of {PROCESSES}" for i in range(PROCESSES)]
    return result


def test_every_process_times_all_three_builds(timings: time_pairs.Timings) -> None:
    assert set(timings.times) == {"right_right/small", "right_slower/small", "right_slower/wide"}
    for times in timings.times.values():
        assert len(times) == PROCESSES
        for processes in times:
            assert len(processes.before) == len(processes.after) == len(processes.again) == 15
            assert min(processes.before + processes.after + processes.again) > 0


def test_what_is_slower_takes_longer(timings: time_pairs.Timings) -> None:
    for processes in timings.times["right_slower/small"]:
        assert min(processes.after) > 1.3 * min(processes.before)  # which a busy machine does not lengthen


def test_a_build_that_fails_costs_its_own_case_alone(timings: time_pairs.Timings) -> None:
    lost = {name.removesuffix("/small"): why for name, why in timings.lost.items()}
    assert set(lost) == {"right_raises", "right_exits", "right_hangs_late", "raises_right"}
    assert lost["right_raises"] == LostContest("after", "RuntimeError: invalid configuration argument")
    assert lost["raises_right"].side == "before"
    assert lost["right_exits"].side == "after" and "exit code 9" in lost["right_exits"].reason
    assert lost["right_hangs_late"].side == "after" and "within 15 s" in lost["right_hangs_late"].reason


def test_builds_that_write_what_they_read_start_each_call_from_the_same_content(tmp_path: Path) -> None:
    """`strict` refuses what an earlier call left."""
    old = replace(update_cases.case("strict", bias=True), rank_by="back_to_back")
    one = Contest("strict/small", old, replace(old, variant="right"), old)
    result = turns([one], tmp_path, 1, rounds=10)
    assert not result.lost and len(result.times["strict/small"][0].before) == 10


def test_a_shape_that_cannot_be_made_is_nobodys_fault(tmp_path: Path) -> None:
    result = turns([contest("right", "slower", columns=-1)], tmp_path, 2)
    assert result.lost["right_slower/small"].side == "" and not result.times


def test_every_order_comes_up_equally_often() -> None:
    first = [tuple(order(i)) for i in range(6)]
    assert len(set(first)) == 6 and all(sorted(o) == ["after", "again", "before"] for o in first)
    for place in range(3):
        at = [order(i)[place] for i in range(9)]
        assert {at.count("before"), at.count("after"), at.count("again")} == {3}


def test_without_a_gpu_it_says_what_is_missing(tmp_path: Path) -> None:
    from flashcore.errors import CapabilityError

    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("gpu: there is a GPU")
    with pytest.raises(CapabilityError, match="no CUDA GPU that this process can use"):
        turns([contest("right", "right")], tmp_path, 1, device="cuda")


# --- two builds side by side --------------------------------------------------------------------

LOAD = """
import json, sys
from flashcore.runner.kernel_call import Caller, KernelCall
import torch
for text in sys.argv[1:]:
    case = KernelCall.from_json(json.loads(text))
    print(Caller(case, device="cpu").target)
print(hasattr(torch.ops.flashcore_toy, "plain"))
"""


def test_one_variant_is_loaded_as_several_builds(toy: Built, tmp_path: Path) -> None:
    """Also the very same library, by a copy."""
    from flashcore.features.compare.time_pairs import copied

    problem = toy.suite.problems["scale"]
    library = next(a.library for a in toy.artifacts if a.variant == "plain" and a.library)
    assert copied(case("right"), tmp_path) == case("right"), "the problem's file registers it"
    before = KernelCall(
        variant="plain@before", shape="small", suite="toy", root=str(Path(toy.suite.root).resolve()),
        problem_file=problem.file, params={"N": 4096}, arguments=problem.arguments, target=Operator(library),
        tolerance="rounded_once", seeds=(0,), flop=None,
    )  # fmt: skip
    again = copied(before, tmp_path)
    assert copied(before, tmp_path) == again and again.library != library
    cases = [before, replace(again, variant="plain@again")]
    assert cases[0].name == "plain@before/small"
    assert KernelCall.from_json(json.loads(json.dumps(cases[0].to_json()))) == cases[0]
    words = [json.dumps(c.to_json()) for c in cases]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD, *words], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "harness")}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["flashcore_toy.plain__before.default", "flashcore_toy.plain__again.default", "False"]


def test_files_of_two_revisions_import_their_own_siblings(tmp_path: Path) -> None:
    from flashcore.runner.problem_file import load_file

    for name, value in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "flashcore_test_sibling.py").write_text(f"VALUE = {value}\n")
        for file in ("first.py", "second.py"):
            (folder / file).write_text("import flashcore_test_sibling\nVALUE = flashcore_test_sibling.VALUE\n")
    results = [load_file(str(tmp_path / name / file)).VALUE for name, file in
             (("one", "first.py"), ("two", "first.py"), ("two", "second.py"), ("one", "second.py"))]  # fmt: skip
    assert results == [1, 2, 2, 1]
    sys.modules.pop("flashcore_test_sibling")
