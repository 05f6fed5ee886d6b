"""A file that is not a report is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError, RecordError, UsageError
from flashcore.plugins.imports.api import read_report


@pytest.mark.parametrize(
    ("name", "data", "error", "words"),
    [
        ("gone.ncu-rep", None, UsageError, "gone.ncu-rep: expected a report .* No such file"),
        ("x.ncu-rep", b"no magic", RecordError, "x.ncu-rep"),
        ("x.csv", b"\xff\xfe\x00", RecordError, "expected an .ncu-rep or a CSV page of one, found neither"),
        ("x.csv", b"a,b\n", RecordError, "x.csv"),
    ],
)
def test_what_is_no_report_is_refused(
    name: str, data: bytes | None, error: type[FlashcoreError], words: str, tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=words):
        read_report(tmp_path / name)
