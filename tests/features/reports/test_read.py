"""A report is read in any encoding and packing; a file that is not a report is refused with the reason."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError, RecordError, UsageError
from flashcore.features.reports.read import read_report
from tests.recorded import RECORDED

PAGE = """"ID","Process Name","Kernel Name","Block Size","Grid Size","CC","gpu__time_duration.sum"
"","","","","","","ns"
"0","{app}","{kernel}","(32, 1, 1)","(4, 1, 1)","9.0","12,345"
"""
TRACE = """{"deviceProperties": [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k(int)", "dur": 12.345,
 "args": {"device": 0, "grid": [4, 1, 1], "block": [32, 1, 1]}}]}"""


@pytest.mark.parametrize(
    ("name", "data", "error", "words"),
    [
        ("gone.ncu-rep", None, UsageError, "gone.ncu-rep: expected a report .* No such file"),
        ("x.ncu-rep", b"no magic", RecordError, "x.ncu-rep"),
        ("x.csv", b"\xff\xfe\x00", RecordError, "expected an .ncu-rep or a CSV page of one, found neither"),
        ("x.csv", b"a,b\n", RecordError, "x.csv"),
        (
            "x.json.gz",
            gzip.compress(TRACE.encode(), mtime=0)[:-9],
            RecordError,
            "x.json.gz: expected a whole gzip file",
        ),
        ("trace.zip", b"PK\3\4\x14\0\0\0\x08\0\xff", RecordError, "found neither .*\n  hint: unpack"),
        ("a.nsys-rep", b"any bytes", RecordError, "a.nsys-rep: .*\n  hint: nsys export --type sqlite a.nsys-rep"),
        ("a.qdrep", b"any bytes", RecordError, "a.qdrep: .*\n  hint: nsys export"),
        ("renamed", b"NVIDIA Tegra Profiler Report 1.\n", RecordError, "hint: nsys export --type sqlite renamed"),
    ],
)
def test_what_is_no_report_is_refused(
    name: str, data: bytes | None, error: type[FlashcoreError], words: str, tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=words):
        read_report(tmp_path / name)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", [PAGE.format(app="größe", kernel="k(int)"), TRACE, "\n" + TRACE])
@pytest.mark.parametrize("packed", [False, True])
def test_a_page_or_a_trace_is_read_in_each_encoding_of_unicode(
    encoding: str, text: str, packed: bool, tmp_path: Path
) -> None:
    data = text.encode(encoding)
    path = tmp_path / "report.csv"
    path.write_bytes(gzip.compress(data) if packed else data)
    report = read_report(path)
    (result,) = report.results
    time = result.number("gpu__time_duration.sum") or result.number("traced_duration")
    assert (result.kernel, result.grid, time) == ("k(int)", (4, 1, 1), 12_345)
    assert report.name == "report.csv" and not report.notes


@pytest.mark.parametrize(
    ("encoding", "app"),
    [
        ("cp1252", "größe"),
        ("latin-1", "größe"),
        ("cp437", "größe"),
        ("cp1251", "ядро"),
        ("gbk", "程序"),
        ("cp932", "表示"),
    ],
)
def test_a_page_in_a_code_page_is_read_with_a_note(encoding: str, app: str, tmp_path: Path) -> None:
    """Its numbers are; which letters a program's name has cannot be told."""
    path = tmp_path / "page.csv"
    path.write_bytes(PAGE.format(app=app, kernel=f"k_{app}(int)").encode(encoding))
    report = read_report(path)
    assert [result.number("gpu__time_duration.sum") for result in report.results] == [12_345]
    assert "read as Windows-1252" in report.notes[0]
    if encoding in ("cp1252", "latin-1"):
        assert report.results[0].kernel == "k_größe(int)"


def test_kernels_whose_letters_are_in_no_code_page_stay_two(tmp_path: Path) -> None:
    first, second = PAGE.format(app="a", kernel="k"), '"1","a","k","(32, 1, 1)","(4, 1, 1)","9.0","12,345"\n'
    data = first.encode().replace(b'"k"', b'"k\x81"') + second.encode().replace(b'"k"', b'"k\x8d"')
    (tmp_path / "page.csv").write_bytes(data)
    assert len({result.kernel for result in read_report(tmp_path / "page.csv").results}) == 2


def test_a_report_or_an_export_that_is_packed_is_read(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    path = tmp_path / "app_basic.ncu-rep.gz"
    path.write_bytes(gzip.compress((RECORDED / "reports" / "app_basic.ncu-rep").read_bytes()))
    assert len(read_report(path).results) > 3
