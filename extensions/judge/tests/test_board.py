"""The page of a folder of verdicts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore_judge import board
from flashcore_judge.verdict import Verdict, write

NAME = "<script>alert(1)</script>\"'&\x1b[2J"


def verdict(digest: str, us: float, **changes: object) -> Verdict:
    times = {mode: {"us": us, "low": us - 0.1, "high": us + 0.1} for mode in ("cold", "isolated")}
    times["cold"]["speedup"] = {"value": 1.5}  # type: ignore[assignment]
    shape = {
        "shape": "main",
        "params": {"N": 1},
        "drawn": False,
        "first_us": None,
        "times": times,
        "floor": {"cold": 1.0},
    }
    fields = {
        "suite": "s",
        "status": "accepted",
        "shapes": (shape,),
        "untrusted": {"name": NAME},
        "device": {"name": "H", "uuid": "GPU-1", "confined": 1},
        "claims": {"deterministic": True, "tolerance": "fp32", "roof": "fp32"},
        **changes,
    }
    return Verdict(candidate=digest * 64, **{"suite_hash": "5" * 64, **fields})  # type: ignore[arg-type]


def page(folder: Path) -> str:
    board.write(folder, folder / "board.html")
    return (folder / "board.html").read_text()


def test_accepted_candidates_are_ranked_and_others_listed(tmp_path: Path) -> None:
    for one in (verdict("a", 3.0), verdict("b", 2.0), verdict("c", 1.0, status="rejected", reasons=("wrong", NAME))):
        write(one, tmp_path)
    text = page(tmp_path)
    assert re.findall(r"<td>([abc])\1{15}", text) == ["b", "a", "b", "a", "c"]
    assert "<td>2.00</td><td>1.90 to 2.10</td><td>1.00</td><td>1.50</td>" in text and "wrong" in text


def titles(folder: Path) -> list[str]:
    return re.findall("<caption>(.*?)</caption>", page(folder))


def test_only_equal_questions_share_a_rank(tmp_path: Path) -> None:
    write(verdict("a", 3.0), tmp_path)
    (title, _) = titles(tmp_path)
    assert title.startswith("s (55555555) on H: main {") and title.endswith(", fp32, fp32, cold")
    claims = {"deterministic": True, "tolerance": "fp32", "roof": "fp32"}
    others: tuple[dict[str, object], ...] = (
        {"device": {"name": "G"}},
        {"suite_hash": "6" * 64},
        {"claims": {**claims, "tolerance": "bf16"}},
        {"claims": {**claims, "roof": "fp16_tensor"}},
    )
    for digest, changes in zip("bcde", others, strict=True):
        write(verdict(digest, 2.0, **changes), tmp_path)
    assert len(titles(tmp_path)) == 10


@pytest.mark.parametrize("device", [{}, {"name": "H", "uuid": "GPU-1"}])
def test_a_rejection_takes_a_candidate_off_its_rank_whenever_it_was(tmp_path: Path, device: dict[str, str]) -> None:
    outcomes = [("a", "accepted"), ("a", "rejected"), ("b", "rejected"), ("b", "accepted"), ("c", "accepted")]
    for digest, status in outcomes:
        more = {"device": device} if status == "rejected" else {}
        write(verdict(digest, 3.0, status=status, **more), tmp_path)
    write(verdict("c", 3.0, status="rejected", suite_hash="6" * 64), tmp_path)  # another suite
    ranks, _, others = page(tmp_path).partition("Not accepted")
    assert {name for name in "abc" if name * 16 in ranks} == {"c"}
    assert all(name * 16 in others for name in "abc")


def test_a_verdict_under_another_name_is_refused(tmp_path: Path) -> None:
    write(verdict("a", 3.0), tmp_path).rename(tmp_path / f"{'b' * 64}.12345678.verdict.json")
    with pytest.raises(UsageError, match="expected a verdict of format 1"):
        page(tmp_path)


def test_text_of_candidates_is_no_markup(tmp_path: Path) -> None:
    for digest, changes in (("a", {}), ("b", {"status": "rejected", "reasons": (NAME,)}), ("c", {"suite": NAME})):
        write(verdict(digest, 3.0, **changes), tmp_path)
    text = page(tmp_path)
    assert "<script>alert" not in text and "\x1b" not in text and "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", json.dumps({"format": 2}), '{"format": 1, "status": "accepted", "candidate": "a"}']
)
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.verdict.json").write_text(content)
    with pytest.raises(UsageError, match="expected a verdict of format 1"):
        page(tmp_path)
