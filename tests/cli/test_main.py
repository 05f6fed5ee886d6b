"""The commands as a user meets them: real processes, their exit codes and what they say."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from flashcore.cli import main
from flashcore.errors import Exit
from flashcore.measure.machine import toolchain
from flashcore.model.files import PARTIAL
from flashcore.model.record import Facts
from flashcore.records import lookup, store
from tests import factory
from tests.conftest import (
    FAULTS,
    NO_DISASSEMBLER,
    NO_TORCH,
    ROOT,
    TOY,
    Built,
    StuckNvcc,
    compile_one,
    flashcore,
)

#: Python that hides every nvcc of this machine from the process.
NO_NVCC = "import flashcore.measure.machine.toolchain as t; t._nvcc_candidates = lambda: iter(())"
#: Python that hides the GPU, so that these tests mean the same everywhere, and the disassembler, which takes long.
NO_GPU = f"from flashcore.measure.machine.gpu import Gpu; Gpu.find = lambda: None{NO_DISASSEMBLER}"
#: Python that leaves the pages out where a test is not about them.
NO_PAGES = f"""{NO_GPU}
import pathlib; from flashcore.pipeline import pages
pages.write = lambda *_, **__: [pathlib.Path('no pages')]"""


class Workplace:
    """A folder to stand in, with the toy suite already built."""

    def __init__(self, folder: Path, toy: Built) -> None:
        self.folder = folder
        self.build = toy.folder
        self.suite = shutil.copytree(TOY, folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, *words: str, start: str = NO_GPU, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on the suite here."""
        of_run = words[0] == "gate" and len(words) > 1 and not words[1].startswith("-")
        takes_suite = words[0] in ("build", "check", "bench", "profile", "gate") and not of_run
        more = ["--suite", "suite", "--build-dir", str(self.build)] if takes_suite else []
        return flashcore(*words, *more, cwd=self.folder, env=env, start=start)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replaces text in a file of the suite."""
        path = self.suite / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def add(self, toml: str) -> None:
        """Adds to the manifest."""
        with (self.suite / "suite.toml").open("a", encoding="utf-8") as stream:
            stream.write(toml)


@pytest.fixture
def here(tmp_path: Path, toy: Built) -> Workplace:
    """A folder to stand in, with the toy suite already built."""
    return Workplace(tmp_path, toy)


def exit_code(*words: str) -> int:
    """The exit code of a command that is refused before it starts any work; run here, which costs no new process."""
    try:
        return main.main(list(words))
    except SystemExit as end:  # how argparse refuses
        return int(str(end.code))


# --- without a compiler -------------------------------------------------------------------------


def test_help_lists_every_command_in_its_group_and_the_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(main.COMMANDS, "slowest", ("a group of no one", "print the slowest case"))
    text = main.parser([]).format_help()
    headings = [f"{name}: {title}" for name, title in main.GROUPS.items()]
    place = [text.index(f"\n{heading}\n") for heading in (*headings, "other commands:")]
    assert place == sorted(place)
    for name in main.all_commands():
        assert text.count(f"\n  {name:<10}") == 1, name
    assert place[2] < text.index("\n  gate ") < place[3]
    assert place[5] < text.index("\n  slowest ")
    assert max(map(len, text.partition("exit codes")[0].splitlines())) <= 100
    done = flashcore("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3    a required fact is unmeasured or stale" in done.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("frobnicate", "invalid choice: 'frobnicate'"),
        ("gaet", "(did you mean gate?)"),
        ("gate --varaint x", "unrecognized arguments: --varaint (did you mean --variant?)"),
        ("gate --requires static", "unrecognized arguments: --requires (did you mean --require?)"),
        ("--verison", "unrecognized arguments: --verison (did you mean --version?)"),
        ("gate --require timng", "(did you mean timing?)"),
        (f"build --suite {TOY} --variant plane*", "(did you mean plain?)"),
        (f"build --suite {TOY} --shape smal", "(did you mean small?)"),
        (f"explain --bounds --suite {TOY} --device h20", "(did you mean h200?)"),
        ("gate --require everything", "invalid choice: 'everything'"),
        ("check --time-limit long", "invalid float value: 'long'"),
        (f"list --suite nowhere --suite {TOY}", f"--suite: expected one value, found nowhere and {TOY}"),
        ("gate --suite a --suite=b", "--suite: expected one value, found a and b"),
        ("gate --varian=b", "unrecognized arguments: --varian=b (did you mean --variant?)"),
        ("gate --require timing --require static", "--require: expected one value, found timing and static"),
        ("list --suite nowhere", "nowhere/suite.toml: expected a suite's manifest, found no such file"),
        (f"build --suite {TOY} --variant x*", "--variant x*: expected a glob matching one of plain"),
        (f"build --suite {TOY} --variant plain --variant x*", "--variant x*: expected a glob matching one of plain"),
        (f"gate --suite {TOY} --arch sm_80 --arch 9", "--arch 9: expected one of the suite's archs (sm_80, sm_90a)"),
        (f"gate --suite {TOY} --shape x", "--shape x: expected one of tail, small"),
        ("report", "profiles: expected a recorded run, found none"),
        ("gate 20260102", "run 20260102: expected one run's id, folder or packed file, found none"),
        (
            f"compare a b --suite {TOY}",
            "a: expected a run's id or folder, a packed run, a git revision, compiled files",
        ),
        ("init .", "expected a new or empty folder"),
        ("init something", "something: expected a new or empty folder, found a file"),
        (f"gate --suite {TOY} --format sarfi", "(did you mean sarif?)"),
        (f"profile --suite {TOY} --samples 0", "--samples 0: expected a number above 0"),
        (f"check --suite {TOY} --time-limit nan", "--time-limit nan: expected a number above 0"),
        (f"tune x --suite {TOY} --finalists -1", "--finalists -1: expected 0 or more"),
        ("capture --launch-count 0 -- true", "expected --top and --launch-count of at least 1"),
        ("capture --time-limit 0 -- true", "--time-limit 0: expected a number above 0"),
    ],
)
def test_wrong_usage_exits_2(
    tmp_path: Path, line: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split()
    (tmp_path / "something").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert exit_code(*words) == Exit.USAGE
    stderr = capsys.readouterr().err
    assert message in stderr
    assert "Traceback" not in stderr


def test_a_bad_manifest_exits_2_with_every_mistake(tmp_path: Path) -> None:
    root = shutil.copytree(TOY, tmp_path / "suite")
    path = root / "suite.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"scale.cu"', '"gone.cu"').replace('parent = "plain"', 'parent = "plane"'), "utf-8")
    done = flashcore("list", "--suite", "suite", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert done.stderr.splitlines()[0] == "flashcore: suite/suite.toml: 4 mistakes"
    assert "  suite.toml:34: variant.wide.parent: expected a variant, found 'plane' (did you" in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DEBUG", "maybe", "DEBUG=maybe: expected 0 or 1"),
        ("CUDA_ARCH", "5.2", "CUDA_ARCH=5.2: expected one of the suite's archs (sm_80, sm_90a)"),
        ("MAX_JOBS", "many", "MAX_JOBS=many: expected the number of compilers to run at once"),
        ("NVCC", "/nowhere/nvcc", "NVCC=/nowhere/nvcc: expected a compiler's path, found no such file"),
    ],
)
def test_wrong_settings_exit_2(
    tmp_path: Path,
    name: str,
    value: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    assert exit_code("build", "--suite", str(TOY)) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_list(tmp_path: Path) -> None:
    done = flashcore("list", "--suite", str(TOY), cwd=tmp_path)
    assert done.returncode == 0
    for text in ("two_steps", "peers.py:torch_mul", "N=1001", "no_spills", "a kernel this small"):
        assert text in done.stdout
    facts = flashcore("list", "--facts", cwd=tmp_path)
    assert facts.returncode == 0 and "spill_store_bytes" in facts.stdout


#: Commands that build or read cases.
CASES = "build check bench profile sanitize gate baseline watch compare list report explain facts"


@pytest.mark.parametrize("command", CASES.split())
def test_every_command_selects_several_variants_shapes_and_archs(command: str) -> None:
    words = [command, *{"baseline": ["save"], "compare": ["a", "b"]}.get(command, [])]
    given = {"variants": ["a*", "b"], "shapes": ["s", "t"], "archs": ["9.0", "sm_80"]}
    words += [f"--{name[:-1]}={one}" for name, each in given.items() for one in each]
    parsed = vars(main.parser(words).parse_args(words))
    assert {name: parsed[name] for name in given} == given


def test_several_variants_and_shapes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--variant", "plain", "--variant", "t*", "--shape", "tail", "--arch", "9.0")
    assert exit_code("list", "--suite", str(TOY), "--format", "json", *chosen) == Exit.OK
    data = json.loads(capsys.readouterr().out)
    assert {v["name"] for v in data["variants"]} == {"plain", "two_steps", "torch_mul"}
    assert [s["name"] for s in data["shapes"]] == ["tail"] and data["suite"]["archs"] == ["sm_90a"]


def test_bare_shows_the_help_and_is_no_success(tmp_path: Path) -> None:
    done = flashcore(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (Exit.USAGE, "")
    assert done.stdout == flashcore("--help", cwd=tmp_path).stdout


def test_every_command_has_a_module_with_the_same_interface() -> None:
    modules = main.all_commands().values()
    for module in map(importlib.import_module, modules):
        assert callable(module.add_arguments) and callable(module.run)
    commands = {
        f"flashcore.cli.{p.stem}"
        for p in (ROOT / "harness/flashcore/cli").glob("*.py")
        if "\ndef add_arguments(" in p.read_text()
    }
    assert commands <= set(modules)


def test_no_nvcc_exits_4_with_the_way_to_mend_it(tmp_path: Path) -> None:
    for command in ("build", "gate", "profile"):
        done = flashcore(command, "--suite", str(TOY), cwd=tmp_path, start=NO_NVCC)
        assert done.returncode == Exit.INCAPABLE
        assert "flashcore: no nvcc found\n  hint: install CUDA 13, or: pip install nvidia-cuda-nvcc" in done.stderr
    done = flashcore("doctor", cwd=tmp_path, start=NO_NVCC)
    assert done.returncode == Exit.INCAPABLE
    assert "missing  nvcc (build): no nvcc found" in done.stdout
    assert not list(tmp_path.glob("profiles/*"))


def test_doctor(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    done = flashcore("doctor", cwd=tmp_path, start=NO_GPU)
    assert done.returncode == 0, done.stdout
    assert f"ok       nvcc: {compiler.version}" in done.stdout
    assert "missing  GPU (check, bench, profile): no CUDA GPU" in done.stdout


def test_what_needs_a_gpu_exits_4_without_one(tmp_path: Path) -> None:
    for command in ("check", "bench"):
        done = flashcore(command, "--suite", str(TOY), cwd=tmp_path, start=NO_GPU)
        assert done.returncode == Exit.INCAPABLE
        assert "no GPU on this machine\n  hint: run it on a machine with a GPU" in done.stderr


def test_a_suite_whose_name_is_not_utf_8_is_wrong_usage(tmp_path: Path) -> None:
    suite = tmp_path / os.fsdecode(b"a\xff")
    shutil.copytree(TOY, suite)
    done = flashcore("gate", "--suite", str(suite), cwd=tmp_path)
    assert done.returncode == Exit.USAGE and "expected a name in UTF-8" in done.stderr, done.stderr


def test_a_defect_of_the_harness_exits_4_and_never_1(tmp_path: Path) -> None:
    broken = "import flashcore.cli.list as c\ndef broken(): raise AssertionError('planted')\nc.facts_table = broken"
    done = flashcore("list", "--facts", cwd=tmp_path, start=broken)
    assert done.returncode == Exit.INCAPABLE
    assert done.stderr.startswith("Traceback") and "AssertionError: planted" in done.stderr
    assert done.stderr.splitlines()[-1] == "flashcore: this is a defect of flashcore; please report it"


def test_a_package_that_only_other_commands_need_is_named(here: Workplace) -> None:
    """A gate's machine has no jinja2: asking it for a report is no defect."""
    done = here.run("gate", "--variant", "plain", start=f"{NO_GPU}\nsys.modules['jinja2'] = None")
    assert done.returncode == 0, done.stderr
    done = here.run("profile", "--variant", "plain", start=f"{NO_GPU}\nsys.modules['jinja2'] = None")
    assert done.returncode == Exit.INCAPABLE
    assert "profile needs the Python package jinja2, which is not installed" in done.stderr
    assert "Traceback" not in done.stderr
    assert "build:" not in done.stderr


# --- build --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("report", "markupsafe", "report"),
        ("profile", "markupsafe", "report"),
        ("explain", "numpy", "report"),
        ("mcp", "anyio", "mcp"),
    ],
)
def test_a_missing_package_is_named_with_the_command_and_the_smallest_extra(
    command: str, package: str, extra: str, tmp_path: Path
) -> None:
    profiles = ["--profiles", str(ROOT / "profiles")] if command in ("explain", "report") else []
    done = flashcore(*command.split(), *profiles, cwd=tmp_path, start=f"sys.modules[{package!r}] = None")
    assert done.returncode == Exit.INCAPABLE
    shown = {"markupsafe": "jinja2", "anyio": "mcp"}.get(package, package)
    assert f"flashcore: {command.split()[-1]} needs the Python package {shown}, which is not installed" in done.stderr
    assert f"hint: pip install 'flashcore-harness[{extra}]'" in done.stderr


def test_build_prints_the_static_facts_and_imports_no_torch(here: Workplace) -> None:
    watch = "import atexit; atexit.register(lambda: print('torch' in sys.modules, 'numpy' in sys.modules))"
    done = here.run("build", start=f"{NO_GPU}\n{watch}")
    assert done.returncode == 0, done.stderr
    assert "0 compiled, 5 unchanged, 0 failed" in done.stderr
    assert "multiply_kernel" in done.stdout
    assert done.stdout.endswith("False False\n")


def build_faults(faulty: Built, cwd: Path, variant: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Builds part of the faults suite where it was built before."""
    where = ("--suite", str(FAULTS), "--build-dir", str(faulty.folder))
    hidden = f"{NO_GPU}{NO_TORCH}"
    return flashcore("build", *where, "--variant", variant, *more, cwd=cwd, start=hidden)


def test_several_variants_are_built_for_one_arch(here: Workplace) -> None:
    done = here.run("build", "--variant", "plain", "--variant", "two_*", "--arch", "sm_90a")
    rows = {tuple(line.split()[:2]) for line in done.stdout.splitlines() if line.split()[1:2] == ["sm_90a"]}
    assert (done.returncode, rows) == (0, {("plain", "sm_90a"), ("two_steps", "sm_90a")}), done.stderr
    gated = here.run("gate", "--variant", "plain", "--variant", "two_*", "--arch", "9.0", "--format", "json")
    assert {v["subject"].get("arch") for v in json.loads(gated.stdout)["verdicts"]} <= {"sm_90a", None}


def test_a_variant_that_does_not_compile_exits_1(faulty: Built, tmp_path: Path) -> None:
    done = build_faults(faulty, tmp_path, "[gd]o*")
    assert done.returncode == Exit.FAILED
    assert "does_not_compile for sm_90a FAILED" in done.stderr
    assert "this fault does not compile" in done.stderr
    assert "0 compiled, 1 unchanged, 1 failed" in done.stderr
    assert "fault_kernel" in done.stdout  # the other one's facts
    quiet = build_faults(faulty, tmp_path, "[gd]o*", "-q")
    assert quiet.returncode == Exit.FAILED
    assert "this fault does not compile" in quiet.stderr and "unchanged" not in quiet.stderr


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_plan_that_crashes_exits_1(faulty: Built, tmp_path: Path, quiet: tuple[str, ...]) -> None:
    done = build_faults(faulty, tmp_path, "plan_null", *quiet)
    assert done.returncode == Exit.FAILED
    assert "plan_null on tail, small for sm_90a FAILED: the launch plan was killed by signal 11" in done.stderr


def test_interrupted_builds_leave_no_broken_state(stuck_nvcc: StuckNvcc, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "flashcore", "build", "--suite", str(TOY), "--build-dir", str(tmp_path / "build"),
         "--variant", "two_steps"],
        cwd=ROOT, env=stuck_nvcc.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    stuck_nvcc.await_start(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, message = process.communicate(timeout=200)
    assert process.returncode == 130
    assert message.splitlines()[-1] == "flashcore: interrupted"  # a build has nothing to resume
    assert "Traceback" not in message
    assert compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps").status == "ok"


# --- gate, profile and report without a GPU -----------------------------------------------------


def test_the_gate_passes_fails_and_counts_what_is_unmeasured(here: Workplace) -> None:
    done = here.run("gate")
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    here.add('\n[[budget]]\nname = "busy"\nfact = "sm_throughput"\nmin = 50\nsource = "a wish"\n')
    done = here.run("gate")
    assert done.returncode == Exit.OK, done.stdout  # above the required tier: counted and shown
    assert "unmeasured" in done.stdout
    assert here.run("gate", "--require", "counters").returncode == Exit.UNMEASURED
    here.edit("suite.toml", "max = 32", "max = 4")
    done = here.run("gate", "--require", "counters")
    assert done.returncode == Exit.FAILED  # a failure outweighs what is unmeasured
    assert "registers" in done.stdout
    quiet = here.run("gate", "--require", "counters", "-q")
    assert (quiet.returncode, quiet.stderr) == (Exit.FAILED, "") and done.stderr
    assert "registers" in quiet.stdout and "passed (" not in quiet.stdout


def test_a_failed_variant_fails_the_gate(here: Workplace) -> None:
    here.edit("two_steps.cu", "float* copy =", "flaot* copy =")
    done = here.run("gate", "--variant", "[pt]*")
    assert done.returncode == Exit.FAILED, done.stdout
    assert 'identifier "flaot" is undefined' in done.stderr


def test_a_debug_build_is_never_gated(here: Workplace) -> None:
    done = here.run("gate", DEBUG="1")
    assert done.returncode == Exit.USAGE
    assert "DEBUG=1: expected a build that may be timed and gated" in done.stderr


def test_profile_without_a_gpu_records_reports_and_gates(here: Workplace) -> None:
    done = here.run("profile")
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    assert "check, bench, profile: left out: no GPU on this machine" in done.stderr
    (run,) = lookup.runs(here.folder / "profiles")
    record = store.read(run)
    assert [(n.stage, n.status) for n in record.stages] == [
        ("build", "ok"), ("check", "skipped"), ("bench", "skipped"), ("profile", "skipped"),
    ]  # fmt: skip
    assert record.facts.named("registers") and not record.facts.named("isolated_p50")
    assert not lookup.unfinished(here.folder / "profiles")
    assert list((here.folder / "reports" / run.name).glob("*.html"))
    assert "plain-sm_80.log" in zipfile.ZipFile(run / store.LOGS).namelist()

    again = here.run("report", run.name, "-o", "elsewhere", start=NO_NVCC)
    assert again.returncode == 0, again.stderr
    for page in (here.folder / "reports" / run.name).glob("*.html"):
        assert (here.folder / "elsewhere" / page.name).read_bytes() == page.read_bytes()
    assert here.run("gate", run.name, start=NO_NVCC).returncode == Exit.OK
    assert here.run("compare", run.name, run.name).returncode == Exit.OK  # two runs need no suite


def test_a_disk_that_is_full_while_recording(here: Workplace) -> None:
    limit = f"{NO_GPU}\nimport resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    done = here.run("profile", start=limit)
    assert done.returncode == Exit.INCAPABLE
    assert "cannot write: File too large" in done.stderr and "continue with --resume" in done.stderr
    assert "Traceback" not in done.stderr
    (folder,) = lookup.unfinished(here.folder / "profiles")
    resumed = here.run("profile", "--resume", start=NO_PAGES)
    assert resumed.returncode == Exit.OK, resumed.stderr
    assert [p.name for p in lookup.runs(here.folder / "profiles")] == [folder.name.removesuffix(PARTIAL)]


def test_resuming_with_other_sources_is_refused(here: Workplace) -> None:
    stop = f"{NO_GPU}\nimport flashcore.records.store as s\ndef no(*_): raise KeyboardInterrupt\ns.write = no"
    assert here.run("profile", "--variant", "two_steps", start=stop).returncode == 130
    here.edit("two_steps.cu", "copy[i] * factor", "copy[i] + factor")
    done = here.run("profile", "--resume")
    assert done.returncode == Exit.USAGE
    assert "the sources changed since the run began" in done.stderr


def test_resuming_for_another_arch_is_refused_and_says_so(here: Workplace) -> None:
    stop = f"{NO_GPU}\nimport flashcore.records.store as s\ndef no(*_): raise KeyboardInterrupt\ns.write = no"
    assert here.run("profile", "--variant", "two_steps", start=stop).returncode == 130
    done = here.run("profile", "--resume", start=f"import os; os.environ['CUDA_ARCH'] = '8.0'\n{NO_GPU}")
    assert done.returncode == Exit.USAGE
    assert "that the run began with (no GPU, sm_80, sm_90a), found others (no GPU, sm_80)" in done.stderr


def test_a_resumed_run_is_judged_by_what_it_was_begun_with(here: Workplace) -> None:
    here.edit("suite.toml", "max = 32", "max = 4")  # a promise that every variant breaks
    stop = f"{NO_GPU}\nimport flashcore.records.store as s\ndef no(*_): raise KeyboardInterrupt\ns.write = no"
    assert here.run("profile", "--variant", "two_steps", start=stop).returncode == 130
    resumed = here.run("profile", "--resume", start=NO_PAGES)
    assert resumed.returncode == Exit.FAILED, resumed.stdout + resumed.stderr
    assert "begun as: flashcore profile --variant two_steps" in resumed.stderr
    (run,) = lookup.runs(here.folder / "profiles")
    whole = here.run("gate", run.name)
    chosen = here.run("gate", run.name, "--variant", "two_steps")
    assert "plain" in whole.stdout and "plain" not in chosen.stdout  # else this test could not tell them apart
    lines = {*chosen.stdout.splitlines()} - {f"note: run {run.name}: intact"}
    assert lines <= {*resumed.stdout.splitlines()} and "note: no baseline" in resumed.stdout


def test_a_run_still_going_is_not_taken_over(here: Workplace) -> None:
    wait = "def wait(*_):\n  open('there', 'w').close()\n  time.sleep(600)"
    hang = f"{NO_GPU}\nimport flashcore.records.store as s, time\n{wait}\ns.write = wait"
    words = ["profile", "--suite", "suite", "--build-dir", str(here.build)]
    code = f"{hang}\nimport sys\nfrom flashcore.cli.main import main\nsys.exit(main({words!r}))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "harness")}
    going = subprocess.Popen([sys.executable, "-c", code], cwd=here.folder, env=env, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while not (here.folder / "there").exists():
            assert going.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        (folder,) = lookup.unfinished(here.folder / "profiles")
        refused = here.run("profile", "--resume", start=NO_PAGES)
        assert refused.returncode == Exit.USAGE, refused.stderr
        assert f"expected a run that no process has locked, found it locked by process {going.pid}" in refused.stderr
        assert lookup.unfinished(here.folder / "profiles") == [folder]
    finally:
        going.kill()  # as `kill -9` does
        going.wait()
    resumed = here.run("profile", "--resume", start=NO_PAGES)
    assert resumed.returncode == Exit.OK, resumed.stderr
    (run,) = lookup.runs(here.folder / "profiles")
    assert run.name == folder.name.removesuffix(PARTIAL)
    assert not list(run.glob("*.lock"))


def test_nothing_to_resume(here: Workplace) -> None:
    done = here.run("profile", "--resume")
    assert done.returncode == Exit.USAGE
    assert "expected an unfinished run of suite to resume, found none" in done.stderr


@pytest.mark.parametrize("name", [store.HEADER, store.FACTS])
def test_a_damaged_old_run_does_not_take_down_a_new_one(here: Workplace, name: str) -> None:
    path = measured(here)
    (path / name).write_bytes((path / name).read_bytes()[:100])
    done = here.run("gate")
    assert done.returncode == Exit.OK, done.stderr
    assert "Traceback" not in done.stderr and f"skipped run {path.name}" in done.stderr
    named = here.run("gate", path.name)
    assert named.returncode == Exit.USAGE and (
        "found altered" in named.stderr or "hint: record the run again" in named.stderr
    )


# --- joining what a GPU measured ----------------------------------------------------------------


def measured(here: Workplace) -> Path:
    """Records a run as if an H200 had profiled every CUDA variant."""
    done = here.run("profile", start=NO_PAGES)
    assert done.returncode in (Exit.OK, Exit.UNMEASURED), done.stderr
    (run,) = lookup.runs(here.folder / "profiles")
    record = store.read(run)
    names = list(record.suite.variants)
    facts = [factory.fact("sm_throughput", 60.0, v, shape="small") for v in names]
    facts += [factory.fact("plan_matches", 1, v, shape="small") for v in names]
    ran = [(v, s, "check") for v in names for s in record.suite.shapes] + [(v, "small", "profile") for v in names]
    environment = dataclasses.replace(record.environment, gpu="NVIDIA H200", gpu_arch="sm_90a")
    record = dataclasses.replace(
        record,
        environment=environment,
        facts=Facts([*record.facts, *facts]),
        outcomes=tuple(factory.outcome(v, s, stage) for v, s, stage in ran),  # type: ignore[arg-type]
    )
    shutil.rmtree(run)
    run.mkdir()
    store.write(record, run)
    return run


BUSY = '\n[[budget]]\nname = "busy"\nfact = "sm_throughput"\nmin = 50\nshapes = ["small"]\nsource = "a wish"\n'


def test_recorded_facts_count_as_long_as_they_are_fresh(here: Workplace) -> None:
    here.add(BUSY)
    measured(here)
    done = here.run("gate", "--require", "counters")
    assert done.returncode == Exit.OK, done.stdout + done.stderr

    here.edit("two_steps.cu", "float* copy = ", "/* what the first kernel writes */ float* copy = ")
    done = here.run("gate", "--require", "counters")
    assert done.returncode == Exit.OK, done.stdout + done.stderr  # a comment is no other code

    here.edit("two_steps.cu", "copy[i] * factor", "copy[i] + factor")
    assert here.run("gate").returncode == Exit.OK
    done = here.run("gate", "--require", "counters")
    assert done.returncode == Exit.UNMEASURED
    assert "stale" in done.stdout


def test_a_changed_problem_makes_everything_stale(here: Workplace) -> None:
    here.add(BUSY)
    measured(here)
    here.edit("problem.py", "1e-5", "1e-4")
    done = here.run("gate", "--require", "counters")
    assert done.returncode == Exit.UNMEASURED
    assert "cases are stale" in done.stderr


@pytest.mark.parametrize(
    ("line", "completions"),
    [("flashcore ga", {"gate "}), ("flashcore runs pack --out", {"--output "}), ("flashcore sanit", {"sanitize "})],
)
def test_a_shell_completes_commands_and_their_options(line: str, completions: set[str], tmp_path: Path) -> None:
    """By the protocol of argcomplete's shell function; the unfinished command is not run."""
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    shell = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    done = flashcore(cwd=tmp_path, env=shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert set(answer.read_text(encoding="utf-8").split("\n")) == completions
