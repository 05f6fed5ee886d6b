"""The page of a folder of verdicts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.plugins.judge.board import page
from flashcore.plugins.judge.verdict import Verdict, write

NAME = "<script>alert(1)</script>\"'&\x1b[2J"


def verdict(digest: str, us: float, **changes: object) -> Verdict:
    times = {mode: {"us": us, "low": us - 0.1, "high": us + 0.1} for mode in ("cold", "isolated")}
    shape = {"shape": "main", "times": times, "floor": {"cold": 1.0}}
    fields = {"status": "accepted", "shapes": (shape,), "untrusted": {"name": NAME}, **changes}
    return Verdict(candidate=digest * 64, suite="s", suite_hash="", **fields)  # type: ignore[arg-type]


def test_accepted_candidates_are_ranked_and_others_listed(tmp_path: Path) -> None:
    for one in (verdict("a", 3.0), verdict("b", 2.0), verdict("c", 1.0, status="rejected", reasons=("wrong", NAME))):
        write(one, tmp_path, None)
    text = page(tmp_path)
    assert re.findall(r"<td>([abc])\1{15}", text) == ["b", "a", "b", "a", "c"]
    assert "<td>2.00<td>1.90 to 2.10<td>1.00" in text and "wrong" in text


def test_text_of_candidates_is_no_markup(tmp_path: Path) -> None:
    write(verdict("a", 3.0), tmp_path, None)
    write(verdict("b", 3.0, status="rejected", reasons=(NAME,)), tmp_path, None)
    text = page(tmp_path)
    assert "<script" not in text and "\x1b" not in text and "&lt;script&gt;" in text
    assert set(re.findall(r"<(/?\w+)", text)) <= {
        *("meta", "title", "/title", "style", "/style", "h1", "/h1", "h2", "/h2", "table", "/table", "tr", "th", "td"),
    }


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"format": 2})])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.verdict.json").write_text(content)
    with pytest.raises(UsageError, match="expected a verdict of format 1"):
        page(tmp_path)
