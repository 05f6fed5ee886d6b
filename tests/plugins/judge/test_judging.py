"""The judge, end to end, on a stand-in of CUDA's driver."""

from __future__ import annotations

from typing import Any

from tests.plugins.judge.conftest import LAUNCH, Judge


def test_an_honest_candidate_is_accepted(judge: Judge) -> None:
    verdict = judge()
    assert (verdict.status, verdict.reasons) == ("accepted", ())
    by_name = {one["shape"]: one for one in verdict.shapes}
    assert set(by_name) == {"small", "odd", "drawn_0", "drawn_1"}
    small = by_name["small"]
    assert small["times"]["cold"]["us"] == small["times"]["isolated"]["us"] == 3.0
    assert by_name["odd"]["times"] == {} and by_name["drawn_0"]["drawn"]
    assert {*small["right"]} == {"random", "ones", "random, timed"}
    assert small["calls_compared"] > small["calls_judged"] > 4


def test_a_wrong_answer_is_rejected(judge: Judge) -> None:
    verdict = judge(launches=[{**LAUNCH, "kernel": "inc_bytes"}])
    assert verdict.status == "rejected" and "y" in verdict.reasons[0]


def test_bytes_beside_a_tensor_are_noticed(judge: Judge) -> None:
    arguments: list[Any] = [[{"tensor": "x"}], [{"tensor": "y"}], [{"int32": "=N + 40"}]]
    verdict = judge(launches=[{**LAUNCH, "arguments": arguments}])
    assert any("outside its tensors" in reason for reason in verdict.reasons)
