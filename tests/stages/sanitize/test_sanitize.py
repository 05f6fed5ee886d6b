"""The sanitize stage with a stand-in for compute-sanitizer: its log, its path, and whose errors it counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.build import build
from flashcore.errors import CapabilityError, Exit
from flashcore.gate import judge
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.case import Case
from flashcore.model.causes import NotSanitized
from flashcore.model.record import Built, CaseOutcome, CaseSubject, Facts, Measured, Source, StageResult
from flashcore.model.settings import Sanitize, Settings
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages import gpu_stages
from flashcore.stages.context import Context
from flashcore.stages.gpu_stages import measure
from flashcore.stages.sanitize import sanitize
from flashcore.stages.sanitize.sanitize import SanitizerReport, parse
from tests import factory
from tests.conftest import ROOT, TESTS, flashcore
from tests.support import staged

STANDIN = TESTS / "standins" / "compute-sanitizer"
NAMES: tuple[str, ...] = ("v0/s65", "v1/s65", "v2/s65", "v3/s65")


def case(name: str) -> KernelCall:
    variant, _, shape = name.partition("/")
    return KernelCall(
        variant=variant, shape=shape, suite="toy", root="/nowhere", problem_file="problem.py", params={"S": 65},
        arguments=(), tolerance="exact", seeds=(0,), flop=None,
    )  # fmt: skip


Run = Callable[..., StageResult]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SANITIZER_STANDIN_LOG", str(tmp_path / "calls.jsonl"))
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: STANDIN)

    def call(wrong: str = "", **options: Any) -> StageResult:
        monkeypatch.setenv("SANITIZER_STANDIN", wrong)
        usual = Sanitize()
        tools = options.pop("tools", usual.tools)
        limits = replace(usual.limits, **{"time_limit": 120.0, "startup_limit": 120.0, **options})
        context = staged.context(tmp_path, sanitize=Sanitize(tools=tools, limits=limits), device="cuda")
        return sanitize.run(context, [case(n) for n in NAMES])

    return call


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[tuple[str, list[str]]]]:
    def read() -> list[tuple[str, list[str]]]:
        lines = map(json.loads, (tmp_path / "calls.jsonl").read_text().splitlines())
        return [(line["tool"], line["cases"]) for line in lines]

    return read


def counts(result: StageResult, name: str = "memcheck_errors") -> list[float | None]:
    facts = Facts(result.facts)
    return [facts.number(f"sanitizer_{name}", CaseSubject(Case.parse(n))) for n in NAMES]


def outcomes(result: StageResult) -> dict[str, CaseOutcome]:
    return {str(o.case): o for o in result.outcomes}


Calls = Callable[[], list[tuple[str, list[str]]]]


def test_clean_cases_share_one_process_a_tool(run: Run, calls: Calls) -> None:
    result = run()
    assert calls() == [(tool, list(NAMES)) for tool in ("memcheck", "racecheck", "synccheck")]
    for name in ("memcheck_errors", "racecheck_errors", "racecheck_warnings", "synccheck_errors"):
        assert counts(result, name) == [0, 0, 0, 0]
    assert {o.status for o in result.outcomes} == {"ok"}
    assert {o.stage for o in result.outcomes} == {"sanitize"}
    assert {f.source for f in result.facts} == {Source.SANITIZER}


def test_a_race_is_laid_at_the_door_of_the_one_case(run: Run, calls: Calls) -> None:
    result = run("race=v2/s65")
    assert counts(result, "racecheck_errors") == [0, 0, 2, 0]
    assert counts(result) == [0, 0, 0, 0]
    # The batch was not clean: each of its cases ran once more, alone.
    assert calls()[2:] == [*(("racecheck", [n]) for n in NAMES), ("synccheck", list(NAMES))]
    by_case = outcomes(result)
    assert [by_case[n].status for n in NAMES] == ["ok", "ok", "failed", "ok"]
    assert by_case["v2/s65"].reason.startswith("racecheck: 2 errors: Error: Race reported between Write access")


def test_a_bad_write_ends_its_process_and_counts_once(run: Run, calls: Calls) -> None:
    result = run("memory=v1/s65")
    assert counts(result) == [0, 1, 0, 0]
    reason = outcomes(result)["v1/s65"].reason
    assert "memcheck: 1 error: Invalid __global__ write of size 4 bytes at fast_kernel+0x3f0 in fast.cu:41" in reason
    memchecked = [cases for tool, cases in calls() if tool == "memcheck"]
    # v0 shared the process of v1 and ran again; v2 and v3 had a clean one of their own.
    assert memchecked == [list(NAMES), ["v2/s65", "v3/s65"], ["v0/s65"], ["v1/s65"]]


def test_a_warning_is_counted_apart_and_is_not_clean(run: Run) -> None:
    result = run("warning=v0/s65")
    assert counts(result, "racecheck_errors") == [0, 0, 0, 0]
    assert counts(result, "racecheck_warnings") == [1, 0, 0, 0]
    assert outcomes(result)["v0/s65"].status == "failed"


def test_a_barrier_that_not_all_threads_reach_is_an_error(run: Run) -> None:
    result = run("barrier=v3/s65")
    assert counts(result, "synccheck_errors") == [0, 0, 0, 1]
    assert counts(result) == counts(result, "racecheck_errors") == [0, 0, 0, 0]
    assert outcomes(result)["v3/s65"].reason.startswith("synccheck: 1 error: Barrier error detected.")


@pytest.mark.parametrize("kind", ["crash", "raise", "never", "blind"])
def test_what_was_not_counted_is_unmeasured_and_the_rest_is_measured(run: Run, kind: str) -> None:
    tools = {} if kind == "crash" else {"tools": ("memcheck",)}  # one will do
    result = run(f"{kind}=v3/s65", **tools)
    assert counts(result) == [0, 0, 0, None]
    by_case = outcomes(result)
    assert [by_case[n].status for n in NAMES] == ["ok", "ok", "ok", "failed"]
    assert "unmeasured" in by_case["v3/s65"].reason
    (lost,) = (f for f in result.facts if f.subject.variant == "v3" and f.name == "sanitizer_memcheck_errors")
    assert isinstance(lost.cause, NotSanitized)


def test_a_hang_costs_one_time_limit(run: Run, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "NAMES", ("v0/s65", "v1/s65", "v0/s129", "v1/s129"))
    result = run("hang=v0/s65 hang=v0/s129", time_limit=5.0, finish_limit=1.0)
    by_case = outcomes(result)
    assert [by_case[n].status for n in NAMES] == ["failed", "ok", "skipped", "ok"]
    assert "memcheck: unmeasured: no answer within 5 s" in by_case["v0/s65"].reason
    assert "racecheck: unmeasured: skipped: hung on s65" in by_case["v0/s65"].reason
    assert "memcheck: unmeasured: skipped: hung on s65" in by_case["v0/s129"].reason
    assert counts(result) == [None, 0, None, 0]
    assert sum(cases[0] == "v0/s65" for _, cases in calls()) == 1, "neither again, nor under another tool"


def test_a_count_that_got_lost_is_asked_for_again(run: Run) -> None:
    assert counts(run("mute=v1/s65")) == [0, 0, 0, 0]


def test_called_again_nothing_runs_and_the_facts_are_the_same(run: Run, calls: Calls) -> None:
    first = run("race=v2/s65")
    before = len(calls())
    assert run("race=v2/s65") == first
    assert len(calls()) == before


def test_what_the_tool_is_told(run: Run, tmp_path: Path) -> None:
    run()
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    memcheck, *others = (line["arguments"] for line in lines)
    assert memcheck[memcheck.index("--report-api-errors") + 1] == "no"
    assert all("--report-api-errors" not in o for o in others)
    assert memcheck[-6:-2] == [sys.executable, "-P", "-m", "flashcore.stages.sanitize.child"]
    assert {line["torch"] for line in lines} == {"1"}, "every tensor has an allocation of its own"


def test_without_a_gpu_it_says_so(run: Run) -> None:
    with pytest.raises(CapabilityError, match="no CUDA GPU"):
        run("elsewhere")


def test_the_command_needs_a_gpu_and_a_shape_to_run(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "compute-sanitizer").symlink_to(STANDIN)
    no_gpu = "from flashcore.machine.gpu import Gpu; Gpu.find = lambda: None"
    env = {"CUDA_HOME": str(tmp_path)}
    done = flashcore("sanitize", "--suite", str(ROOT / "kernels/attention"), cwd=tmp_path, start=no_gpu, env=env)
    assert done.returncode == Exit.INCAPABLE and "no GPU" in done.stderr
    done = flashcore("sanitize", "--suite", str(ROOT / "kernels/roofs"), cwd=tmp_path, start=no_gpu, env=env)
    assert done.returncode == Exit.USAGE and "hint:" in done.stderr


# --- in a job -----------------------------------------------------------------------------------


def measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path, seen: list[str], first: int = 2, **settings: object
) -> Measured:
    """A job's GPU stages, on a machine whose tools are all stood in for."""

    def ran(_: Context, cases: list[KernelCall]) -> StageResult:
        seen.extend(c.name for c in cases)
        return StageResult((), tuple(CaseOutcome(c.variant, c.shape, "sanitize", "ok") for c in cases))

    monkeypatch.setitem(gpu_stages.STAGES, "sanitize", ran)
    monkeypatch.setattr(toolchain, "torch_root", lambda: ROOT)
    small = factory.shape("small", {**factory.MISSION, "S": 65}, ("check", "sanitize"))
    suite = factory.suite(shapes=[factory.shape(), small])
    gpu = Gpu(factory.GPU, (9, 0), 132, 1 << 37, 60 << 20, 1980.0, "580.65")
    chosen = Settings("kernels/attention", upto=None, **settings)  # type: ignore[arg-type]
    shapes = tuple(suite.shapes.values())[:first]
    variants = tuple(suite.variants.values())
    context = Context(chosen, suite, gpu, "sm_90a", build.Options(), variants, shapes, folder=folder)
    return measure(replace(context, built=Built("13.0.88", tuple(factory.artifacts(suite)), ())))


def test_it_takes_the_shapes_that_name_it_and_no_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []
    made = measured(monkeypatch, tmp_path, seen, sanitize=Sanitize())
    assert seen == ["slow/small", "fast/small", "split/small"]
    assert [(n.stage, n.status) for n in made.notes] == [("sanitize", "ok")]


def test_a_shape_that_the_user_names_is_taken_whatever_it_is_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []
    measured(monkeypatch, tmp_path, seen, first=1, sanitize=Sanitize(), shapes=("mission",))
    assert seen == ["slow/mission", "fast/mission", "split/mission"]


def test_it_is_left_out_unless_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []
    made = measured(monkeypatch, tmp_path, seen)
    assert seen == [] and made.notes == ()


def test_a_race_breaks_the_promise_of_none() -> None:
    small = factory.shape("small", {**factory.MISSION, "S": 65}, ("check", "sanitize"))
    budget = factory.budget("sanitizer_racecheck_errors", maximum=0)
    suite = factory.suite(shapes=[factory.shape(), small], budgets=[budget])
    facts = [factory.fact("sanitizer_racecheck_errors", n, v, shape="small", source=Source.SANITIZER)
             for v, n in (("slow", 0), ("fast", 2))]  # fmt: skip
    judged = judge.judge(factory.record(suite, facts)).verdicts
    found = {str(v.subject): v.status for v in judged if v.budget == budget.name}
    assert found == {"slow/small": "pass", "fast/small": "fail", "split/small": "unmeasured"}


def test_without_the_tool_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(sanitize, "_PLACES", (str(tmp_path),))
    with pytest.raises(CapabilityError, match="install"):
        sanitize.find_sanitizer()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "compute-sanitizer").symlink_to(STANDIN)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert sanitize.find_sanitizer() == tmp_path / "bin" / "compute-sanitizer"


def test_counts_are_read_as_the_tool_writes_them() -> None:
    head = "========= COMPUTE-SANITIZER\n"
    assert parse(head + "========= ERROR SUMMARY: 0 errors\n", "memcheck") == SanitizerReport(0)
    many = (
        head
        + "========= Invalid __shared__ read of size 2 bytes\n=========     at k+0x10\n"
        + "========= ERROR SUMMARY: 1,234 errors\n"
        + "========= ERROR SUMMARY: 1134 errors were not printed. Use --print-limit option to adjust\n"
    )
    assert parse(many, "memcheck") == SanitizerReport(1234, 0, "Invalid __shared__ read of size 2 bytes at k+0x10")
    one = head + "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    assert parse(one, "racecheck") == SanitizerReport(0, 1)
    assert isinstance(parse(one, "memcheck"), str), "a count of the other tool is none"
    silent = parse(
        head + "========= Error: Target application terminated before first instrumented API call\n", "memcheck"
    )
    assert isinstance(silent, str) and "before first instrumented" in silent
    assert isinstance(parse("", "racecheck"), str)
