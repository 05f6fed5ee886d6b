"""Verdicts as files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashcore_judge.verdict import Verdict, write


def test_another_suite_gpu_outcome_or_candidate_overwrites_no_verdict(tmp_path: Path) -> None:
    one = Verdict(candidate="a" * 64, suite="s", suite_hash="1", untrusted={}, device={"uuid": "GPU-1"})
    others = (
        replace(one, suite_hash="2"),
        replace(one, device={"uuid": "GPU-2"}),
        replace(one, candidate="a" * 63 + "b"),
        replace(one, status="rejected"),
        replace(one, status="accepted"),
    )
    assert len({write(each, tmp_path) for each in (one, *others, one)}) == 6
