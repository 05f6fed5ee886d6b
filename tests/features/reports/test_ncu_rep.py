"""A report is read whole by NVIDIA's reader, or refused with what is wrong and what to do."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from flashcore.errors import CapabilityError, FlashcoreError, RecordError
from flashcore.features.reports import assemble, container, ncu_rep, report_child
from flashcore.features.reports.read import read_report
from flashcore.machine import python_process
from flashcore.model import catalogue
from flashcore.readers.ncu.results import Container


@pytest.fixture
def basic(sample_reports: Path, sample_report: Any) -> Path:
    return sample_reports / "app_basic.ncu-rep"


def test_without_the_reader_it_says_how_to_get_it_and_how_to_do_without(
    sample_reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CapabilityError, match=r"pip install 'flashcore-harness\[ncu\]'") as error:
        read_report(sample_reports / "app_basic.ncu-rep")
    assert "--csv --page raw --print-units base" in str(error.value)


def test_fewer_results_than_the_file_holds_are_none(basic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "read", lambda data, name: Container(9))
    with pytest.raises(RecordError, match="expected 9 results, found 8"):
        read_report(basic)


@pytest.mark.parametrize(
    ("child", "limit", "message"),
    [
        ("import os; os.abort()", 60.0, "died with exit code -6"),
        ("open(__import__('sys').argv[2], 'w').write('{\"error\": \"3 has no name\"}')", 60.0, "3 has no name"),
        ("import time; time.sleep(600)", 1.0, "no answer within 1 s"),
    ],
)
def test_a_reader_that_dies_or_hangs_is_an_error_of_the_file(
    child: str, limit: float, message: str, basic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_process, "command", lambda module, *words: [sys.executable, "-c", child, *words])
    monkeypatch.setattr(ncu_rep, "_TIME_LIMIT", limit)
    with pytest.raises(RecordError, match=message):
        read_report(basic)


def test_damage_within_gives_all_results_or_none(basic: Path, tmp_path: Path) -> None:
    """Six of 450 damaged files that were tried. A bit that flips within a value nobody can see: the
    format has no checksum."""
    data = basic.read_bytes()
    draw = random.Random(7)
    refused = 0
    for _ in range(6):
        at = draw.randrange(200_000, len(data) - 4096)
        path = tmp_path / "x.ncu-rep"
        path.write_bytes(data[:at] + draw.randbytes(512) + data[at + 512 :])
        try:
            result = assemble.record_of("20260101T000000Z-0000", [read_report(path)])
        except FlashcoreError:
            refused += 1
        else:
            assert len({f.subject for f in result.facts if f.subject.launch is not None}) == 8
    assert refused


def test_what_a_metric_is_called_is_looked_at_once_for_all_results(
    basic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu_rep, "spec_of", counted := MagicMock(wraps=catalogue.spec_of))
    names = {name for result in read_report(basic).results for name in result.metrics}
    assert sorted(call.args[0] for call in counted.call_args_list) == sorted(names)
    monkeypatch.setattr(ncu_rep, "spec_of", lambda name: None)
    with pytest.raises(RecordError, match="a metric is called"):
        read_report(basic)


def test_a_list_of_metrics_is_no_metric() -> None:
    action = MagicMock(metric_names=lambda: ["regex:^(?=.*lsu).*.sum$", "lts__t_sectors.sum"])
    assert [*report_child._result(action, 0, {})["metrics"]] == ["lts__t_sectors.sum"]
