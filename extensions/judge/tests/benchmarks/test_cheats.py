"""What the benchmark of cheating variants says of its results."""

from __future__ import annotations

import argparse
import fnmatch
import re
from typing import Any

import pytest

from extensions.judge.benchmarks import cheats
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Record
from flashcore.records import lookup, store
from flashcore.suites.load import load


def results(**variants: tuple[float, str]) -> dict[str, Any]:
    """Results with these variants' times, and why check or bench failed."""
    return {
        "gpu": "GPU",
        "seconds": 9.0,
        "variants": {
            name: {"reasons": [reason] * bool(reason), "gate": [], "times": {"isolated_p50": us} if us else {}}
            for name, (us, reason) in variants.items()
        },
    }


@pytest.mark.parametrize(
    ("us", "reason", "outcome", "code"),
    [
        (0.0, "bench: void", "failed", 0),
        (19.9, "", "harmless", 0),
        (10.0, "", "won", 1),
        (10.0, "bench: void", "failed", 0),
    ],
)
def test_a_cheat_wins_by_a_shorter_time_that_passes(us: float, reason: str, outcome: str, code: int) -> None:
    made = results(honest=(20.0, ""), halves=(us, reason))
    *_, line = cheats.table(made)
    assert line.split()[:2] == ["halves", outcome]
    assert cheats.verdict(made) == code


@pytest.mark.parametrize(("us", "code"), [(39.0, 0), (37.0, 1)])
def test_an_eager_time_is_the_hosts_and_varies(us: float, code: int) -> None:
    made = results(honest=(20.0, ""), stream=(20.0, ""))
    for name, eager in (("honest", 40.0), ("stream", us)):
        made["variants"][name]["times"]["eager_p50"] = eager
    assert cheats.verdict(made) == code


def test_an_honest_variant_that_fails_is_wrong() -> None:
    assert cheats.verdict(results(honest=(0.0, "bench: void"), halves=(0.0, "void"))) == 1


def test_the_suite_has_the_variants_that_the_benchmark_names() -> None:
    names = set(load(cheats.SUITE).variants)
    assert cheats.HONEST in names and names - {*fnmatch.filter(names, cheats.OTHERS)} == {"interpreter"}


# --- on a GPU ---------------------------------------------------------------------------------------

#: How a variant saves its work → what bench must say, or check: an answer that is kept from call to call differs where
#: inputs do.
SAVED = {
    "stops": r"a timed call returned a wrong answer: out: \d+ of 65536 elements not finite",
    "capture": r"a timed call returned a wrong answer: out: 65536 of 65536 elements not finite",
    "remembers": r"on new data with poisoned outputs|differs from the first",
    "host": r"a timed call returned a wrong answer: out: \d+ of 65536 elements not finite.*, eager, turn",
    "looks": r"on new data with poisoned outputs.*reuses results",
}
#: Variants that change what the harness captured, or run beside it.
GRAPHS = ("spacers", "no_spacers", "flushes", "beside", "before_spacers", "events", "first_event")
REASONS = SAVED | dict.fromkeys(GRAPHS, r"a call changed the graph")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, whole_cuda_headers: None) -> tuple[dict[str, Any], Record]:
    """The benchmark's results and its run: all samples in every mode, so that each variant is called often enough to
    stop working."""
    folder = tmp_path_factory.mktemp("cheats")
    options = argparse.Namespace(build_dir=str(folder / "build"), variant=cheats.OTHERS, samples=30, isolate=False)
    return cheats.recorded(folder, options), store.read(lookup.find(folder / "profiles", None))


@pytest.mark.gpu
def test_no_cheat_wins(measured: tuple[dict[str, Any], Record]) -> None:
    results, record = measured
    assert cheats.verdict(results) == 0, "\n".join(cheats.table(results))
    assert results["variants"].keys() == record.suite.variants.keys() - {"interpreter"}


@pytest.mark.gpu
def test_an_honest_kernel_keeps_its_times_by_every_clock(measured: tuple[dict[str, Any], Record]) -> None:
    results, record = measured
    assert not results["variants"][cheats.HONEST]["reasons"]
    subject = CaseSubject(Case(cheats.HONEST, "small"))
    for mode in ("isolated", "back_to_back", "cold", "eager"):
        fact = record.facts.get(f"{mode}_p50", subject)
        assert fact is not None and fact.number is not None and "2 timed answers right" in fact.note, fact
        assert 18 < fact.number < 100


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "reason"), REASONS.items())
def test_a_cheat_is_never_timed(measured: tuple[dict[str, Any], Record], variant: str, reason: str) -> None:
    one = measured[0]["variants"][variant]
    assert any(re.search(reason, text) for text in one["reasons"]), one
    assert not one["times"]
