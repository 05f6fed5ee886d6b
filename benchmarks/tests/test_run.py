"""The benchmark of the whole run: what it calls a difference, and what noise."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import raw, run
from flashcore.model.record import Facts, Record
from tests import factory


def timed(factors: dict[str, float]) -> Record:
    """The record of the factory with other times: of each variant's samples and median, by a factor."""
    record = factory.record()
    samples = {
        (case, mode): tuple(factors.get(case.variant, 1.0) * x for x in times)
        for (case, mode), times in record.samples.items()
    }
    facts = [
        replace(f, value=factors.get(f.subject.variant, 1.0) * f.number) if f.name.endswith("_p50") and f.number else f
        for f in record.facts
    ]
    return replace(record, facts=Facts(facts), raw_samples=samples)


def test_a_run_is_the_same_as_itself() -> None:
    record = factory.record()
    compared = run.compare(record, record)
    assert run._same(compared) and compared["ranks"] and compared["counts"][0] and compared["of_steps"]
    assert not compared["limiters"] and not compared["steps"] and not compared["verdicts"]


def test_another_order_is_a_difference_only_beyond_noise() -> None:
    slower = run.compare(timed({"split": 5.0}), factory.record())
    assert not run._same(slower) and any(r["apart"] for r in slower["ranks"])
    record = factory.record()
    close = {name: record.facts.number("isolated_p50", factory.fact("registers", 1, name, shape="mission").subject)
             for name in ("fast", "split")}  # fmt: skip
    assert close["fast"] and close["split"]
    ratio = close["split"] / close["fast"]
    compared = run.compare(timed({"fast": 1.005 * ratio}), timed({"fast": 0.995 * ratio}))
    assert any(r["differ"] for r in compared["ranks"]) and not any(r["apart"] for r in compared["ranks"])


def test_other_verdicts_and_limiters_are_differences() -> None:
    record = factory.record()
    limited = replace(record.suite, budgets=(*record.suite.budgets, factory.budget("registers", maximum=1)))
    compared = run.compare(replace(record, suite=limited), record)
    assert compared["verdicts"] and not run._same(compared)
    without = replace(record, facts=Facts(f for f in record.facts if not f.name.startswith("stall_share_")))
    assert run.compare(without, record)["limiters"]


@pytest.mark.parametrize(("seconds", "code", "word"), [(170.0, 0, "met"), (190.0, 1, "MISSED")])
def test_a_target_that_is_missed_is_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float, code: int, word: str
) -> None:
    one: dict[str, Any] = {"seconds": seconds, "gpus": 1, "gpu": "H200", "stages": {"bench": 70.0}, "samples": 1000,
                           "first_round": 10, "passes": 140, "launches": 10}  # fmt: skip
    record = factory.record()
    results = {"machine": "m", "suite": "s", "runs": [one], "full": None, "compared": [run.compare(record, record)]}
    raw.write(tmp_path / "x.json", "run", argparse.Namespace(), results)
    assert run.main(["--from", str(tmp_path / "x.json")]) == code
    output = capsys.readouterr().out
    assert word in output and "bench         70.0 s" in output and "against " in output and "the same" in output


def test_a_run_to_compare_needs_one_to_compare_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--compare", "x"]) == 2
    assert "expected --against RUN too" in capsys.readouterr().err


def test_when_the_cases_of_a_stage_ran(tmp_path: Path) -> None:
    lines = ['{"event": "start", "pid": 1}', '{"event": "begin", "name": "a", "at": 100.5}']
    lines += ['{"event": "result", "name": "a", "seconds": 2.5, "data": null}']
    (tmp_path / "journal-001.jsonl").write_text("\n".join(lines))
    (tmp_path / "journal-002.jsonl").write_text("\n".join(lines).replace("100.5", "99"))
    assert run._span(tmp_path, 90.0) == [9.0, 13.0]
    assert run._span(tmp_path / "absent", 90.0) == []
