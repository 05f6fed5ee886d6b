"""The profile stage against a stand-in ncu that plays back a recording, and goes wrong in every way we know."""

from __future__ import annotations

import itertools
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import ncu
from flashcore.model.catalogue import FACTS
from flashcore.model.files import write_atomically, writing
from flashcore.model.record import CaseOutcome, Fact, Facts, StageResult
from flashcore.readers.ncu.results import BY_ADDRESS, SAMPLES
from flashcore.readers.phases import Code
from flashcore.runner import rounds
from flashcore.runner.journal import Share, Task
from flashcore.runner.queue import Pool
from flashcore.stages.profile import child, ncu_facts, profile
from flashcore.stages.profile.ncu_facts import INFERRED, MEASURED, metrics_to_request
from tests.conftest import ROOT
from tests.support.profiled import NAMES, RECORDED_NS, case, durations, profiling, subject

BY_BATCH = [*RECORDED_NS[:3], *RECORDED_NS[:2]]  # each report plays the recording from its start
DURATION = "gpu__time_duration.sum"


Run = Callable[..., StageResult]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NCU_STANDIN_LOG", str(tmp_path / "calls.jsonl"))

    def call(
        wrong: str = "",
        *,
        once: bool = False,
        names: tuple[str, ...] = NAMES,
        **options: Any,
    ) -> StageResult:
        monkeypatch.setenv("NCU_STANDIN", wrong)
        if once:
            monkeypatch.setenv("NCU_STANDIN_ONCE", str(tmp_path / "once"))
        cases = [case(n) for n in names]
        given = {"batch": 3, "time_limit": 120.0, "startup_limit": 120.0}
        return profile.profiled(cases, tmp_path / "profile", profiling(**given | options))

    return call


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[list[str]]]:
    def read() -> list[list[str]]:
        return [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]

    return read


def outcomes(result: StageResult) -> dict[str, CaseOutcome]:
    return {str(o.case): o for o in result.outcomes}


def fact(result: StageResult, name: str, case_name: str) -> Fact:
    actual = Facts(result.facts).get(name, subject(case_name))
    assert actual is not None
    return actual


# --- it goes well --------------------------------------------------------------------------------


def test_all_cases_in_few_processes(run: Run, calls: Callable[[], list[list[str]]], tmp_path: Path) -> None:
    lines: list[str] = []
    result = run(progress=lines.append)
    assert [o.status for o in result.outcomes] == ["ok"] * 5
    # Each batch plays the recording from its start: the rows are found by name, in whatever report.
    assert durations(result) == [*RECORDED_NS[:3], *RECORDED_NS[:2]]
    assert len(lines) == 5 and "v0/mission" in lines[0] and "ok" in lines[0]
    assert len(calls()) == 4, "two batches, each profiled and imported once"
    saved = sorted(p.name for p in tmp_path.rglob("report-*"))
    assert saved == ["report-001.csv.xz", "report-002.csv.xz"]
    raw = lzma.decompress((tmp_path / "profile/round-0/report-001.csv.xz").read_bytes()).decode()
    assert "flashcore:v0/mission" in raw and '"ID"' in raw


def test_the_ncu_that_was_started_ahead_is_used(run: Run, calls: Callable[[], list[list[str]]], tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    with Pool() as workers:
        profile.start([case(n) for n in NAMES], folder, profiling(batch=3, workers=workers))
        assert len(list((folder / "round-0").glob("tasks-*"))) == 1
        result = run(workers=workers)
    assert durations(result) == BY_BATCH and rounds.following(folder).name == "round-1"
    assert sum("--import" not in words for words in calls()) == 2, "the one that waited, and one for the last two"


def test_an_ncu_that_was_started_ahead_for_other_metrics_is_not_used(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    with Pool() as workers:
        profile.start([case(n) for n in NAMES], folder, profiling(clock_control="base", workers=workers))
        result = run(workers=workers)
    assert durations(result) == BY_BATCH
    assert Share.decode((folder / "round-0" / "tasks-001.json").read_bytes()).tasks == ()


def test_a_round_that_was_only_started_ahead_is_not_counted(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    with Pool() as workers:
        profile.start([case(n) for n in NAMES], folder, profiling(workers=workers))
    assert rounds.following(folder).name == "round-0"
    assert durations(run()) == BY_BATCH and not (folder / "round-1").exists()


def test_what_ncu_is_told(run: Run, calls: Callable[[], list[list[str]]]) -> None:
    run(clock_control="base", names=NAMES[:1])
    listed, imported = calls()
    options = dict(itertools.pairwise(listed))
    assert options["--nvtx-include"] == "regex:flashcore@.*/" and "--nvtx" in listed
    assert options["--clock-control"] == "base"
    assert options["--metrics"].split(",") == metrics_to_request("gh100", without=INFERRED)
    assert listed[-6:-2] == [sys.executable, "-P", "-m", "flashcore.stages.profile.child"]
    assert imported[imported.index("--page") + 1] == "raw" and "--csv" in imported
    assert imported[imported.index("--print-units") + 1] == "base"
    assert imported[imported.index("--print-metric-instances") + 1] == "details"
    defaults = ncu.command_line("ncu", Path("/a%b/r.ncu-rep"), ["m"], ["t"])
    assert defaults[defaults.index("--clock-control") + 1] == "none", "clocks are left alone unless asked"
    assert defaults[defaults.index("--export") + 1] == "/a%%b/r"


@pytest.mark.parametrize(("few", "shallow"), [(5, ()), (4, ("v0/long", "v1/long"))])
def test_of_many_cases_each_variants_first_is_measured_in_depth(
    run: Run,
    calls: Callable[[], list[list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    few: int,
    shallow: tuple[str, ...],
) -> None:
    monkeypatch.setattr(profile, "FEW", few)
    monkeypatch.setenv("NCU_STANDIN_RECORDING", "ncu_raw_samples.csv")
    names = ("v0/mission", "v1/mission", "v0/long", "v1/long", "v2/long")
    result = run(names=names, codes=dict.fromkeys(("v0", "v1", "v2"), CODES["v0"]).get, batch=16)
    listed = [dict(itertools.pairwise(call))["--metrics"].split(",") for call in calls() if "--metrics" in call]
    everything = metrics_to_request("gh100", sampled=True, without=ncu_facts.RARE if shallow else INFERRED)
    costly = {*(FACTS[name].ncu_name("gh100") for name in ncu_facts.COSTLY), *BY_ADDRESS.values()}
    assert {FACTS["xu_active"].ncu, SAMPLES} < costly & set(everything) and listed[0] == everything
    assert (FACTS["sm_throughput"].ncu in everything) == (not shallow), "7 of 23 passes"
    assert listed[1:] == [[m for m in everything if m not in costly]] * bool(shallow)
    with_phases = {f"{f.subject.variant}/{f.subject.shape}" for f in result.facts if f.name.startswith("phase_share_")}
    assert with_phases == set(names) - set(shallow)
    assert [o.status for o in result.outcomes] == ["ok"] * 5


SHAPES = ("v0/mission", "v1/mission", "v0/long", "v1/long", "cudnn/mission")
COSTLY = {s.ncu_name("gh100") for s in FACTS.values() if s.many_passes}


def deep(**options: Any) -> set[str]:
    return profile.under_ncu([case(n) for n in SHAPES], profiling(references=("cudnn",), **options)).deep


@pytest.mark.parametrize(
    ("fact_name", "more"),
    [*((name, {"v1/long"}) for name in ("fma_active", "phase_share_load", "tensor_flop_int8")), ("dram_bytes", set())],
)
def test_a_fact_that_a_budget_or_prediction_needs_is_measured_of_any_case(
    monkeypatch: pytest.MonkeyPatch, fact_name: str, more: set[str]
) -> None:
    assert deep() == {*SHAPES}, "of few cases everything"
    monkeypatch.setattr(profile, "FEW", 4)
    first = {"v0/mission", "v1/mission"}
    assert deep() == first
    assert deep(required={"v1/long": {fact_name, "registers"}}) == first | more


def groups_of(tasks: list[Task], chosen: profile.Profiling) -> list[tuple[list[str], list[Task]]]:
    return [*profile.under_ncu(tasks, chosen).groups(tasks)]


def test_what_is_measured_in_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "FEW", 4)
    tasks, codes = [case(n) for n in SHAPES], dict.fromkeys(("v0", "v1"), CODES["v0"]).get
    groups = groups_of(tasks, profiling(codes=codes, references=("cudnn",)))
    assert [[t.name for t in group] for _, group in groups] == [[*SHAPES[:2]], [*SHAPES[2:]]]
    deep = COSTLY - {FACTS["sm_throughput"].ncu}
    assert [(SAMPLES in metrics, {*metrics} >= deep) for metrics, _ in groups] == [(True, True), (False, False)]
    ((metrics, _), _) = groups_of(tasks, profiling(references=("cudnn",)))
    assert SAMPLES not in metrics, "no phases: no samples"
    for name in ("tensor_flop_int8", "sm_throughput"):
        for required in ((), (name,)):
            both = groups_of(tasks, profiling(required={"v1/long": required}))
            assert [FACTS[name].ncu in metrics for metrics, _ in both] == [bool(required), False]


def test_both_groups_are_started_ahead(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(profile, "FEW", 1)
    folder, codes = tmp_path / "profile", dict.fromkeys(("v0", "v1"), CODES["v0"]).get
    names = ("v0/mission", "v1/mission", "v0/long")
    with Pool() as workers:
        profile.start([case(n) for n in names], folder, profiling(codes=codes, workers=workers))
        assert len(list((folder / "round-0").glob("tasks-*"))) == 2
        result = run(names=names, codes=codes, workers=workers)
    assert len(list((folder / "round-0").glob("tasks-*"))) == 2
    assert [o.status for o in result.outcomes] == ["ok"] * 3


def test_references_are_profiled_last(run: Run, tmp_path: Path) -> None:
    result = run(references=("v0", "v2"), batch=16)
    (tasks,) = (tmp_path / "profile").rglob("tasks-*.json")
    order = [t.name for t in Share.decode(tasks.read_bytes()).tasks]
    assert order == [NAMES[i] for i in (1, 3, 4, 0, 2)]
    assert [str(o.case) for o in result.outcomes] == list(NAMES)


def test_called_again_nothing_runs_and_the_facts_are_the_same(run: Run, calls: Callable[[], list[list[str]]]) -> None:
    first = run(keep_report=True)
    before = len(calls())
    assert run(keep_report=True) == first
    assert len(calls()) == before


def test_cases_of_many_kernels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU_STANDIN_RECORDING", "ncu_raw_multi_kernel.csv")
    result = run(batch=16, names=NAMES[:4])
    launches = [fact(result, "kernel_launches", n).value for n in NAMES[:4]]
    assert launches == [2, 1, 1, 14]


# --- faults --------------------------------------------------------------------------------------


def test_a_case_that_crashes_fails_alone(run: Run) -> None:
    result = run("crash=v1/mission")
    failed = outcomes(result).pop("v1/mission")
    assert failed.status == "failed" and "error code (11)" in failed.reason
    assert [o.status for o in result.outcomes].count("ok") == 4
    assert durations(result).count(None) == 1
    stated = [f for f in result.facts if f.subject.variant == "v1"]
    assert {f.name for f in stated} == set(MEASURED)
    assert all(f.value is None and "not profiled: exit code 11" in f.note for f in stated)


@pytest.mark.parametrize("few", [8, 1])
def test_after_a_hang_a_variants_other_cases_are_skipped(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, few: int
) -> None:
    """One time limit a variant, also where its other cases lie in another batch of ncu's."""
    monkeypatch.setattr(profile, "FEW", few)
    result = run("hang=v1/mission", time_limit=5.0, names=("v0/mission", "v1/mission", "v0/long", "v1/long", "v1/tail"))
    by_case = outcomes(result)
    assert by_case["v1/mission"].reason.startswith("no answer within 5 s")
    for name in ("v1/long", "v1/tail"):
        assert (by_case[name].status, by_case[name].seconds) == ("skipped", 0.0)
        assert by_case[name].reason.startswith("skipped: hung on mission: no answer within 5 s")
        assert not (fact(result, "ncu_duration", name)).value
    assert [by_case[f"v0/{shape}"].status for shape in ("mission", "long")] == ["ok", "ok"]
    begun = [
        line for log in tmp_path.rglob("journal-*.jsonl") for line in log.read_text().splitlines() if "begin" in line
    ]
    assert not [line for line in begun if "v1/long" in line or "v1/tail" in line]


def test_a_case_without_rows_is_tried_again_and_then_fails(run: Run, calls: Callable[[], list[list[str]]]) -> None:
    result = run("norows=v1/mission")
    failed = outcomes(result)["v1/mission"]
    assert failed.status == "failed" and "no kernel launch for its range" in failed.reason
    assert len([c for c in calls() if "--import" not in c]) == 2 + rounds.ROUNDS - 1
    assert [o.status for o in run("norows=v1/mission", once=True).outcomes] == ["ok"] * 5


@pytest.mark.parametrize("wrong", ["permission", "permission_late"])
def test_no_permission_says_how_to_get_it_and_is_forgotten_once_given(run: Run, wrong: str) -> None:
    with pytest.raises(CapabilityError) as caught:
        run(wrong)
    assert "ERR_NVGPUCTRPERM" in caught.value.what and caught.value.exit_code == 4
    assert "NVreg_RestrictProfilingToAdminUsers=0" in caught.value.hint and "SYS_ADMIN" in caught.value.hint
    assert [o.status for o in run().outcomes] == ["ok"] * 5


def test_an_ncu_that_does_not_fit_the_driver(run: Run) -> None:
    with pytest.raises(CapabilityError, match="does not support the driver"):
        run("driver")


def test_a_refused_metric_is_dropped_and_named(run: Run, calls: Callable[[], list[list[str]]]) -> None:
    result = run("refuses=lts__t_bytes.sum")
    assert [o.status for o in result.outcomes] == ["ok"] * 5
    actual = fact(result, "l2_bytes", "v0/mission")  # it is not in the recording either
    assert actual.value is None and "Failed to find metric" in actual.note
    profiled = [c for c in calls() if "--import" not in c]
    requested = [c[c.index("--metrics") + 1].split(",") for c in profiled]
    assert ["lts__t_bytes.sum" in a for a in requested] == [True, False, False]
    assert fact(run(), "l2_bytes", "v0/mission").note == actual.note, "remembered when called again"


CODES = {
    "v0": Code(("first", "other"), {"gemm_v0": {o: "first" if o < 0x1000 else "other" for o in range(0, 0x3280, 16)}})
}


def test_warps_are_sampled_where_sources_mark_phases(
    run: Run, calls: Callable[[], list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCU_STANDIN_RECORDING", "ncu_raw_samples.csv")
    result = run(codes=CODES.get, names=NAMES[:2])
    requested = next(c[c.index("--metrics") + 1].split(",") for c in calls() if "--import" not in c)
    assert SAMPLES in requested
    first, other = (fact(result, f"phase_share_{p}", "v0/mission").number or 0 for p in ("first", "other"))
    assert first > 0 and other > 0 and first + other == pytest.approx(100)
    assert not [f for f in result.facts if f.subject.variant == "v1" and f.name.startswith("phase_share_")]


def test_nothing_is_sampled_for_nobody(run: Run, calls: Callable[[], list[list[str]]]) -> None:
    run(names=NAMES[1:2], codes=CODES.get)
    assert not any(SAMPLES in word for call in calls() for word in call)


def test_samples_that_ncu_refuses_cost_nothing_else(run: Run) -> None:
    result = run(f"refuses={SAMPLES}", codes=CODES.get)
    assert [o.status for o in result.outcomes] == ["ok"] * 5
    actual = fact(result, "phase_share_first", "v0/mission")
    assert actual.value is None and "Failed to find metric" in actual.note


def test_the_only_case_may_meet_the_refusal(run: Run) -> None:
    assert [o.status for o in run("refuses=lts__t_bytes.sum", names=NAMES[:1]).outcomes] == ["ok"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("garbage", "expected a header"),
        ("empty", "it is empty"),
        ("layout", "expected the columns Grid Size"),
        ("comma", "decimal comma"),
        ("unreadable", "Failed to load report"),
    ],
)
def test_output_that_cannot_be_read_costs_nothing_that_was_measured(
    run: Run, calls: Callable[[], list[list[str]]], wrong: str, says: str
) -> None:
    result = run(wrong)
    assert all(o.status == "failed" and says in o.reason for o in result.outcomes)
    profiled = len([c for c in calls() if "--import" not in c])
    assert profiled == 2, "to run again would not help: the reports are there"
    assert [o.status for o in run().outcomes] == ["ok"] * 5, "a better ncu reads the same reports"
    assert len([c for c in calls() if "--import" not in c]) == profiled


@pytest.mark.parametrize("wrong", ["truncated", "torn"])
def test_rows_lost_from_the_csv_are_never_taken_for_all(run: Run, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    result = run(wrong, once=True)
    assert [o.status for o in result.outcomes] == ["ok"] * 5
    assert all(f.value is not None for f in result.facts if f.name == "ncu_duration")
    monkeypatch.delenv("NCU_STANDIN_ONCE")
    lost = outcomes(run(wrong, names=("v9/mission",)))["v9/mission"]
    assert lost.status == "failed"


def test_a_case_that_lost_one_of_its_launches_is_run_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU_STANDIN_RECORDING", "ncu_raw_multi_kernel.csv")
    result = run("torn", once=True, names=NAMES[:1])  # the first row of two is torn
    assert fact(result, "kernel_launches", NAMES[0]).value == 2
    assert fact(result, "ncu_duration", NAMES[0]).value == 7648 + 5728


def test_a_report_whose_csv_was_cut_is_kept_and_read_again(run: Run, calls: Callable[[], list[list[str]]]) -> None:
    assert outcomes(run("truncated", names=NAMES[:1]))[NAMES[0]].status == "failed"
    before = len([c for c in calls() if "--import" not in c])
    assert outcomes(run(names=NAMES[:1]))[NAMES[0]].status == "ok"
    assert len([c for c in calls() if "--import" not in c]) == before


def test_a_damaged_saved_csv_is_named(run: Run, tmp_path: Path) -> None:
    run()
    saved = next(tmp_path.rglob("report-001.csv.xz"))
    saved.write_bytes(saved.read_bytes()[:-20])
    reason = outcomes(run())["v0/mission"].reason
    assert "report-001.csv.xz" in reason and "delete it" in reason
    saved.unlink()
    assert [o.status for o in run().outcomes] == ["ok"] * 5


def test_a_full_disk_loses_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        if path.suffix == ".xz":
            with writing(path):
                raise OSError(28, "No space left on device", str(path))
        write_atomically(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(profile, "write_atomically", full)
        with pytest.raises(FlashcoreError, match="No space left on device"):
            run()
    assert [o.status for o in run().outcomes] == ["ok"] * 5
    assert {p.suffix for p in tmp_path.rglob("report-*")} == {".xz"}


def test_a_metric_that_ncu_dropped_without_a_word(run: Run) -> None:
    result = fact(run(f"missing={DURATION}"), "ncu_duration", "v0/mission")
    assert (result.value, result.note) == (None, "ncu did not return it")


@pytest.mark.slow
def test_killed_at_any_moment_it_is_finished_by_running_it_again(tmp_path: Path) -> None:
    """kill -9 of the whole group, ncu and all, three times at other moments; then it is let run."""
    script = tmp_path / "go.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'harness')!r}]\n"
        "from pathlib import Path\nfrom flashcore.stages.profile import profile\n"
        "from tests.support.profiled import NAMES, case, profiling\n"
        f"r = profile.profiled([case(n) for n in NAMES], Path({str(tmp_path / 'p')!r}), profiling(batch=2))\n"
        "print([o.status for o in r.outcomes])\n"
    )
    env = os.environ | {"NCU_STANDIN": ""}
    for seconds in (0.4, 0.7, 1.0):
        process = subprocess.Popen(
            [sys.executable, str(script)], env=env, start_new_session=True, stdout=subprocess.DEVNULL
        )
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["ok"] * 5)


# --- what the machine has ------------------------------------------------------------------------


def test_no_nvtx(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CapabilityError, match=r"pip install 'flashcore-harness\[run\]'"):
        run()
    with pytest.raises(CapabilityError, match=r"pip install 'flashcore-harness\[run\]'"):
        child.prepare()


def test_an_ncu_that_cannot_be_started(run: Run, tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="cannot start"):
        run(ncu=tmp_path / "nowhere" / "ncu")


@pytest.mark.parametrize(
    ("capability", "chip"), [((9, 0), "gh100"), ((8, 9), "ad102"), ((8, 6), "ga102"), ((12, 1), "gb202")]
)
def test_required_chip(capability: tuple[int, int], chip: str) -> None:
    assert profile.required_chip(capability) == chip


def test_required_chip_an_unknown_family() -> None:
    with pytest.raises(CapabilityError, match=r"flashcore/model/facts\.toml"):
        profile.required_chip((6, 1))
