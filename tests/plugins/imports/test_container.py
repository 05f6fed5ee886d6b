"""The blocks of a report tell whether it is whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flashcore.errors import RecordError
from flashcore.plugins.imports import container


def test_the_blocks_name_results_versions_command_and_cubins(sample_reports: Path) -> None:
    found = {p.stem: container.read(p.read_bytes(), p.name) for p in sample_reports.glob("*.ncu-rep")}
    assert {name: c.results for name, c in found.items()} == {
        "app_full": 8, "app_basic": 8, "app_graph": 7, "triton_full": 3,
    }  # fmt: skip
    assert {(c.ncu, c.cuda) for c in found.values()} == {("2025.3.1.0", "13.0")}
    assert found["app_graph"].command.endswith("--graph-profiling graph --set basic -o app_graph ./app")
    assert {name: len(c.cubins) for name, c in found.items()} == {
        "app_full": 1, "app_basic": 1, "app_graph": 1, "triton_full": 2,
    }  # fmt: skip


def test_a_cut_report_is_refused_wherever_it_is_cut(sample_reports: Path) -> None:
    """But between blocks: ncu writes them one after the other, so what is there is then a whole, shorter report."""
    data = (sample_reports / "app_basic.ncu-rep").read_bytes()
    draw = random.Random(1)
    for _ in range(200):
        with pytest.raises(RecordError, match=r"cut short or damaged|found a file that begins with"):
            container.read(data[: draw.randrange(len(data))], "x.ncu-rep")


@pytest.mark.parametrize("data", [b"", b"NV", bytes(100), b"NVR\0" + bytes(range(1, 200)), b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        container.read(data, "x.ncu-rep")


def test_bytes_that_come_or_go_are_seen(sample_reports: Path) -> None:
    data = (sample_reports / "app_basic.ncu-rep").read_bytes()
    for changed in (data[:1000] + data[1001:], data[:1000] + b"\0" + data[1000:], data + b"\0"):
        with pytest.raises(RecordError):
            container.read(changed, "x.ncu-rep")


def test_a_form_that_is_not_known_is_left_to_the_reader() -> None:
    assert container.read(b"NVR\0" + b"\x02\0\0\0\x08\x63" + b"\xff" * 40, "x").results is None
