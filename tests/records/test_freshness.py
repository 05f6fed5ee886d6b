"""Freshness: the same code, not the same text."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.model.case import Case
from flashcore.model.cause import cause_text
from flashcore.model.causes import (
    NEVER_MEASURED,
    NO_HOST_HASH,
    REFERENCE_CHANGED,
    SETTINGS_CHANGED,
    CodeChanged,
    OverReference,
)
from flashcore.model.record import (
    Artifact,
    Built,
    CaseKey,
    CaseSubject,
    Facts,
    Launch,
    Listing,
    Plan,
    Record,
    Source,
    Subject,
)
from flashcore.model.suite import PythonCallable, Suite
from flashcore.records import freshness
from flashcore.suites import load
from tests import factory
from tests.conftest import TOY

FAST, LONG = Case("fast", "mission"), Case("fast", "long")
KEY = CaseKey("code", "source_hash", "13.0.88", host="host", cxx="GCC: (Debian) 12.2.0")
REFERENCE = CaseKey("", "", "", is_reference=True)
OTHER_CXX = "GCC: (Ubuntu) 13.3.0"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"source_hash": "another"}, ""),  # other text, same code
        ({"code": "another"}, "stale: the device code, the plan or the problem changed"),
        ({"host": "another"}, "stale: the host code, the plan or the problem changed"),
        ({"code": "another", "nvcc": "12.9.41"}, "stale: the device code"),  # whatever the text
        ({"source_hash": "another", "nvcc": "12.9.41"}, ""),  # whatever the compiler
        ({"host": "another", "cxx": OTHER_CXX}, ""),
        ({"code": "another", "cxx": OTHER_CXX}, "stale: the device code"),  # that compiler is the same
        ({"host": "another", "nvcc": "12.9.41"}, ""),  # nvcc makes a part of it
        (
            {"source_hash": "another", "host": "another", "nvcc": "12.9.41"},
            "stale: device code compiled by 12.9.41, now 13.0.88, and the sources, the flags",
        ),
        (
            {"source_hash": "another", "host": "another", "cxx": OTHER_CXX},
            "stale: host code compiled by g++ (Ubuntu) 13.3.0, now g++ (Debian) 12.2.0, and the sources",
        ),
        ({"host": "", "cxx": ""}, "stale: recorded without a hash of the host code: record it again"),  # schema 1
        ({"is_reference": True, "code": "", "host": ""}, "stale"),
    ],
)
def test_freshness(changes: dict[str, object], reason: str) -> None:
    recorded = replace(KEY, **changes)  # type: ignore[arg-type]
    result = freshness.freshness(KEY, recorded)
    assert result is None if not reason else reason in cause_text(result)


def test_what_was_never_measured_is_not_fresh() -> None:
    assert freshness.freshness(KEY, None) == NEVER_MEASURED()


def test_two_keys_without_host_code_are_not_the_same() -> None:
    key = replace(KEY, host="", cxx="")
    assert freshness.freshness(key, key) == NO_HOST_HASH("built")


def test_a_reference_is_stale_if_its_file_changed_since_files_were_recorded() -> None:
    one, other = (replace(REFERENCE, code=code) for code in ("one", "other"))
    assert freshness.freshness(one, one) is freshness.freshness(one, REFERENCE) is None
    assert freshness.freshness(one, other) == REFERENCE_CHANGED()
    assert freshness.freshness(REFERENCE, None) == NEVER_MEASURED()


# --- keys ---------------------------------------------------------------------------------------


def keys(
    loaded: Suite,
    *,
    code: str = "c",
    source_hash: str = "x",
    nvcc: str = "13.0.88",
    status: str = "ok",
    host: str = "h",
    **launched: object,
) -> dict[Case, CaseKey]:
    """Keys of the toy suite's `plain` and reference on sm_90a; on sm_80 it has other host code and another plan."""
    artifacts = [
        Artifact("plain", "sm_80", "ok", host="other", cxx="g++"),
        Artifact("plain", "sm_90a", status, code=code, source_hash=source_hash, host=host, cxx="g++"),  # type: ignore[arg-type]
    ]
    launch = replace(Launch("scale_kernel", (1, 1, 1), (256, 1, 1), (1, 1, 1), 0), **launched)  # type: ignore[arg-type]
    plans = [Plan("plain", name, (launch,), 0, archs=("sm_90a",)) for name in loaded.shapes]
    plans += [Plan("plain", name, (), 0, archs=("sm_80",)) for name in loaded.shapes]
    cases = [(loaded.variants[v], s) for v in ("plain", "torch_mul") for s in loaded.shapes.values()]
    return freshness.case_keys(loaded, cases, artifacts, plans, "sm_90a", nvcc)


def test_what_a_key_depends_on(tmp_path: Path) -> None:
    root = shutil.copytree(TOY, tmp_path / "suite")
    loaded = load.load(root)
    first = keys(loaded)
    assert set(first) == {
        Case("plain", "tail"),
        Case("plain", "small"),
        Case("torch_mul", "tail"),
        Case("torch_mul", "small"),
    }
    reference = first[Case("torch_mul", "tail")]
    assert reference.is_reference and reference.code and replace(reference, code="", settings="") == REFERENCE
    assert first[Case("plain", "tail")] != first[Case("plain", "small")]
    case = Case("plain", "small")
    assert keys(loaded, code="d")[case].code != first[case].code
    assert keys(loaded, code="d")[case].source_hash == first[case].source_hash
    assert keys(loaded, source_hash="y")[case].source_hash != first[case].source_hash
    assert keys(loaded, source_hash="y")[case].code == first[case].code
    assert keys(loaded, host="i")[case].host != first[case].host != ""
    assert keys(loaded, host="i")[case].code == first[case].code
    assert first[case].cxx == "g++"
    for launched in ({"dynamic_smem": 1024}, {"programmatic": True}, {"cooperative": True}, {"cluster": (2, 1, 1)}):
        other_launch = keys(loaded, **launched)[case]
        assert other_launch.code != first[case].code and other_launch.source_hash != first[case].source_hash
    file = Path(root) / loaded.variants["torch_mul"].kind.file
    text = file.read_text()
    file.write_text(f"{text}\n# edited\n")
    assert keys(loaded)[Case("torch_mul", "tail")] != reference
    file.write_text(text)
    assert keys(loaded)[Case("torch_mul", "tail")] == reference
    wider = replace(loaded.shapes["small"], params={"N": 8192})
    other = keys(replace(loaded, shapes={**loaded.shapes, "small": wider}))
    assert other[case].code != first[case].code and other[case].source_hash != first[case].source_hash
    assert other[Case("plain", "tail")] == first[Case("plain", "tail")]
    problem = root / "problem.py"
    problem.write_text(problem.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert keys(loaded)[case].code != first[case].code
    assert keys(loaded)[case].source_hash != first[case].source_hash


def test_what_was_not_built_has_no_key() -> None:
    assert set(keys(load.load(TOY), status="failed")) == {Case("torch_mul", "tail"), Case("torch_mul", "small")}


# --- joining ------------------------------------------------------------------------------------


def recorded() -> tuple[Record, dict[Case, CaseKey]]:
    """A complete recorded run and its keys."""
    made = factory.record()
    cases = [Case(v.name, s.name) for v, s in factory.cases(made.suite)]
    results = {
        c: REFERENCE if c.variant == "cudnn" else CaseKey(f"{c}", f"{c}", "13.0.88", host=f"{c}", cxx="g++")
        for c in cases
    }
    return replace(made, keys=results), dict(results)


def test_everything_fresh_is_taken_over() -> None:
    record, present = recorded()
    joined = freshness.join(record, present, set(), record.suite)
    facts, outcomes, origin = joined.facts, joined.outcomes, joined.origin
    assert not joined.stale
    assert {f.source for f in facts if f.name != "waves"} <= freshness.MEASURED.keys()
    assert {f.subject.case for f in facts} == set(present)
    waves = sum(f.name == "waves" and f.subject.arch == record.gpu_arch for f in record.facts)
    assert waves and len(facts) == waves + sum(f.source in freshness.MEASURED for f in record.facts)
    assert len(outcomes) == len(record.outcomes) and {o.origin for o in outcomes} == {record.id}
    assert joined.raw_samples == record.samples
    assert origin is not None
    assert (origin.run, origin.machine, origin.arch) == (record.id, "NVIDIA H200", "sm_90a")


def test_what_another_compiler_made_is_joined_by_its_text_and_that_is_said() -> None:
    record, present = recorded()
    here = {n: k if k.is_reference else replace(k, host="another", cxx=OTHER_CXX) for n, k in present.items()}
    joined = freshness.join(record, here, set(), record.suite)
    assert not joined.stale and joined.origin is not None
    assert joined.origin.compilers == (("host", "g++", OTHER_CXX),)
    (note,) = replace(record, joined=(joined.origin,)).environment_notes()
    assert record.id in note and "host code compiled by g++, now g++ (Ubuntu) 13.3.0" in note


def test_a_changed_case_is_stale_and_nothing_of_it_is_taken() -> None:
    record, present = recorded()
    present[FAST] = replace(present[FAST], code="changed")
    joined = freshness.join(record, present, set(), record.suite)
    facts, outcomes, samples = joined.facts, joined.outcomes, joined.raw_samples
    assert joined.stale == {FAST: CodeChanged("device")}
    assert FAST not in {f.subject.case for f in facts}
    assert FAST not in {o.case for o in outcomes}
    assert not [k for k in samples if k[0] == FAST]
    assert [k for k in samples if k[0] == LONG]


def test_what_the_present_run_measured_is_not_taken_over() -> None:
    record, present = recorded()
    measured = {(FAST, "check"), (FAST, "bench")}
    joined = freshness.join(record, present, measured, record.suite)
    facts, outcomes, samples = joined.facts, joined.outcomes, joined.raw_samples
    measured_facts = [f for f in facts if f.subject.case == FAST]
    assert measured_facts and {f.source for f in measured_facts if f.name != "waves"} == {Source.NCU}
    assert {o.stage for o in outcomes if o.case == FAST} == {"profile"}
    assert not [k for k in samples if k[0] == FAST]


def test_listings_come_along_where_their_profile_does() -> None:
    record, present = recorded()
    cases = [("fast", "mission"), ("fast", "long"), ("split", "mission")]
    listings = tuple(Listing(CaseSubject(Case(v, s), kernel="k"), ()) for v, s in cases)
    record = replace(record, listings=listings)
    present[FAST] = replace(present[FAST], code="changed")
    measured = {(Case("split", "mission"), "profile")}
    joined = freshness.join(record, present, measured, record.suite)
    measured.add((LONG, "profile"))  # what is measured or joined later is no business of this one's
    assert [x.subject.case for x in joined.listings] == [LONG]


def test_a_changed_case_that_was_measured_again_is_not_stale() -> None:
    record, present = recorded()
    present[FAST] = replace(present[FAST], code="changed")
    assert not freshness.join(record, present, {(FAST, "check")}, record.suite).stale


def test_nothing_fresh_has_no_origin() -> None:
    record, present = recorded()
    changed = {n: CaseKey("changed", "changed", "13.0.88", host="h") for n in present}
    joined = freshness.join(record, changed, set(), record.suite)
    assert not (joined.facts or joined.outcomes or joined.raw_samples or joined.origin)
    assert set(joined.stale) == set(present)


def test_facts_that_need_no_gpu_are_never_taken_over() -> None:
    record, present = recorded()
    sources = {f.source for f in freshness.join(record, present, set(), record.suite).facts if f.name != "waves"}
    assert not sources & {Source.PTXAS, Source.CUBIN, Source.SASS, Source.PLAN, Source.OCCUPANCY, Source.FORMULA}


def test_waves_are_joined_since_only_a_gpu_tells_the_number_of_sms() -> None:
    at: dict[str, str] = {"shape": "mission", "arch": "sm_90a", "kernel": "fast_kernel"}
    waves, smem = (factory.fact(name, 2, "fast", source=Source.OCCUPANCY, **at) for name in ("waves", "smem"))  # type: ignore[arg-type]
    keys = {FAST: KEY}
    record = factory.record(facts=[waves, smem], keys=keys)

    def joined(present: CaseKey, *counted: Subject) -> list[str]:
        facts = freshness.join(record, {FAST: present}, set(), record.suite, counted).facts
        return [f.name for f in facts if f in (waves, smem)]

    assert joined(KEY) == ["waves"]
    assert joined(replace(KEY, code="another")) == []
    assert joined(KEY, waves.subject) == []


@pytest.mark.parametrize("change", [{"dtype": "float16"}, {"default": 3.0}, {"dims": ("N",)}])
def test_another_operator_makes_its_cases_stale(change: dict[str, object]) -> None:
    record, present = recorded()
    problem = record.suite.problems[record.suite.variants["fast"].problem]
    arguments = tuple(replace(a, **change) for a in problem.arguments)  # type: ignore[arg-type]
    other = replace(problem, arguments=(*arguments, problem.arguments[0]))
    suite = replace(record.suite, problems={**record.suite.problems, problem.name: other})
    assert freshness.join(record, present, set(), suite).stale[FAST] == SETTINGS_CHANGED()


@pytest.mark.parametrize("change", [{"kind": PythonCallable("peers.py:other")}, {"config": {"backend": 2}}])
def test_another_function_of_a_references_file_makes_it_stale(change: dict[str, object]) -> None:
    record, present = recorded()
    for name, reason in (("cudnn", REFERENCE_CHANGED()), ("fast", None)):  # a kernel's code says the same
        other = replace(record.suite.variants[name], config={"backend": 1})
        if name == "cudnn":
            other = replace(record.suite.variants[name], **change)  # type: ignore[arg-type]
        suite = replace(record.suite, variants={**record.suite.variants, name: other})
        assert freshness.join(record, present, set(), suite).stale.get(Case(name, "mission")) == reason


@pytest.mark.parametrize(
    ("name", "over", "changed", "baseline", "applies"),
    [
        ("speedup_vs_baseline", "split", "", "split", True),
        ("speedup_vs_baseline_low", "split", "", "fast", False),  # another variant is the baseline
        ("speedup_vs_baseline", "split", "split/mission", "split", False),
        ("speedup_vs_baseline", "split", "split/long", "split", True),  # the one on the other shape
        ("speedup_vs_reference", "cudnn", "", "split", True),
        ("speedup_vs_reference", "cudnn", "cudnn/mission", "split", False),
    ],
)
def test_a_ratio_over_a_reference_that_has_changed_has_no_value(
    name: str, over: str, changed: str, baseline: str, applies: bool
) -> None:
    record, present = recorded()
    ratio = factory.fact(name, 2.0, "fast", shape="mission", detail=OverReference(over, "isolated", 9))
    record = replace(record, facts=Facts([ratio]))
    if changed:
        case = Case.parse(changed)
        key = present[case]
        present[case] = replace(key, code="changed")
        record = replace(record, keys={**record.keys, case: replace(key, code="code")})
    suite = replace(record.suite, baseline=baseline)
    (fact,) = freshness.join(record, present, set(), suite).facts
    assert (fact.value, fact.cause) == ((2.0, None) if applies else (None, REFERENCE_CHANGED()))


@pytest.mark.parametrize("what", ["device code", "launch plan", "parameters", "problem"])
def test_what_changed_is_named(what: str) -> None:
    record, present = recorded()
    present[FAST] = replace(present[FAST], code="another")
    artifacts, plans, suite = record.artifacts, record.plans, record.suite
    if what == "device code":
        artifacts = tuple(replace(a, code="other") if a.variant == "fast" else a for a in artifacts)
    if what == "launch plan":
        plans = tuple(replace(p, launches=()) if p.variant == "fast" else p for p in plans)
    if what == "parameters":
        wider = replace(suite.shapes["mission"], params={"B": 2, "H": 8, "S": 512, "D": 64})
        suite = replace(suite, shapes={**suite.shapes, "mission": wider})
    joined = freshness.join(record, present, set(), suite, built=Built("13.0.88", artifacts, plans))
    assert joined.stale == {FAST: CodeChanged("device", (what,))}
    assert f"the {what} changed" in cause_text(joined.stale[FAST])


def test_code_of_another_compiler_is_another_kernel_and_both_are_named() -> None:
    record, present = recorded()
    present[FAST] = replace(present[FAST], code="another", nvcc="13.5.37")
    reason = cause_text(freshness.join(record, present, set(), record.suite).stale[FAST])
    assert "compilers differ: device code compiled by 13.0.88, now 13.5.37" in reason
