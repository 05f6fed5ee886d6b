"""Studies on disk: what was kept is read back, and a kill costs nothing that was kept."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from extensions.tune.tests.spaces import RECORDED, header
from flashcore.errors import UsageError
from flashcore_tune import study


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    with study.create(tmp_path, header()) as study_file:
        for result in RECORDED:
            study_file.record(result)
        folder = study_file.folder
        with pytest.raises(UsageError, match="no process has locked"), study.resume(folder):
            pass
    assert study.read(folder) == (header(), {r.index: r for r in RECORDED})
    packed = tmp_path / "copy.jsonl.xz"
    packed.write_bytes(lzma.compress((folder / study.RESULTS).read_bytes()))
    assert study.read(packed) == study.read(folder)
    assert study.find(tmp_path, None, "toy") == folder == study.find(tmp_path, folder.name)
    with pytest.raises(UsageError, match=f"found none\n  hint: the newest are {folder.name}"):
        study.find(tmp_path, "toy")


def test_a_torn_line_is_cut_off_and_the_study_goes_on(tmp_path: Path) -> None:
    with study.create(tmp_path, header()) as study_file:
        study_file.record(RECORDED[0])
    path = study_file.folder / study.RESULTS
    whole = path.read_bytes()
    for torn in (b"{", b'{"index":3,"fell":"",', b'{"index":3}'):
        path.write_bytes(whole + torn)
        assert list(study.read(study_file.folder)[1]) == [RECORDED[0].index]
        with study.resume(study_file.folder) as again:
            again.record(RECORDED[1])
        assert [r.index for r in study.read(study_file.folder)[1].values()] == [RECORDED[0].index, RECORDED[1].index]


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", '{"space":{}}\n', "nonsense\n"])
def test_what_is_no_study_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / study.RESULTS).write_text(text)
    with pytest.raises(UsageError, match="expected the results of a study"):
        study.read(tmp_path)
    with pytest.raises(UsageError, match="found none"):
        study.find(tmp_path, None, "toy")
