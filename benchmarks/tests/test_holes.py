"""The judgement of mutants of what the gate reads: a control must pass, a planted fault must not."""

from __future__ import annotations

import json

import pytest

from benchmarks.holes.place import Answer
from benchmarks.holes.sources import seen

FAILED = {"status": "fail", "budget": "registers", "subject": {"variant": "v"}, "value": 9, "reason": "9 of 8"}


@pytest.mark.parametrize(
    ("code", "harmless", "outcome"),
    [(0, True, "equivalent"), (1, True, "wrong"), (0, False, "wrong"), (1, False, "noticed"), (4, False, "noticed")],
)  # fmt: skip
def test_a_fault_that_passes_is_wrong_and_so_is_a_control_that_fails(code: int, harmless: bool, outcome: str) -> None:
    assert seen(Answer(code, "", ""), harmless)[0] == outcome
    assert seen(Answer(4, "", "flashcore: this is a defect of flashcore; please report it"), False)[0] == "wrong"


def test_the_words_are_the_first_failures() -> None:
    answer = Answer(1, json.dumps({"verdicts": [{**FAILED, "status": "pass"}, FAILED]}), "flashcore: more\n")
    assert answer.words == "exit 1: fail registers: 9 of 8"
    assert answer.values == {"registers ['v']": ("fail", 9)}
    assert Answer(2, "", "flashcore: no such suite\n").words == "exit 2: flashcore: no such suite"
