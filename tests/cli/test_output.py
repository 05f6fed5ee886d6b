"""``--format json``: the documented keys, and the very values that the tables are made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flashcore.cli import doctor, output
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.model.catalogue import FACTS
from flashcore.suites.load import load
from tests.conftest import TOY


def json_of(capsys: pytest.CaptureFixture[str], *words: str, code: Exit = Exit.OK) -> dict[str, Any]:
    assert main([*words, "--format", "json"]) == code
    return checked(capsys.readouterr().out)


def checked(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(text)
    assert parsed["version"] == 1 and parsed["tool"].startswith("flashcore ")
    return parsed


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    result, suite = json_of(capsys, "list", "--suite", str(TOY)), load(TOY)
    assert result["suite"]["name"] == suite.name and result["suite"]["archs"] == list(suite.archs)
    assert [v["name"] for v in result["variants"]] == list(suite.variants)
    assert {v["name"] for v in result["variants"] if v["is_reference"]} == {
        v.name for v in suite.variants.values() if v.is_reference
    }
    assert {s["name"]: s["params"] for s in result["shapes"]} == {s.name: s.params for s in suite.shapes.values()}
    assert [(b["name"], b["fact"], b["minimum"], b["maximum"], b["unit"]) for b in result["budgets"]] == [
        (b.name, b.fact, b.minimum, b.maximum, b.unit) for b in suite.budgets
    ]


def test_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    result = json_of(capsys, "list", "--facts")["facts"]
    assert [f["name"] for f in result] == list(FACTS)
    assert all(
        (f["unit"], f["tier"], f["ncu"]) == (s.unit, s.tier, s.ncu) for f, s in zip(result, FACTS.values(), strict=True)
    )


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [doctor.Component("numpy", True, "2", "bench, report"), doctor.Component("jinja2", True, "3", "report"),
             doctor.Component("GPU", False, "no CUDA device", "check", "use one")]  # fmt: skip
    monkeypatch.setattr(doctor, "examine", lambda: parts)
    result = json_of(capsys, "doctor", code=Exit.INCAPABLE)
    assert result["can"] == ["report"]
    assert result["parts"][2] == {
        "name": "GPU", "found": False, "detail": "no CUDA device", "needed_for": "check", "fix": "use one",
    }  # fmt: skip
    assert main(["doctor"]) == Exit.INCAPABLE
    assert "missing  GPU (check): no CUDA device\n  hint: use one\n" in capsys.readouterr().out


def test_a_document_is_plain_utf_8_and_holds_no_number_that_json_lacks() -> None:
    assert '"unit": "µs"' in output.document(unit="µs")
    with pytest.raises(ValueError):
        output.document(value=float("nan"))
