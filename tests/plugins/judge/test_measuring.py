"""Plans in processes that take turns, on the stand-in of CUDA's driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError
from flashcore.plugins.judge.measuring import Runnable, Trials
from tests.plugins.launcher.conftest import Machine, machine, made, plan

__all__ = ["machine", "made"]
CONTENTS, ROUNDS = 33, 4


def trials(here: Machine, folder: Path) -> Trials:
    folder.mkdir()
    for number in range(CONTENTS):
        (folder / f"x.{number}.raw").write_bytes(bytes([number]) * 256)
    del here.environment["LIBCUDA_LOG"]  # type: ignore[attr-defined]
    return Trials(folder, (), True, here.environment)


def faults(one: Trials) -> list[str]:
    """Its reasons, without those of the host's clock: a busy machine may interrupt every call of the stand-in."""
    return [reason for reason in one.reasons if "the clocks disagree" not in reason]


def test_a_rival_is_timed_in_turns(machine: Callable[..., Machine], made: Path, tmp_path: Path) -> None:
    both = trials(machine(), tmp_path / "t")
    both.run(Runnable(plan(), made), Runnable(plan("inc_and_copy_bytes"), made), range(CONTENTS), ROUNDS)
    assert not faults(both)
    for time in both.times.values():
        assert time["speedup"]["value"] == time["a_a"]["value"] == 1.0 and time["samples"] == 2 * ROUNDS
    looked_at = {output.content for output in both.outputs}
    assert looked_at <= {*range(9, CONTENTS)}  # the others are the warm-up's and the rival's


def test_answers_that_are_kept_answer_no_later_call(
    machine: Callable[..., Machine], made: Path, tmp_path: Path
) -> None:
    one = trials(machine(), tmp_path / "t")
    one.run(Runnable(plan("keep_copy"), made), None, range(CONTENTS), 8)  # more calls than there are inputs
    assert one.compared > 2 * CONTENTS and not faults(one)
    assert [time["us"] for time in one.times.values()] == [3.0, 3.0]


def test_a_rival_that_fails_is_no_fault_of_the_candidate(
    machine: Callable[..., Machine], made: Path, tmp_path: Path
) -> None:
    both = trials(machine(), tmp_path / "t")
    with pytest.raises(CapabilityError, match="baseline failed"):
        both.run(Runnable(plan(), made), Runnable(plan(block=[512, 4, 1]), made), range(CONTENTS), ROUNDS)


def test_its_process_has_the_plans_folder_only(machine: Callable[..., Machine], made: Path, tmp_path: Path) -> None:
    both = trials(machine(), tmp_path / "t")
    (tmp_path / "secret").write_bytes(bytes(256))
    (tmp_path / "t" / "x.2.raw").unlink()
    (tmp_path / "t" / "x.2.raw").symlink_to(tmp_path / "secret")
    both.run(Runnable(plan(), made), None, range(3), 0)
    if not both.device["confined"]:
        pytest.skip("system: no Landlock")
    assert "x.2.raw: expected a file" in both.reasons[0] and {one.content for one in both.outputs} == {0, 1}
