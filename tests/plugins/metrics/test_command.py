"""``flashcore metrics``."""

from __future__ import annotations

import pytest

from flashcore.cli import main


def test_the_command_says_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", "--chip", "ga100"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("missing on ga100 (7)")
    assert "sm__ops_path_tensor_src_fp16_dst_fp32.sum" in said


def test_the_command_refuses_what_is_lost_or_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", "--chip", "ad104", "stall_gmma"]) == 2
    assert main.main(["metrics", "--chip", "gx999"]) == 2
    said = capsys.readouterr().err
    assert "stall_gmma" in said and "flashcore metrics --learn --chip gx999 --table FILE" in said
    assert main.main(["metrics", "--chip", "gh100", "stall_gmma"]) == 0
