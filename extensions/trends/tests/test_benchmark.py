"""The benchmark of the trends: its generator plants what it says, and its score counts as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

from benchmarks import raw  # noqa: E402
from extensions.trends.benchmarks import trends  # noqa: E402
from extensions.trends.benchmarks.stores import written  # noqa: E402
from extensions.trends.benchmarks.trends import NIGHTS, SERIES, Alarm, Planted  # noqa: E402
from flashcore.records import store  # noqa: E402


def test_what_is_planted_is_in_the_nights() -> None:
    nights = trends.generated(7)
    assert nights.us.shape == (SERIES, NIGHTS) and np.isfinite(nights.us).all() and (nights.us > 0).all()
    kinds = [p.kind for p in nights.planted]
    assert (kinds.count("step"), kinds.count("drift"), kinds.count("unchanged")) == (60, 40, 300)
    rises = []
    for row, code, truth in zip(nights.us, nights.code, nights.planted, strict=True):
        for night in truth.nights:
            assert code[night] != code[night - 1], "a kernel cannot change with unchanged code"
        if truth.kind == "step" and not truth.moved:
            (night,) = truth.nights
            rise = np.log(np.median(row[night:]) / np.median(row[:night]))
            rises.append(rise / np.log(1.01 + 3 * truth.sigma))
    assert np.median(rises) == pytest.approx(1, abs=0.1)
    assert (trends.generated(7).us == nights.us).all() and not (trends.generated(8).us == nights.us).all()


def test_the_score_counts_alarms_that_are_late_false_or_of_the_machine() -> None:
    step = Planted("step", (50,), 0.01, (), False)
    unchanged = Planted("unchanged", (), 0.01, (60,), False)
    drift = Planted("drift", (40, 50, 60), 0.01, (), False)

    def figures(planted: Planted, *alarms: Alarm) -> dict[str, list[int]]:
        return {name: figure for name, figure in trends.score([planted], {0: alarms}).items() if figure[1]}

    assert figures(step, Alarm(52, 50)) == {"steps found": [1, 1]}
    assert figures(step, Alarm(53, 50)) == figures(step, Alarm(51, 30)) == figures(step) == {"steps found": [0, 1]}
    assert figures(unchanged) == {"unchanged alarmed": [0, 1], "moves blamed": [0, 1]}
    assert figures(unchanged, Alarm(20, 18)) == {"unchanged alarmed": [1, 1], "moves blamed": [0, 1]}
    assert figures(unchanged, Alarm(62, 59)) == {"unchanged alarmed": [1, 1], "moves blamed": [1, 1]}
    assert figures(drift, Alarm(66, 50)) == {"drifts found": [1, 1]}
    assert figures(drift, Alarm(67, 50)) == {"drifts found": [0, 1]}


def test_generated_stores_are_runs(tmp_path: Path) -> None:
    written(tmp_path, 3)
    assert trends._indexed(20)["runs"] == 20
    assert len([p for p in tmp_path.iterdir() if store.RUN_ID.fullmatch(p.name)]) == 3


@pytest.mark.parametrize("group", ["tuned", "held_out"])
def test_the_committed_result_has_both_groups_of_seeds(group: str) -> None:
    results = raw.read(Path(trends.__file__).with_name("results") / "trends.json.xz", "trends")
    assert not {x["seed"] for x in results["tuned"]} & {x["seed"] for x in results["held_out"]} and results[group]
    assert any("goal" in line for line in trends.table(results))
