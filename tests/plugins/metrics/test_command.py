"""``flashcore metrics``."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.cli import main
from flashcore.plugins.metrics import metric_lists


def test_the_command_says_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", "--chip", "ga100"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("missing on ga100 (10)")
    assert "sm__ops_path_tensor_src_fp16_dst_fp32.sum" in output


def test_the_command_refuses_what_is_lost_or_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", "--chip", "ad104", "stall_gmma"]) == 2
    assert main.main(["metrics", "--chip", "gx999"]) == 2
    message = capsys.readouterr().err
    assert "stall_gmma" in message and "flashcore metrics --learn --chip gx999 --table FILE" in message
    assert main.main(["metrics", "--chip", "gh100", "stall_gmma"]) == 0


def test_a_table_is_read_and_only_learned_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learned: list[tuple[str, Path]] = []

    def learn(chip: str, file: Path) -> str:
        learned.append((chip, file))
        return "learned"

    monkeypatch.setattr(metric_lists, "learn", learn)
    file, words = tmp_path / "table.txt.gz", ["metrics", "--chip", "gh100"]
    assert main.main([*words, "--learn"]) == 2 and "expected together with --table" in capsys.readouterr().err
    assert main.main([*words, "--table", str(file)]) == 2 and not learned
    assert main.main([*words, "--learn", "--table", str(file)]) == 0 and learned == [("gh100", file)]
    assert capsys.readouterr().out == "learned\n"
