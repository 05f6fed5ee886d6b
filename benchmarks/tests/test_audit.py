"""The comparison of the audit with cuobjdump and readelf."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import audit
from flashcore.errors import Exit
from tests.recorded import RECORDED
from tests.support.cubins import DATA

#: Prints recorded resources, and decodes nothing but the arch.
CUOBJDUMP = """#!/bin/sh
case $1 in
  -res-usage) cat '{usage}' ;;
  *) echo '64-bit ELF: sm=80' ;;
esac
"""


@pytest.mark.skipif(not shutil.which("readelf"), reason="tool: no readelf")
@pytest.mark.parametrize(
    ("before", "after", "code"),
    [("", "", Exit.OK), ("REG:18", "REG:19", Exit.FAILED), ("shared", "other", Exit.FAILED)],
)
def test_each_value_and_kernel_counts(
    before: str, after: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage, program = tmp_path / "usage.txt", tmp_path / "cuobjdump"
    usage.write_text((RECORDED / "static_sm_80.usage.txt").read_text().replace(before, after))
    program.write_text(CUOBJDUMP.format(usage=usage))
    program.chmod(0o755)
    assert audit.main([str(DATA / "static_sm_80.cubin"), "--cuobjdump", str(program)]) == code
    assert "5 kernels in 1 binaries for sm_80" in capsys.readouterr().out
