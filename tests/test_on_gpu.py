"""On a machine with a GPU: the whole line on the toy suite, planted faults, and the operators themselves.

Everything runs in processes of its own, since a planted fault takes its CUDA context with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flashcore.errors import Exit, FlashcoreError
from flashcore.machine import ncu, python_process, toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.case import Case
from flashcore.model.record import CaseOutcome, CaseSubject, Facts, Record
from flashcore.records import lookup, store
from flashcore.runner.kernel_call import KernelCall, Operator
from flashcore.suites import load
from tests.conftest import (
    FAULTS,
    IMPORTED,
    LEASED,
    ROOT,
    TOY,
    UPDATE,
    Built,
    build_once,
    flashcore,
    gpu_lease,
    leased_scripts,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_cuda_headers")]

FEW = ("--repeats", "3", "--no-roofs", "--samples", "10")


def have_ncu() -> bool:
    """True if this machine has Nsight Compute."""
    try:
        ncu.find_ncu()
    except FlashcoreError:
        return False
    return True


@pytest.fixture(scope="module")
def build_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], str]]:
    """The build folder of a suite, once it is complete. All suites are compiled at once, while the first tests run."""
    root = tmp_path_factory.mktemp("builds")
    command = [sys.executable, "-m", "flashcore", "build", "--suite"]
    started = {
        suite: subprocess.Popen(
            [*command, str(suite), "--build-dir", str(root / suite.name)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for suite in (TOY, FAULTS, UPDATE)
    }

    def complete(suite: Path) -> str:
        started[suite].wait(120)
        return str(root / suite.name)

    yield complete
    for process in started.values():
        process.kill()
        process.wait()


def newest(folder: Path) -> Record:
    """The newest run recorded below a folder."""
    return store.read(lookup.find(folder / "profiles", None))


def outcomes(record: Record) -> dict[tuple[str, str], CaseOutcome]:
    """(case, stage) → its outcome."""
    return {(str(o.case), o.stage): o for o in record.outcomes}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, build_dirs: Callable[[Path], str]) -> tuple[Record, Path]:
    """The toy suite's run, all of it, and its folder. It was killed in each stage, and resumed."""
    folder = tmp_path_factory.mktemp("whole")
    words, resume = ["profile", "--suite", str(TOY), "--build-dir", build_dirs(TOY), *FEW], list[str]()
    for stage in ("check", "bench", *(("profile",) if have_ncu() else ())):
        with subprocess.Popen(
            [sys.executable, "-m", "flashcore", *words, *resume],
            cwd=folder, env=python_process.environment(), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as run:  # fmt: skip
            deadline = time.monotonic() + 120
            while not any(  # children wait for their tasks from the start
                '"begin"' in p.read_text() for p in folder.glob(f"profiles/*.partial/{stage}/**/journal-*")
            ):
                assert time.monotonic() < deadline and run.poll() is None
                time.sleep(0.01)
            os.killpg(run.pid, signal.SIGKILL)
        resume = ["--resume"]
    last = flashcore(*words, *resume, cwd=folder)
    assert last.returncode in ((Exit.OK,) if have_ncu() else (Exit.OK, Exit.UNMEASURED)), last.stdout + last.stderr
    return newest(folder), folder


def test_a_run_killed_in_each_stage_is_resumed(whole: tuple[Record, Path]) -> None:
    record, folder = whole
    assert {o.status for o in record.outcomes} == {"ok"}, [o for o in record.outcomes if o.status != "ok"]
    assert len(lookup.runs(folder / "profiles")) == 1 and not lookup.unfinished(folder / "profiles")


def test_every_case_is_right_and_timed(whole: tuple[Record, Path]) -> None:
    record, _ = whole
    by_case = outcomes(record)
    for variant in ("plain", "wide", "two_steps", "torch_mul"):
        assert by_case[f"{variant}/tail", "check"].status == "ok"
        assert by_case[f"{variant}/small", "check"].status == "ok"
        subject = CaseSubject(Case(variant, "small"))
        for mode in ("isolated_p50", "back_to_back_p50", "cold_p50", "eager_p50"):
            microseconds = record.facts.number(mode, subject)
            assert microseconds is not None and 0.1 < microseconds < 1e4, (variant, mode)
        error = record.facts.number("max_error", subject)
        assert error is not None and error < 1e-6
    assert record.environment.gpu and record.gpu_arch


@pytest.mark.skipif(not have_ncu(), reason="gpu: no ncu on this machine")
def test_every_case_is_profiled(whole: tuple[Record, Path]) -> None:
    record, _ = whole
    for variant, launches in (("plain", 1), ("wide", 1), ("two_steps", 2), ("torch_mul", 1)):
        assert outcomes(record)[f"{variant}/small", "profile"].status == "ok"
        subject = CaseSubject(Case(variant, "small"))
        assert record.facts.number("kernel_launches", subject) == launches
        duration = record.facts.number("ncu_duration", subject)
        assert duration is not None and duration > 100  # nanoseconds
    for variant in ("plain", "wide", "two_steps"):
        fact = record.facts.get("plan_matches", CaseSubject(Case(variant, "small")))
        assert fact is not None and fact.value == 1, fact
    two = [f for f in record.facts.named("ncu_duration") if f.subject.variant == "two_steps" and f.subject.kernel]
    assert {f.subject.kernel for f in two} >= {"copy_kernel", "multiply_kernel"}


def test_what_was_measured_joins_a_run_without_a_gpu(
    whole: tuple[Record, Path], build_dirs: Callable[[Path], str]
) -> None:
    _, folder = whole
    no_gpu = "from flashcore.machine.gpu import Gpu; Gpu.find = lambda: None"
    done = flashcore("gate", "--suite", str(TOY), "--build-dir", build_dirs(TOY), cwd=folder, start=no_gpu)
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    assert re.search(r"join: \d+ facts of 8 cases from run", done.stderr)


# --- planted faults -----------------------------------------------------------------------------

#: Fault → what its reason must say.
REASONS = {
    "illegal_address": r"illegal",
    "too_much_smem": r"invalid|shared|resources",
    "endless_loop": r"no answer within|hang",
    "gives_nan": r"not finite|never written",
    "gives_wrong": r"error",
    "writes_beyond": r"out-of-bounds write",
    "plan_null": r"signal 11",
    "plan_hangs": r"did not return within",
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, build_dirs: Callable[[Path], str]) -> Record:
    """The run of the suite in which nearly everything fails."""
    folder = tmp_path_factory.mktemp("broken")
    words = ("profile", "--suite", str(FAULTS), "--build-dir", build_dirs(FAULTS), *FEW, "--time-limit", "6")
    done = flashcore(*words, cwd=folder)
    assert done.returncode == Exit.FAILED, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return newest(folder)


def test_faults_cost_only_their_own_cases(broken: Record) -> None:
    by_case = outcomes(broken)
    for variant in ("good", "plan_prints"):
        assert by_case[f"{variant}/tail", "check"].status == "ok", by_case[f"{variant}/tail", "check"].reason
        assert by_case[f"{variant}/small", "bench"].status == "ok"
        if have_ncu():
            assert by_case[f"{variant}/small", "profile"].status == "ok"


@pytest.mark.parametrize(("variant", "reason"), REASONS.items())
def test_a_fault_is_named_and_never_timed(broken: Record, variant: str, reason: str) -> None:
    by_case = outcomes(broken)
    failed = [o for (case, stage), o in by_case.items() if case.startswith(f"{variant}/") and o.status == "failed"]
    assert failed and any(re.search(reason, o.reason) for o in failed), [o.reason for o in failed]
    assert {o.stage for o in failed} == {"check"} or variant.startswith("plan_")
    timed = Facts(broken.facts.of(variant)).named("isolated_p50")
    assert not [f for f in timed if f.value is not None]


def test_a_shape_that_a_plan_refuses_is_unsupported(broken: Record) -> None:
    by_case = outcomes(broken)
    assert by_case["plan_refuses/small", "check"].status == "unsupported"
    assert by_case["plan_refuses/tail", "check"].status == "ok"


# --- tensors that are input and output, strided, or absent ------------------------------------------

#: Fault → what its reason must say, and on which shape.
UPDATES = {
    "ignores_beta": (r"max error", "bare"),
    "ignores_strides": (r"not finite", "bare"),
    "first_call_only": (r"max error", "bare"),
    "writes_input": (r"a: an input was written to", "bare"),
    "ignores_bias": (r"max error", "biased"),
}


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory, build_dirs: Callable[[Path], str]) -> Record:
    """The run of the suite whose kernels write what they read."""
    folder = tmp_path_factory.mktemp("updated")
    done = flashcore("profile", "--suite", str(UPDATE), "--build-dir", build_dirs(UPDATE), *FEW, cwd=folder)
    assert done.returncode == Exit.FAILED, done.stdout + done.stderr
    return newest(folder)


def test_kernels_that_write_what_they_read_are_checked_timed_and_profiled(updated: Record) -> None:
    by_case = outcomes(updated)
    for variant in ("plain", "in_place", "apart"):
        for shape in ("bare", "biased"):
            profiled = have_ncu() and (variant == "plain" or shape == "bare")  # references on their first shape
            for stage in ("check", "bench", *(("profile",) if profiled else ())):
                outcome = by_case[f"{variant}/{shape}", stage]
                assert outcome.status == "ok", outcome
            for mode in ("isolated", "back_to_back", "cold", "eager"):
                fact = updated.facts.get(f"{mode}_p50", CaseSubject(Case(variant, shape)))
                assert fact is not None and "the last answer is right" in fact.note, fact
    assert by_case["ignores_bias/bare", "check"].status == "ok"  # there is none


@pytest.mark.parametrize(("variant", "message"), UPDATES.items())
def test_a_fault_of_a_kernel_that_writes_what_it_reads_is_named(
    updated: Record, variant: str, message: tuple[str, str]
) -> None:
    outcome = outcomes(updated)[f"{variant}/{message[1]}", "check"]
    assert outcome.status == "failed" and re.search(message[0], outcome.reason), outcome


#: A call → what it does.
STRIDED = {
    "op(a[:, :8], b, c, None, 1.0, 2.0)": "taken",
    "op(a[:, :8], b, c, c[0], 1.0, 2.0)": "taken",
    "op(a[:, :16:2], b, c, None, 1.0, 2.0)": "plain: the last dimension of a must be contiguous, found a stride of 2",
    "op(odd[:, :8], b, c, None, 1.0, 2.0)": "plain: a must have strides of multiples of 16 bytes, found one of 17",
    "op(b, b.t(), c, None, 1.0, 2.0)": "plain: b must be contiguous",
    "op(a[:, :8], b, c, c[0, :4], 1.0, 2.0)": "plain: dimension N of bias must be 8, found 4",
}
#: Prints what each call of the list ``calls`` does, as JSON.
EACH_CALL = """
results = []
for call in calls:
    try:
        exec(prepare + call)
        results.append(taken())
    except RuntimeError as error:
        results.append(str(error))
print(json.dumps(results))
"""


#: Takes the operator's library as its argument.
STRIDED_CALLS = f"""
import json, sys, torch
from flashcore.runner.kernel_call import operator
{IMPORTED}
op = operator("update", "plain", sys.argv[1])
prepare = "a, odd, b, c = (torch.ones(8, n, device='cuda') for n in (16, 17, 8, 8))\\n"
taken = lambda: "taken" if bool((c[1:] >= 10).all()) else str(c)
calls = {[*STRIDED]!r}
{EACH_CALL}"""


def test_another_process_on_the_gpu_voids_its_times(tmp_path: Path, build_dirs: Callable[[Path], str]) -> None:
    busy = f"import torch, time\n{IMPORTED}\ntorch.ones(1, device='cuda'); print('there', flush=True); time.sleep(300)"
    words = ("bench", "--suite", str(TOY), "--build-dir", build_dirs(TOY), "--variant", "plain", "--samples", "10")
    with leased_scripts({"busy": [busy]}) as running:
        out = running["busy"].stdout
        assert out is not None and out.readline() == "there\n"
        done = flashcore(*words, cwd=tmp_path, start=LEASED)
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    facts = newest(tmp_path).facts
    subject = CaseSubject(Case("plain", "small"))
    if facts.number("bench_other_processes", subject) is None:
        pytest.skip("gpu: NVML tells no processes here")
    fact = facts.get("isolated_p50", subject)
    assert fact is not None and fact.value is None and "other processes used the GPU" in fact.note


# --- operators ----------------------------------------------------------------------------------

PREPARE = f"""
import json, sys, torch, torch._dynamo
from flashcore.runner.kernel_call import Caller, KernelCall
from flashcore.runner.problem_file import load_problem
{IMPORTED}
case = KernelCall.from_json(json.loads(sys.argv[1]))
caller = Caller(case, load_problem(case.root, case.problem_file))
op = torch.ops.flashcore_toy.two_steps
x = torch.randn(1001, device="cuda")
"""


OPCHECK = "out = torch.empty_like(x)\nprint(torch.library.opcheck(op.default, (x, out, 2.0)))"
STREAM_AND_GRAPH = """
out = torch.zeros_like(x)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    op(x, out, 2.0)
side.synchronize()
print(torch.equal(out, 2 * x))
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    op(x, out, 3.0)
x.fill_(1.0)
out.zero_()
graph.replay()
torch.cuda.synchronize()
print(bool((out == 3).all()))
"""
COMPILE = """
@torch.compile(fullgraph=True, backend="aot_eager")
def f(x):
    out = torch.empty_like(x)
    op(x, out, 2.0)
    return out + 1
print(torch.allclose(f(x), 2 * x + 1))
"""
#: A call → why it is refused.
WRONG = {
    "op(x.half(), torch.empty_like(x), 2.0)": "two_steps: x must be float32",
    "op(x, torch.empty_like(x).half(), 2.0)": "two_steps: out must be float32",
    "op(x.view(7, 143), torch.empty_like(x), 2.0)": "two_steps: x must have 1 dimensions, found 2",
    "op(x, x.new_empty(1000), 2.0)": "two_steps: dimension N of out must be 1001, found 1000",
    "op(x.new_empty(2002)[::2], torch.empty_like(x), 2.0)": "two_steps: x must be contiguous",
    "op(x.new_empty(1002)[1:], torch.empty_like(x), 2.0)": "two_steps: x must be 16-byte aligned",
    "op(x.new_empty(0), x.new_empty(0), 2.0)": "two_steps: dimension N of x is empty",
    "op(x, torch.empty(1001), 2.0)": "two_steps: out must be a CUDA tensor",
}
WRONG_CALLS = f"prepare, taken, calls = '', lambda: 'taken', {[*WRONG]!r}\n{EACH_CALL}"


@pytest.fixture(scope="module")
def printed(toy: Built, update: Built) -> dict[str, str]:
    """What each script of operators prints. They run at the same time, each in its own process."""
    problem = toy.suite.problems["scale"]
    library = next(a.library for a in toy.artifacts if a.variant == "two_steps" and a.library)
    case = KernelCall(
        variant="two_steps", shape="tail", suite="toy", root=str(TOY), problem_file=problem.file,
        params={"N": 1001}, arguments=problem.arguments, target=Operator(library),
        tolerance="rounded_once", seeds=(0,), flop=None,
    )  # fmt: skip
    scripts = (OPCHECK, STREAM_AND_GRAPH, COMPILE, WRONG_CALLS)
    words = {code: (PREPARE + code, json.dumps(case.to_json())) for code in scripts}
    words[STRIDED_CALLS] = (STRIDED_CALLS, update.of("plain").library or "")
    with leased_scripts(words) as running:
        outputs = {code: process.communicate(timeout=300) for code, process in running.items()}
    assert not any(process.returncode for process in running.values()), outputs
    return {code: out for code, (out, _) in outputs.items()}


def test_opcheck(printed: dict[str, str]) -> None:
    assert printed[OPCHECK].count("SUCCESS") == 4, printed[OPCHECK]


def test_on_another_stream_and_in_a_graph(printed: dict[str, str]) -> None:
    assert printed[STREAM_AND_GRAPH] == "True\nTrue\n"


def test_torch_compile_takes_it(printed: dict[str, str]) -> None:
    assert printed[COMPILE] == "True\n"


@pytest.mark.parametrize(("code", "calls"), [(WRONG_CALLS, WRONG), (STRIDED_CALLS, STRIDED)], ids=["wrong", "strided"])
def test_a_tensor_is_taken_or_refused_with_a_reason(printed: dict[str, str], code: str, calls: dict[str, str]) -> None:
    for (call, expected), result in zip(calls.items(), json.loads(printed[code]), strict=True):
        assert expected in result, call


ON_THE_SECOND = """
import math, sys, torch
from torch.nn.functional import scaled_dot_product_attention
from flashcore.runner.kernel_call import operator
op = operator("attention_general", "attention", sys.argv[1])

def made(device, seq, depth):
    return [torch.randn(1, 8, seq, depth, device=device, dtype=torch.float16) for _ in range(3)]

def error(out, q, k, v):
    right = scaled_dot_product_attention(q.double(), k.double(), v.double())
    return float((out.double() - right).norm() / right.norm())

for seq, depth in ((512, 64), (1100, 128)):  # a cluster; blocks that take tiles from a counter, which is workspace
    scale, errors, devices = 1 / math.sqrt(depth), [], []
    for device in ("cuda:0", "cuda:1"):  # shared memory is asked for once per device
        q, k, v = made(device, seq, depth)
        out = torch.full_like(q, math.nan)
        op(q, k, v, out, scale, 0)
        devices.append(torch.cuda.current_device())
        errors.append(error(out, q, k, v))

    q, k, v = (torch.zeros_like(x) for x in (q, k, v))
    new = made("cuda:1", seq, depth)
    out.fill_(math.nan)
    torch.cuda.synchronize(1)
    side = torch.cuda.Stream(device="cuda:1")
    with torch.cuda.stream(side):  # cuda:1 is current too
        torch.cuda._sleep(100_000_000)  # clocks: whoever does not wait for this stream reads zeros
        for x, y in zip((q, k, v), new):
            x.copy_(y)
        with torch.cuda.device(0):
            op(q, k, v, out, scale, 0)
            devices.append(torch.cuda.current_device())
    side.synchronize()
    errors.append(error(out, *new))

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side), torch.cuda.device(0):
        op(q, k, v, out, scale, 0)
        devices.append(torch.cuda.current_device())
    new = made("cuda:1", seq, depth)
    for x, y in zip((q, k, v), new):
        x.copy_(y)
    out.fill_(math.nan)
    torch.cuda.synchronize(1)
    graph.replay()
    torch.cuda.synchronize(1)
    errors.append(error(out, *new))
    print(devices, max(errors) < 1e-3 or errors)
"""


@pytest.mark.skipif(
    not (gpu := Gpu.numbered(1)) or gpu.capability != (9, 0), reason="gpu: needs two GPUs, the second of sm_90"
)
def test_on_the_second_gpu_while_the_first_is_current(
    compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Right on its current stream, on another and in a graph; the current device stays what it is."""
    suite = load.load(ROOT / "kernels" / "attention_general")
    library = build_once(tmp_path_factory, suite, [suite.variants["attention"]]).of("attention").library or ""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ON_THE_SECOND, library], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "[0, 0, 0, 0] True\n" * 2, done.stdout + done.stderr


def test_the_modes_read_what_they_say() -> None:
    """Spins give slope 1, a programmatic twin is not faster than its plain form, A/A is 1."""
    if not (gpu := Gpu.find()) or gpu.capability < (9, 0):
        pytest.skip("gpu: programmatic launches need sm_90")
    command = [sys.executable, "-m", "benchmarks.modes", "--samples", "50"]
    with gpu_lease():
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == Exit.OK, done.stdout + done.stderr
