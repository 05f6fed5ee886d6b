"""The commands as a user meets them: real processes, their exit codes and what they say."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashcore.cli import main
from flashcore.errors import Exit
from flashcore.model.files import PARTIAL
from flashcore.model.record import Facts
from flashcore.records import lookup, store
from tests import factory
from tests.conftest import (
    NO_DISASSEMBLER,
    ROOT,
    TOY,
    Built,
    StuckNvcc,
    compile_one,
    flashcore,
)

#: Python that hides every nvcc of this machine from the process.
NO_NVCC = "import flashcore.machine.toolchain as t; t.program = lambda *_: None"
#: Python that hides the GPU, so that these tests mean the same everywhere, and the disassembler, which takes long.
NO_GPU = f"from flashcore.machine.gpu import Gpu; Gpu.find = lambda: None{NO_DISASSEMBLER}"
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


def test_help_shows_twelve_commands_and_more_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = main.parser([]).format_help()
    shown = re.findall(r"(?m)^  ([a-z]+) ", text.partition("\n\noptions:")[0])
    assert shown == main.SHOWN and len(shown) == 13 and shown[-1] == "more"
    assert exit_code("more") == Exit.OK
    others = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert others == sorted(others) and {*others, *shown} == {*main.all_commands()} and not {*others} & {*shown}
    done = flashcore("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3    a required fact is unmeasured or stale" in done.stdout


@pytest.mark.parametrize(
    ("command", "options"),
    [("sanitize", "--samples --first --repeats"), ("check", "--samples --first"), ("build", "--profiles"),
     ("report", "--build-dir --quiet"), ("roofs", "--host"), ("list", "--quiet")],
)  # fmt: skip
def test_a_command_refuses_options_that_it_does_not_use(
    command: str, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in options.split():
        assert exit_code(command, f"{option}=1") == Exit.USAGE
        assert f"unrecognized arguments: {option}=1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DEBUG", "maybe", "DEBUG=maybe: expected 0 or 1"),
        ("CUDA_ARCH", "5.2", "CUDA_ARCH=5.2: expected one of the suite's archs (sm_80, sm_90a)"),
        ("MAX_JOBS", "many", "MAX_JOBS=many: expected the number of compilers to run at once"),
        ("NVCC", "/nowhere/nvcc", "NVCC=/nowhere/nvcc: expected a compiler's path, found no program"),
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
        assert "flashcore: no nvcc found\n" in done.stderr and "pip install 'flashcore-harness[cuda]'" in done.stderr
    done = flashcore("doctor", cwd=tmp_path, start=NO_NVCC)
    assert done.returncode == Exit.INCAPABLE
    assert "missing  nvcc (build): no nvcc found" in done.stdout
    assert not list(tmp_path.glob("profiles/*"))


def test_a_suite_whose_name_is_not_utf_8_is_wrong_usage(tmp_path: Path) -> None:
    suite = tmp_path / os.fsdecode(b"a\xff")
    shutil.copytree(TOY, suite)
    done = flashcore("gate", "--suite", str(suite), cwd=tmp_path)
    assert done.returncode == Exit.USAGE and "expected a name in UTF-8" in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["list", "gate", "report", "compare a b"])
def test_a_current_folder_that_was_removed_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert exit_code(*command.split()) == Exit.USAGE
    assert "expected a current folder, found that it was removed\n  hint: " in capsys.readouterr().err


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
        ("explain 20261201T110251Z-5b8e", "numpy", "report"),
        ("mcp", "anyio", "mcp"),
    ],
)
def test_a_missing_package_is_named_with_the_command_and_the_smallest_extra(
    command: str, package: str, extra: str, tmp_path: Path
) -> None:
    profiles = ["--profiles", str(ROOT / "profiles")] if command.startswith(("explain", "report")) else []
    done = flashcore(*command.split(), *profiles, cwd=tmp_path, start=f"sys.modules[{package!r}] = None")
    assert done.returncode == Exit.INCAPABLE
    shown = {"markupsafe": "jinja2", "anyio": "mcp"}.get(package, package)
    assert f"flashcore: {command.split()[0]} needs the Python package {shown}, which is not installed" in done.stderr
    assert f"hint: pip install 'flashcore-harness[{extra}]'" in done.stderr


def test_a_comparison_needs_the_renderer_only_for_a_report(tmp_path: Path) -> None:
    sides = ["compare", *2 * [str(ROOT / "tests" / "data" / "static_sm_90a.cubin")]]
    for words, code in ((sides, Exit.OK), ([*sides, "-o", "report"], Exit.INCAPABLE)):
        done = flashcore(*words, cwd=tmp_path, start="sys.modules['markupsafe'] = None")
        assert done.returncode == code, done.stderr


def test_build_prints_the_static_facts_and_imports_no_torch(here: Workplace) -> None:
    watch = "import atexit; atexit.register(lambda: print('torch' in sys.modules, 'numpy' in sys.modules))"
    done = here.run("build", start=f"{NO_GPU}\n{watch}")
    assert done.returncode == 0, done.stderr
    assert "0 compiled, 5 unchanged, 0 failed" in done.stderr
    assert "multiply_kernel" in done.stdout
    assert done.stdout.endswith("False False\n")


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


def test_a_debug_build_is_never_gated(here: Workplace) -> None:
    done = here.run("gate", DEBUG="1")
    assert done.returncode == Exit.USAGE
    assert "DEBUG=1: expected a build that may be timed and gated" in done.stderr


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


def test_resuming_with_another_arch_or_other_sources_is_refused(here: Workplace) -> None:
    stop = f"{NO_GPU}\nimport flashcore.records.store as s\ndef no(*_): raise KeyboardInterrupt\ns.write = no"
    assert here.run("profile", "--variant", "two_steps", start=stop).returncode == 130
    done = here.run("profile", "--resume", start=f"import os; os.environ['CUDA_ARCH'] = '8.0'\n{NO_GPU}")
    assert done.returncode == Exit.USAGE
    assert "that the run began with (no GPU, sm_80, sm_90a), found others (no GPU, sm_80)" in done.stderr
    here.edit("two_steps.cu", "copy[i] * factor", "copy[i] + factor")
    done = here.run("profile", "--resume")
    assert done.returncode == Exit.USAGE
    assert "the sources changed since the run began" in done.stderr


def test_a_resumed_run_is_judged_by_what_it_was_begun_with(here: Workplace) -> None:
    here.edit("suite.toml", "max = 32", "max = 4")  # a limit that every variant misses
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
