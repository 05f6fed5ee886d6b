"""Which recorded runs are read to join from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.errors import RecordError
from flashcore.model.case import Case
from flashcore.model.causes import NOT_PROFILED, Decided, Hang, HungBefore
from flashcore.model.record import Built, CaseKey, CaseOutcome, CaseSubject, Facts, Lazy, Measured, Record
from flashcore.model.suite import GPU_STAGES, Stage, Suite
from flashcore.records import assemble, freshness, soundness, store
from flashcore.records.assemble import Findings
from flashcore.stages.profile.ncu_facts import unmeasured
from tests import factory

FULL, NEWER, NEWEST = (f"2026010{day}T000000Z-0001" for day in (2, 3, 4))
WHOLE = factory.record(
    outcomes=tuple(
        factory.outcome(v.name, s.name, stage) for v, s in factory.cases(factory.suite()) for stage in GPU_STAGES
    )
)


def recorded(profiles: Path, *runs: Record, damaged: Sequence[str] = ()) -> Path:
    """A folder of these runs; those in ``damaged`` have no readable facts."""
    for run in runs:
        store.write(run, folder := store.begin(profiles, run.id))
        if run.id in damaged:
            (folder / store.FACTS).write_bytes(b"no facts")
            store.seal(folder)
        store.complete(folder)
    return profiles


def test_facts_of_another_gpus_run_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = factory.on_l4(factory.record(), id=NEWER)
    runs = recorded(tmp_path, factory.record(id=FULL), other, damaged=[NEWER])
    assert [r.id for r in assemble.to_join(runs, other.suite.name, "NVIDIA H200", before=None)] == [FULL]
    assert not capsys.readouterr().err


def keyed(code: str) -> dict[Case, CaseKey]:
    return {Case(v.name, s.name): CaseKey(code, "c", "13", host="h") for v, s in factory.cases(factory.suite())}


def present(suite: Suite) -> Findings:
    """The present sources, whose code is ``new``, without a GPU."""
    nothing = Built("13", (), ())
    return Findings("gate", suite, factory.cases(suite), factory.environment(gpu=None), nothing, Measured())


@pytest.mark.parametrize("stages", [GPU_STAGES, GPU_STAGES[:-1]])
def test_newer_runs_of_other_code_do_not_hide_the_results_of_the_present_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: Sequence[Stage]
) -> None:
    """Whether the newer ones have all stages or not: as after a revert."""
    monkeypatch.setattr(freshness, "case_keys", lambda *_: keyed("new"))
    outcomes = tuple(o for o in WHOLE.outcomes if o.stage in stages)
    others = [
        replace(WHOLE, id=f"202601{day}T000000Z-0001", keys=keyed("other"), outcomes=outcomes) for day in range(10, 20)
    ]
    old = replace(WHOLE, id=FULL, keys=keyed("new"))
    runs = assemble.to_join(recorded(tmp_path, old, *others), old.suite.name, None)
    record = assemble.record_of("20260201T000000Z-0001", present(old.suite), runs)
    assert [origin.run for origin in record.joined] == [FULL] and not record.stale


def test_no_further_run_is_read_where_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "case_keys", lambda *_: keyed("new"))

    def runs() -> Iterator[Record]:
        for day in range(20, 10, -1):
            yield replace(WHOLE, id=f"202601{day}T000000Z-0001", keys=keyed("new"))
        raise AssertionError("read on")

    record = assemble.record_of("20260201T000000Z-0001", present(WHOLE.suite), runs())
    assert [origin.run for origin in record.joined] == ["20260120T000000Z-0001"]


def test_a_damaged_run_neither_names_the_gpu_nor_ends_the_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = factory.on_l4(factory.record(), id=NEWEST)
    whole = replace(WHOLE, id=NEWER)
    runs = recorded(tmp_path, replace(WHOLE, id=FULL), whole, other, damaged=[NEWER, NEWEST])
    (run,) = assemble.to_join(runs, other.suite.name, None, before=None)
    assert run.id == FULL and run.gpu == "NVIDIA H200" and len(run.facts)
    skipped = capsys.readouterr().err
    assert f"skipped run {NEWEST}" in skipped and f"skipped run {NEWER}" in skipped


def test_a_run_whose_facts_cannot_be_read_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {Case(v.name, s.name): CaseKey("c", "c", "13", host="h") for v, s in factory.cases(factory.suite())}
    monkeypatch.setattr(freshness, "case_keys", lambda *_: keys)
    full = factory.record(id=FULL, keys=keys)
    places = recorded(tmp_path, full, replace(full, id=NEWER), damaged=[NEWER])
    runs = assemble.to_join(places, full.suite.name, full.gpu, before=None)
    nothing = Findings("gate", full.suite, (), factory.environment(gpu=None), Built("13", (), ()), Measured())
    record = assemble.record_of(NEWEST, nothing, runs)
    assert [o.run for o in record.joined] == [FULL]
    assert {o.origin for o in record.outcomes} == {FULL} and record.samples.keys() == full.samples.keys()
    assert f"skipped run {NEWER}" in capsys.readouterr().err


def test_nothing_is_joined_for_a_case_whose_variant_hangs_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its facts would be there twice, measured and unmeasured, and no run with a fact twice can be read."""
    keys = {Case(v.name, s.name): CaseKey("c", "c", "13", host="h") for v, s in factory.cases(factory.suite())}
    monkeypatch.setattr(freshness, "case_keys", lambda *_: keys)
    full, hung = factory.record(id=FULL, keys=keys), HungBefore("long", Hang(60.0))
    outcome = CaseOutcome("fast", "mission", "profile", "skipped", hung)
    measured = Measured(tuple(unmeasured(outcome.case, NOT_PROFILED(hung))), (outcome,))
    now = Findings("profile", full.suite, (), full.environment, Built("13", (), ()), measured)
    record = assemble.record_of(NEWEST, now, assemble.to_join(recorded(tmp_path, full), full.suite.name, full.gpu))
    assert [o.run for o in record.joined] == [FULL]
    assert [o for o in record.outcomes if (o.case, o.stage) == (outcome.case, "profile")] == [outcome]
    (folder := tmp_path / "joined").mkdir()
    store.write(record, folder)
    assert store.read(folder).facts.number("ncu_duration", CaseSubject(outcome.case)) is None


def test_a_second_run_on_the_same_gpu_counts_its_waves_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = factory.suite()
    keys = {Case(v.name, s.name): CaseKey("c", "c", "13", host="h") for v, s in factory.cases(suite)}
    monkeypatch.setattr(freshness, "case_keys", lambda *_: keys)
    older = factory.record(id=FULL, keys=keys)
    benched = replace(
        older,
        id=NEWER,
        outcomes=tuple(o for o in older.outcomes if o.stage != "profile"),
        facts=Facts([f for f in older.facts if freshness.MEASURED.get(f.source) != "profile"]),
    )
    places = recorded(tmp_path, benched, older)
    runs = [store.read(places / run) for run in (NEWER, FULL)]
    waves = tuple(fact for fact in older.facts.named("waves") if fact.subject.arch == older.gpu_arch)
    assert waves
    for facts in ((), waves):  # a gate without a GPU, and a measurement on it
        built = Built("13", older.artifacts, older.plans, facts)
        present = Findings("bench", suite, (), older.environment, built, Measured())
        record = assemble.record_of(NEWEST, present, runs)
        assert sorted(map(str, record.facts.named("waves"))) == sorted(map(str, waves))
        assert not list(soundness.mistakes_in_facts(record, record.facts)), "such a record could not be read again"


def test_facts_are_not_read_where_no_outcome_is_taken_over() -> None:
    def unreadable() -> Facts:
        raise RecordError("read")

    run = factory.record(
        keys={Case(v.name, s.name): CaseKey("c", "c", "13", host="h") for v, s in factory.cases(factory.suite())}
    )
    lazy = replace(run, facts=Facts(Lazy(unreadable)))
    done: set[tuple[Case, str]] = {(o.case, o.stage) for o in run.outcomes}
    assert freshness.join(lazy, run.keys, done, lazy.suite).facts == []
    changed = {case: replace(key, code="changed") for case, key in run.keys.items()}
    assert freshness.join(lazy, changed, set(), lazy.suite).facts == []
    for _ in range(2):
        with pytest.raises(RecordError, match="read"):
            freshness.join(lazy, run.keys, done - {(Case("fast", "mission"), "bench")}, lazy.suite)


def test_a_decision_that_does_not_hold_is_compared_with_the_newest_run_in_which_it_did() -> None:
    def run(*details: Decided) -> Record:
        facts = [
            replace(factory.fact("decision_wide", len(d.missed), arch="sm_90a", kernel=str(n)), detail=d)
            for n, d in enumerate(details)
        ]
        return replace(factory.bare_record(factory.suite(), facts), id=NEWER)

    lost, kept, older = (
        Decided("a.cu", 3, ("mma",), "FFMA ×2"),
        Decided(code_has="HMMA ×8"),
        Decided(code_has="HMMA ×9"),
    )
    recorded = [run(lost), run(kept, kept), run(older, older)]
    built = Built("13", (), (), tuple(run(lost, kept).facts))
    nothing = Findings("gate", factory.suite(), (), factory.environment(), built, Measured())
    details = [fact.detail for fact in assemble.record_of(NEWEST, nothing, recorded).facts]
    assert details == [replace(lost, before="HMMA ×8"), kept]
    assert [fact.detail for fact in assemble.record_of(NEWEST, nothing, []).facts] == [lost, kept]
