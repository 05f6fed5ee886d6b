"""The blocks of a report tell whether it is whole."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from flashcore.errors import RecordError
from flashcore.features.reports import container


def test_the_blocks_name_results_versions_command_and_cubins(sample_reports: Path) -> None:
    results = {p.stem: container.read(p.read_bytes(), p.name) for p in sample_reports.glob("*.ncu-rep")}
    assert {name: c.results for name, c in results.items()} == {
        "app_full": 8, "app_basic": 8, "app_graph": 7, "triton_full": 3,
    }  # fmt: skip
    assert {(c.ncu, c.cuda) for c in results.values()} == {("2025.3.1.0", "13.0")}
    assert results["app_graph"].command.endswith("--graph-profiling graph --set basic -o app_graph ./app")
    assert {name: len(c.cubins) for name, c in results.items()} == {
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


def block(header: bytes, payload: bytes = b"") -> bytes:
    return struct.pack("<I", len(header)) + header + payload


def number(value: int) -> bytes:
    text = b""
    while value > 127:
        text, value = text + bytes([value & 127 | 128]), value >> 7
    return text + bytes([value])


def code(payload: bytes) -> bytes:
    """A report with one block of code."""
    head = block(b"\x08\x07")
    return container.MAGIC + head + block(b"\x0a\x01x\x28" + number(len(payload)), payload)


def test_a_block_that_repeats_the_mark_of_a_cubin_takes_no_more_memory_than_it_has() -> None:
    mark = b"\x7fELF\x02\x01"
    for fill in (b"", b"\0" * 58, b"\xff" * 58):
        data = code((mark + fill) * (240_000 // (len(mark) + len(fill))))
        tracemalloc.start()
        cubins = container.read(data, "x").cubins
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(map(len, cubins)) <= len(data) and peak < 8 << 20


def test_a_mark_within_a_cubin_begins_no_other_one(sample_reports: Path) -> None:
    cubin = container.read((sample_reports / "app_full.ncu-rep").read_bytes(), "x").cubins[0]
    middle = len(cubin) // 2
    changed = cubin[:middle] + b"\x7fELF\x02\x01" + cubin[middle + 6 :]
    assert container.read(code(b"head" + changed + cubin), "x").cubins == (changed, cubin)


def test_a_report_of_many_small_blocks_is_read_in_time_that_grows_with_it() -> None:
    session = block(b"\x1a\x03\x0a\x01x")
    data = container.MAGIC + block(b"\x08\x07") + session * 100_000
    assert container.read(data, "x").results == 0
