"""The benchmark of the timing gate: what it concludes from known times, and the kernels that it plants."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from benchmarks import against, chains
from flashcore.build import static_facts as facts_module
from flashcore.features.compare.time_pairs import Times
from flashcore.machine import toolchain
from flashcore.model.slower import PROCESSES
from tests.conftest import compile_one


def drawn(source: random.Random, slower: float = 0.0, spread: float = 0.003, processes: int = 27) -> list[Times]:
    """Processes in which each build is off by the spread, and the one after slower besides."""

    def side(factor: float = 1.0) -> tuple[float, ...]:
        level = 10.0 * factor * math.exp(source.gauss(0, spread))
        return tuple(level * math.exp(source.gauss(0, 0.001)) for _ in range(5))

    return [Times(side(), side(1 + slower), side()) for _ in range(processes)]


def slowed(source: random.Random, spread: float = 0.003) -> dict[str, list[Times]]:
    return {f"planted_5us_{p}pct_1x32": drawn(source, p / 100, spread) for p in (2, 5, 10)}


@pytest.mark.slow
def test_where_nothing_changed_hardly_anything_is_slower_and_what_is_planted_is_found() -> None:
    source = random.Random(1)
    same = {f"v{i}/s": drawn(source) for i in range(60)}
    raw = json.loads(json.dumps(against.processes_of(same, slowed(source))))
    result = against.analyse(raw)
    aa = result["aa"]
    assert (aa["cases"], aa["runs"], aa["comparisons"]) == (60, 50, 3000)
    assert aa["default"]["alarms"] == 0
    assert (aa["disjoint"]["alarms"], aa["disjoint"]["comparisons"]) == (0, 180), "no more share no process"
    for row in aa["levels"]:
        assert row["comparisons"] == 3000 and row["alarms"] <= row["level"] * 3000
    assert aa["spread"]["median"] == pytest.approx(0.003 * math.sqrt(2), rel=0.2)
    assert [row["planted"] for row in result["planted"]] == ["2pct", "5pct", "10pct"]
    for row, percent in zip(result["planted"], (2, 5, 10), strict=True):
        assert row["measured"] == pytest.approx(percent / 100, abs=0.003)
        assert row["disjoint"] == {"found": 3, "runs": 3} and row["draws"] == {"found": 50, "runs": 50}
    head = {"machine": "m", "processes": 27, "rounds": 5, "seconds": 1.0, "throttle": [], "lost": {}, "suite": "x"}
    text = "\n".join(against.table({**head, **raw}))
    assert "3,000 comparisons: 50 gate runs of 60 cases" in text and "50 of 50" in text
    assert "at the defaults: 0 of 50 gate runs raised an alarm" in text
    assert "of them 180 share no process and are at most independent: 0 alarms there" in text
    assert "the rate of false alarms of a comparison is below 1.7 % (95 % confidence)" in text
    assert "0.1 %" not in text


def test_a_build_that_is_not_the_same_raises_alarms() -> None:
    """The count of false alarms could be other than zero."""
    source = random.Random(2)
    same = {f"v{i}/s": drawn(source) for i in range(20)} | {"odd/s": drawn(source, 0.05, 0.0005)}
    lucky = [[(p, 0) for p in range(PROCESSES)]]
    parts = {case: [[against.dealt(t, deal) for deal in against.DEALS] for t in times] for case, times in same.items()}
    runs = [{case: [processes[p][deal] for p, deal in draw] for case, processes in parts.items()} for draw in lucky]
    result = against._alarms(runs, alpha=0.001, level=0.001 / 21, effect=0.01)
    assert result["alarms"] == result["runs_with_alarms"] == 1


def test_what_is_lost_in_noise_is_not_found() -> None:
    source = random.Random(3)
    result = against.analyse(against.processes_of({"v/s": drawn(source, spread=0.1)}, slowed(source, 0.1)))
    assert result["aa"]["runs"] == 54, "no more draws than there are differences"
    assert result["aa"]["default"]["undecided"] == 54
    assert result["planted"][0]["draws"]["found"] == 0


def test_the_parts_are_dealt() -> None:
    times = Times((1.0,), (2.0,), (4.0,))
    results = [(p.change / math.log(2), p.null / math.log(2)) for p in (against.dealt(times, d) for d in against.DEALS)]
    assert results == [pytest.approx(x) for x in ((0.0, 2.0), (1.5, -1.0), (-1.5, -1.0))]


def test_it_stops_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    pace = against.Pace(30.0)
    answers = []
    for _ in range(4):
        answers.append(pace.over())
        now[0] += 10.0
    assert answers == [False, False, False, True]


def test_a_length_gives_its_time() -> None:
    length = chains.Length(start=1.0, step=0.002)
    assert length.loops(5.0) == 2000 and length.loops(5.0 * 1.02) == 2050
    assert length.loops(0.5) == 1


def test_planted_kernels_differ_by_their_length_alone(tmp_path: Path, compiler: toolchain.Nvcc) -> None:
    folder = chains.write_suite([((132, 128), 2000), ((132, 128), 2040)], tmp_path / "suite", "cuda")
    built = compile_one(folder, tmp_path / "build")
    assert [a.status for a in built.artifacts] == ["ok", "ok"], [a.message for a in built.artifacts]
    short, long = (facts_module.facts(a, folder) for a in built.artifacts)
    assert len({a.code for a in built.artifacts}) == 2, "they are timed: it is not the same code"
    counts = [{f.name: f.value for f in facts if f.name.startswith("sass_")} for facts in (short, long)]
    assert counts[0] == counts[1]
    assert counts[0]["sass_ffma"] in (None, 1), "one step, in a loop"


def test_callables_stand_in_where_there_is_no_gpu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from flashcore.suites.load import load

    suite = load(chains.write_suite([((1, 32), 10), ((1, 32), 20), ((1, 32), 10)], tmp_path / "suite", "cpu"))
    assert list(suite.variants) == ["chain_1x32_10", "chain_1x32_20"]
    assert all(v.is_reference for v in suite.variants.values())


@pytest.mark.parametrize(
    ("alarms", "trials", "bound"),
    [(0, 3000, 0.000998), (0, 180, 0.0165), (1, 3000, 0.00158), (3, 3000, 0.00258), (5, 5, 1.0)],
)
def test_the_bound_of_a_rate(alarms: int, trials: int, bound: float) -> None:
    assert against.binomial_upper(alarms, trials) == pytest.approx(bound, rel=5e-3)
