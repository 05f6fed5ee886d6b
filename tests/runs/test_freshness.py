"""Freshness: the same code, not the same text."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from flashcore.manifest import load
from flashcore.model.record import Artifact, CaseKey, Launch, Plan, Record, Source
from flashcore.model.suite import Suite
from flashcore.runs import freshness
from tests import factory
from tests.conftest import TOY

KEY = CaseKey("code", "closure", "13.0.88")
PEER = CaseKey("", "", "", peer=True)


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        (KEY, ""),
        (None, "never measured"),
        (CaseKey("code", "another", "13.0.88"), ""),  # a comment: other text, same code
        (CaseKey("another", "closure", "13.0.88"), "the code, the plan or the problem changed"),
        (CaseKey("another", "closure", "12.9.41"), ""),  # another compiler, but the same text
        (
            CaseKey("code", "another", "12.9.41"),
            "compiled by nvcc 12.9.41, now 13.0.88, and the sources or flags changed",
        ),
        (PEER, "stale"),
    ],
)
def test_freshness(recorded: CaseKey | None, reason: str) -> None:
    found = freshness.freshness(KEY, recorded)
    assert found == reason if not reason else reason in found


def test_peers_are_never_stale() -> None:
    assert freshness.freshness(PEER, PEER) == ""
    assert freshness.freshness(PEER, None) == "never measured"


# --- keys ---------------------------------------------------------------------------------------


def keys(
    loaded: Suite, *, code: str = "c", closure: str = "x", smem: int = 0, nvcc: str = "13.0.88", status: str = "ok"
) -> dict[str, CaseKey]:
    """Keys of the toy suite's `plain` and peer on sm_90a."""
    artifacts = [Artifact("plain", "sm_90a", status, code=code, closure=closure)]  # type: ignore[arg-type]
    launch = Launch("scale_kernel", (1, 1, 1), (256, 1, 1), (1, 1, 1), smem)
    plans = [Plan("plain", name, (launch,), 0) for name in loaded.shapes]
    cases = [(loaded.variants[v], s) for v in ("plain", "torch_mul") for s in loaded.shapes.values()]
    return freshness.case_keys(loaded, cases, artifacts, plans, "sm_90a", nvcc)


def test_what_a_key_depends_on(tmp_path: Path) -> None:
    root = shutil.copytree(TOY, tmp_path / "suite")
    loaded = load.load(root)
    first = keys(loaded)
    assert set(first) == {"plain/tail", "plain/small", "torch_mul/tail", "torch_mul/small"}
    assert first["torch_mul/tail"] == PEER
    assert first["plain/tail"] != first["plain/small"]
    case = "plain/small"
    assert keys(loaded, code="d")[case].code != first[case].code
    assert keys(loaded, code="d")[case].closure == first[case].closure
    assert keys(loaded, closure="y")[case].closure != first[case].closure
    assert keys(loaded, closure="y")[case].code == first[case].code
    assert keys(loaded, smem=1024)[case].code != first[case].code
    wider = dataclasses.replace(loaded.shapes["small"], params={"N": 8192})
    other = keys(dataclasses.replace(loaded, shapes={**loaded.shapes, "small": wider}))
    assert other[case].code != first[case].code and other[case].closure != first[case].closure
    assert other["plain/tail"] == first["plain/tail"]
    problem = root / "problem.py"
    problem.write_text(problem.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert keys(loaded)[case].code != first[case].code
    assert keys(loaded)[case].closure != first[case].closure


def test_what_was_not_built_has_no_key() -> None:
    assert set(keys(load.load(TOY), status="failed")) == {"torch_mul/tail", "torch_mul/small"}


# --- joining ------------------------------------------------------------------------------------


def recorded() -> tuple[Record, dict[str, CaseKey]]:
    """A complete recorded run and its keys."""
    made = factory.record()
    names = [f"{v.name}/{s.name}" for v, s in factory.cases(made.suite)]
    found = {n: PEER if n.startswith("cudnn") else CaseKey(n, n, "13.0.88") for n in names}
    return dataclasses.replace(made, keys=found), dict(found)


def test_everything_fresh_is_taken_over() -> None:
    record, present = recorded()
    found = freshness.join(record, present, set())
    facts, outcomes, samples, stale, origin = found.facts, found.outcomes, found.samples, found.stale, found.origin
    assert not stale
    assert {f.source for f in facts} <= freshness.MEASURED
    assert {f.subject.case for f in facts} == set(present)
    assert len(facts) == sum(f.source in freshness.MEASURED for f in record.facts)
    assert len(outcomes) == len(record.outcomes) and {o.origin for o in outcomes} == {record.id}
    assert samples == record.samples
    assert origin is not None
    assert (origin.run, origin.machine, origin.arch) == (record.id, "NVIDIA H200", "sm_90a")


def test_a_changed_case_is_stale_and_nothing_of_it_is_taken() -> None:
    record, present = recorded()
    present["fast/mission"] = dataclasses.replace(present["fast/mission"], code="changed")
    found = freshness.join(record, present, set())
    facts, outcomes, samples, stale = found.facts, found.outcomes, found.samples, found.stale
    assert list(stale) == ["fast/mission"] and "changed" in stale["fast/mission"]
    assert "fast/mission" not in {f.subject.case for f in facts}
    assert "fast/mission" not in {o.case for o in outcomes}
    assert not [k for k in samples if k.startswith("fast/mission/")]
    assert [k for k in samples if k.startswith("fast/long/")]


def test_what_the_present_run_measured_is_not_taken_over() -> None:
    record, present = recorded()
    measured = {("fast/mission", "check"), ("fast/mission", "bench")}
    found = freshness.join(record, present, measured)
    facts, outcomes, samples = found.facts, found.outcomes, found.samples
    own = [f for f in facts if f.subject.case == "fast/mission"]
    assert own and {f.source for f in own} == {Source.NCU}
    assert {o.stage for o in outcomes if o.case == "fast/mission"} == {"profile"}
    assert not [k for k in samples if k.startswith("fast/mission/")]


def test_a_changed_case_that_was_measured_again_is_not_stale() -> None:
    record, present = recorded()
    present["fast/mission"] = dataclasses.replace(present["fast/mission"], code="changed")
    assert not freshness.join(record, present, {("fast/mission", "check")}).stale


def test_nothing_fresh_has_no_origin() -> None:
    record, present = recorded()
    changed = {n: CaseKey("changed", "changed", "13.0.88") for n in present}
    found = freshness.join(record, changed, set())
    facts, outcomes, samples, stale, origin = found.facts, found.outcomes, found.samples, found.stale, found.origin
    assert not facts and not outcomes and not samples and origin is None
    assert set(stale) == set(present)


def test_facts_that_need_no_gpu_are_never_taken_over() -> None:
    record, present = recorded()
    sources = {f.source for f in freshness.join(record, present, set()).facts}
    assert not sources & {Source.PTXAS, Source.CUBIN, Source.SASS, Source.PLAN, Source.OCCUPANCY, Source.FORMULA}
