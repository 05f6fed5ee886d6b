"""Answers in pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

pages = pytest.importorskip("flashcore.plugins.mcp.pages", reason="plugin: mcp")
MOST = 4000


def read(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """All pages of an answer."""
    answers = pages.Answers(MOST)
    each = [answers.first(answer)]
    while "next" in each[-1]:
        each.append(answers.rest(each[-1]["next"]))
    assert all(len(json.dumps(page, ensure_ascii=False).encode()) <= MOST for page in each)
    return each


def test_a_small_answer_is_one_page() -> None:
    answer = {"run": "a", "cases": [{"us": 1.5}], "none": []}
    assert read(answer) == [answer]


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
def test_each_item_comes_once_and_in_order(letter: str) -> None:
    answer = {"run": "a", "first": [letter * n for n in range(200)], "second": [{"n": n} for n in range(500)]}
    each = read(answer)
    for key in ("first", "second"):
        assert [item for page in each for item in page.get(key, ())] == answer[key]
    assert [page["left"] for page in each[:-1]] == sorted({page["left"] for page in each[:-1]}, reverse=True)
    assert [("run" in page) for page in each] == [True] + [False] * (len(each) - 1)


def test_an_object_comes_in_pages_before_the_lists() -> None:
    answer = {"rows": [*range(2000)], "params": {f"{n} " + "x" * 90: n for n in range(200)}, "run": "a"}
    each = read(answer)
    assert {k: v for page in each for k, v in page.get("params", {}).items()} == answer["params"]
    assert [n for page in each for n in page.get("rows", ())] == answer["rows"]
    assert "params" in each[0] and "params" not in each[-1]


def test_names_are_as_harmless_as_texts() -> None:
    [page] = read({"params": {"\x1b[2Jrun\u200bthis\u202e\U000e0041" + "x" * 600: "\ufeff"}})
    [(name, value)] = page["params"].items()
    assert name.startswith(r"\u001b[2Jrun\u200bthis\u202e\U000e0041x") and len(name) == 501 and value == r"\ufeff"


def test_an_item_larger_than_a_page_is_left_out_and_said_to_be() -> None:
    [page] = read({"rows": [{f"key{n}": "x" * 400 for n in range(20)}, {"n": 1}]})
    assert page["rows"][0].startswith("omitted: an item of 8") and page["rows"][1] == {"n": 1}


def test_only_the_last_answers_are_kept() -> None:
    answers = pages.Answers(MOST)
    cursors = [answers.first({"rows": [["x" * 400] * 3] * 9})["next"] for _ in range(40)]
    kept = [answers.rest(cursor) is not None for cursor in cursors]
    assert not any(kept[:20]) and all(kept[30:])


@pytest.mark.parametrize("cursor", ["", "1", "1:", "1:-1", "1:x", "x:1", "7:0", ":", "1:0:0", "1:" + "9" * 5000])
def test_what_is_no_cursor_names_no_page(cursor: str) -> None:
    answers = pages.Answers(MOST)
    answers.first({"rows": [1]})
    assert answers.rest(cursor) is None
