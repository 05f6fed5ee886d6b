"""The build with a real compiler: what it makes, what it leaves alone, and how it fails.

Most tests build single variants without the torch operator and SASS, for one arch.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.build import build, launch_plan, static_facts
from flashcore.cli import build as cli_build
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.gate import judge
from flashcore.machine import toolchain
from flashcore.model.causes import CompileFailed, CompilerStopped
from flashcore.model.record import Artifact, Fact
from flashcore.suites import load
from tests import factory
from tests.conftest import NO_DISASSEMBLER, ROOT, TOY, Built, StuckNvcc, compile_one, no_disassembler

PLAIN_AND_TWO_STEPS = "[pt]*[ns]"
Copy = Callable[[], Path]


def read(artifact: Artifact) -> list[Fact]:
    """The facts of what was built, those of its SASS left out."""
    with no_disassembler():
        return static_facts.facts(artifact)


def code_of(built: Built, variant: str) -> str:
    """The hash of a variant's code."""
    return built.of(variant).code


def edit(path: Path, old: str, new: str) -> None:
    """Replaces text in a file; the text must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


# --- what it makes ------------------------------------------------------------------------------


def test_every_variant_is_built_for_every_arch(toy: Built) -> None:
    results = {(a.variant, a.arch): a for a in toy.artifacts}
    assert list(results) == [
        ("plain", "sm_80"), ("plain", "sm_90a"), ("wide", "sm_80"), ("wide", "sm_90a"),
        ("two_steps", "sm_80"), ("two_steps", "sm_90a"),
    ]  # fmt: skip
    assert results["two_steps", "sm_80"].status == "unsupported"
    assert "declared for sm_90a" in results["two_steps", "sm_80"].message
    for (_, arch), artifact in results.items():
        if artifact.status == "unsupported":
            continue
        assert artifact.status == "ok", artifact.message
        assert artifact.cubin and artifact.log
        assert (artifact.library is not None) == (arch == "sm_90a")  # the last arch stands for the host's
        assert "-lineinfo" in artifact.flags and "-G" not in artifact.flags
    assert "-DELEMENTS=4" in results["wide", "sm_90a"].flags


def test_nothing_is_left_behind(toy: Built, tmp_path: Path) -> None:
    names = {p.name for p in toy.folder.rglob("*") if p.is_file() or p.name.startswith("keep.")}
    assert not [n for n in names if n.startswith("keep.") or n.endswith((".ninja", ".tmp")) or n[-1:].isdigit()]
    assert not Path(".ninja_log").exists() or os.path.getmtime(".ninja_log") < os.path.getmtime(toy.folder)


def test_a_second_build_starts_no_process(toy: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.find_nvcc()
    shapes = list(toy.suite.shapes.values())
    launch_plan.plans(toy.suite, toy.artifacts, shapes)
    for artifact in toy.artifacts:
        static_facts.facts(artifact)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    again = build.build(toy.suite, toy.folder, build.Options(), variants=toy.suite.variants.values())
    assert all(a.cached and a.seconds is None for a in again if a.status == "ok")
    assert [a.cubin for a in again] == [a.cubin for a in toy.artifacts]
    assert len({(p.variant, p.shape) for p in launch_plan.plans(toy.suite, again, shapes)}) == 6
    assert all(a.code for a in again if a.status == "ok")


# --- what changes what --------------------------------------------------------------------------


@pytest.fixture
def first(compiled: Path, tmp_path: Path) -> Built:
    """The toy suite as it is, found built in a copy of the folder it was compiled into."""
    built = compile_one(TOY, Path(shutil.copytree(compiled, tmp_path / "build")), PLAIN_AND_TWO_STEPS)
    assert all(a.cached for a in built.artifacts)
    return built


def test_a_changed_header_rebuilds_only_what_includes_it(first: Built, copy: Copy, tmp_path: Path) -> None:
    root = copy()
    edit(root / "include" / "scale.cuh", "return x * factor;", "return factor * x + 0.0f * factor;")
    second = compile_one(root, tmp_path / "build", PLAIN_AND_TWO_STEPS)
    assert {a.variant: a.cached for a in second.artifacts} == {"plain": False, "two_steps": True}
    assert first.of("plain").source_hash != second.of("plain").source_hash
    assert first.of("two_steps").source_hash == second.of("two_steps").source_hash


def test_a_comment_is_compiled_again_and_changes_no_hash(first: Built, copy: Copy, tmp_path: Path) -> None:
    """Nor does another build folder."""
    root, old = copy(), first.of("two_steps")
    edit(root / "two_steps.cu", "extern", "// One more line,\n/* and\n another */ extern")
    new = compile_one(root, tmp_path / "elsewhere" / "build", "two_steps").of("two_steps")
    assert not compile_one(root, tmp_path / "build", "two_steps").of("two_steps").cached
    assert (old.source_hash, old.host, old.cxx) == (new.source_hash, new.host, new.cxx)
    assert old.code == new.code != ""
    assert old.host and "GCC" in old.cxx


def test_what_the_host_does_is_part_of_the_key(first: Built, copy: Copy, tmp_path: Path) -> None:
    """A doubled factor changes no kernel."""
    root, old = copy(), first.of("two_steps")
    edit(root / "two_steps.cu", "static_cast<float>(a.factor)", "static_cast<float>(2 * a.factor)")
    new = compile_one(root, tmp_path / "build", "two_steps").of("two_steps")
    assert old.code == new.code
    assert old.host != new.host and old.source_hash != new.source_hash


def test_a_header_that_only_a_macro_names_is_read_again(compiler: toolchain.Nvcc, copy: Copy, tmp_path: Path) -> None:
    root = copy()
    edit(root / "scale.cu", '#include "scale.cuh"', "#define NAME <scale.cuh>\n#include /* why */ NAME")
    assert not compile_one(root, tmp_path / "build", "plain").of("plain").cached
    assert compile_one(root, tmp_path / "build", "plain").of("plain").cached
    edit(root / "include" / "scale.cuh", "return x * factor;", "return factor * x + 0.0f * factor;")
    assert not compile_one(root, tmp_path / "build", "plain").of("plain").cached


@pytest.mark.parametrize("damaged", ["variant.cubin", "plan.so"])
def test_a_damaged_file_is_made_again(first: Built, damaged: str) -> None:
    path = Path(first.of("two_steps").cubin or "").with_name(damaged)
    size = path.stat().st_size
    os.truncate(path, 0 if damaged == "variant.cubin" else size // 2)
    artifact = compile_one(TOY, first.folder, "two_steps").of("two_steps")
    assert artifact.status == "ok" and not artifact.cached and path.stat().st_size == size
    assert compile_one(TOY, first.folder, "two_steps").of("two_steps").cached


def test_what_a_shell_would_read_never_gets_there(compiler: toolchain.Nvcc, copy: Copy, tmp_path: Path) -> None:
    root = copy()
    planted = 'ELEMENTS = "4\\nbuild x: y\\n  command = touch planted"'
    edit(root / "suite.toml", "ELEMENTS = 4", planted)
    with pytest.raises(FlashcoreError, match="config on one line"):
        compile_one(root, tmp_path / "build", "wide")
    edit(root / "suite.toml", planted, 'ELEMENTS = "$(touch planted)"')
    with pytest.raises(FlashcoreError, match=r"found '\$' in it"):
        compile_one(root, tmp_path / "build", "wide")
    for name in ("a $x", "a\nb"):
        with pytest.raises(UsageError, match="expected a path"):
            compile_one(root.rename(tmp_path / name), tmp_path / "build", "wide")
        root = tmp_path / name
    assert not list(tmp_path.rglob("planted"))


def test_a_suite_and_a_build_folder_of_odd_names(compiler: toolchain.Nvcc, copy: Copy, tmp_path: Path) -> None:
    root = copy().rename(tmp_path / "it's a #1; (odd) & ü: suite")
    assert compile_one(root, tmp_path / "a: (b) & build", "two_steps").of("two_steps").status == "ok"
    assert compile_one(root, tmp_path / "a: (b) & build", "two_steps").of("two_steps").cached


def test_a_folder_that_begins_with_a_dash(
    compiler: toolchain.Nvcc, copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-a", "-"):
        root = copy().rename(tmp_path / name).relative_to(tmp_path)
        assert compile_one(root, tmp_path / f"build{name}", "two_steps").of("two_steps").status == "ok"


def test_a_path_that_ninja_cannot_take_is_wrong_usage(compiler: toolchain.Nvcc, copy: Copy, tmp_path: Path) -> None:
    root = copy()
    with pytest.raises(UsageError, match=r"expected a path without \|"):
        compile_one(root, tmp_path / "a|build", "two_steps")
    suite = root.rename(tmp_path / "a|b")
    assert compile_one(suite, tmp_path / "build", "two_steps").of("two_steps").status == "ok", "no path of a target"


def test_a_renamed_kernel_is_the_same_code(first: Built, copy: Copy, tmp_path: Path) -> None:
    root = copy()
    edit(root / "two_steps.cu", "multiply_kernel", "a_kernel_of_another_name")
    second = compile_one(root, tmp_path / "build", "two_steps")
    names = {f.subject.kernel for f in read(second.of("two_steps"))}
    assert names == {"copy_kernel", "a_kernel_of_another_name"}
    assert code_of(first, "two_steps") == code_of(second, "two_steps")


def test_config_and_arithmetic_change_the_code(toy: Built, copy: Copy, tmp_path: Path) -> None:
    assert code_of(toy, "plain") != code_of(toy, "wide")
    root = copy()
    edit(root / "two_steps.cu", "copy[i] * factor", "copy[i] + factor")
    changed = compile_one(root, tmp_path / "build", "two_steps")
    assert code_of(changed, "two_steps") != code_of(toy, "two_steps")


@pytest.mark.parametrize(
    "text", ['// UNREAD\n#ifndef UNREAD\n#define UNREAD 4\n#endif\n#include "UNREAD.h"', "#ifdef UNREAD\n#endif"]
)
def test_a_macro_that_no_source_reads_is_refused(
    compiler: toolchain.Nvcc, copy: Copy, tmp_path: Path, text: str
) -> None:
    suite = copy()
    (suite / "include" / "UNREAD.h").touch()
    source, manifest = suite / "scale.cu", suite / "suite.toml"
    source.write_text(f"{text}\n{source.read_text()}")
    manifest.write_text(manifest.read_text().replace("ELEMENTS = 4", "ELEMENTS = 4, UNREAD = 1"))
    (artifact,) = compile_one(suite, tmp_path / "build", "wide").artifacts
    if text.startswith("#ifdef"):
        assert artifact.status == "ok"
        return
    assert artifact.status == "failed" and isinstance(artifact.cause, CompileFailed), "no fault of the machine"
    assert "suite.toml:33: variant.wide.config: expected macros that its sources read, found UNREAD" in artifact.message


def test_the_source_hash_holds_no_path_of_this_machine(toy: Built, first: Built, copy: Copy, tmp_path: Path) -> None:
    moved = compile_one(copy(), tmp_path / "build", "two_steps")
    assert moved.of("two_steps").cached, "a suite elsewhere finds what was built"
    assert moved.of("two_steps").source_hash == toy.of("two_steps").source_hash
    assert not [f for f in moved.of("two_steps").flags if str(tmp_path) in f]


# --- a variant that does not build --------------------------------------------------------------


def test_a_variant_that_does_not_compile_fails_alone(faulty: Built) -> None:
    status = {a.variant: a.status for a in faulty.artifacts}
    assert {n for n, s in status.items() if s == "failed"} == {"does_not_compile", "no_variant"}
    message = faulty.of("does_not_compile").message
    assert "this fault does not compile" in message
    assert "fault.cu(" in message
    assert "ptxas info" not in message


def test_a_source_without_its_export_says_so(faulty: Built) -> None:
    message = faulty.of("no_variant").message
    assert message.startswith("required symbol") and "flashcore_launch_plan" in message


def test_a_failed_variant_is_tried_again_and_fixed(compiler: toolchain.Nvcc, copy: Copy, tmp_path: Path) -> None:
    """Words of its text that a stopped compiler says, too, make it no fault of the machine."""
    root = copy()
    edit(root / "two_steps.cu", "float* copy =", "flaot* /* out of memory */ copy =")
    for _ in range(2):
        artifact = compile_one(root, tmp_path / "build", "two_steps").of("two_steps")
        assert artifact.status == "failed" and not artifact.cached
        assert isinstance(artifact.cause, CompileFailed) and artifact.cause.line
        assert 'identifier "flaot" is undefined' in artifact.message
    edit(root / "two_steps.cu", "flaot*", "#error No space left on device\nfloat*")
    assert isinstance(compile_one(root, tmp_path / "build", "two_steps").of("two_steps").cause, CompileFailed)
    edit(root / "two_steps.cu", "#error No space left on device\n", "")
    assert compile_one(root, tmp_path / "build", "two_steps").of("two_steps").status == "ok"


# --- several builds, and builds that end early --------------------------------------------------

BUILD = NO_DISASSEMBLER + (
    "import sys; from pathlib import Path; from flashcore.build import build, launch_plan\n"
    "from flashcore.suites import load; from flashcore.build.static_facts import facts\n"
    "s = load.load(sys.argv[1])\n"
    "v, _ = load.select(s, sys.argv[3:4])\n"
    "a = build.build(s, Path(sys.argv[2]), build.Options(archs=('sm_90a',), operator=False), variants=v)\n"
    "p = launch_plan.plans(s, a, list(s.shapes.values()))\n"
    "for x in a: print(x.variant, x.status, x.code, x.message)\n"
    "unknown = [f for x in a for f in facts(x) if f.value is None and f.source != 'sass']\n"
    "print(len(p), sum(bool(x.error) for x in p), unknown)\n"
)


def spawn(folder: Path, glob: str = PLAIN_AND_TWO_STEPS, **more: object) -> subprocess.Popen[str]:
    """A build of the toy suite in a process (and a group) of its own."""
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(TOY), str(folder), glob],
        cwd=ROOT / "harness", text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **more,  # type: ignore[call-overload]
    )  # fmt: skip
    return process


def test_two_builds_at_once_do_not_harm_each_other(toy: Built, tmp_path: Path) -> None:
    both = [spawn(tmp_path / "build", "two_steps") for _ in range(2)]
    answers = [p.communicate(timeout=200) for p in both]
    assert [p.returncode for p in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert answers[0][0].endswith("2 0 []\n")
    assert f"two_steps ok {code_of(toy, 'two_steps')}" in answers[0][0]


def test_a_killed_build_is_built_again(stuck_nvcc: StuckNvcc, tmp_path: Path) -> None:
    first = spawn(tmp_path / "build", env=stuck_nvcc.environment)
    stuck_nvcc.await_start(first)
    assert list(tmp_path.glob("build/toy/.building-*/*/keep.*"))
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    built = compile_one(TOY, tmp_path / "build", "two_steps")
    assert all(a.status == "ok" for a in built.artifacts), [a.message for a in built.artifacts]
    plans = launch_plan.plans(built.suite, built.artifacts, list(built.suite.shapes.values()))
    assert not any(p.error for p in plans)
    assert all(a.code for a in built.artifacts)
    assert not list(tmp_path.rglob("*.ninja"))
    time.sleep(1)  # one that is a second old is thought to be about to begin
    compile_one(TOY, tmp_path / "build", "plain", "sm_80")
    assert not list(tmp_path.glob("build/toy/.building-*"))


def test_an_interrupted_build_ends_its_compilers(stuck_nvcc: StuckNvcc, tmp_path: Path) -> None:
    """A build that ended before its compilers would leave them to one who then kills its process group, ninja with it:
    ninja may not have had the time to end them."""
    first = spawn(tmp_path / "build", env=stuck_nvcc.environment)
    stuck_nvcc.await_start(first)
    (ninja,) = map(int, Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split())
    os.kill(ninja, signal.SIGSTOP)
    os.kill(first.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(1)
    os.kill(ninja, signal.SIGCONT)
    _, message = first.communicate(timeout=200)  # would wait for a compiler that still holds the pipe
    assert "KeyboardInterrupt" in message
    assert not list(tmp_path.glob("build/toy/.building-*"))


def test_a_file_in_the_way_of_the_build_folder(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    (tmp_path / "build").write_text("", encoding="utf-8")
    with pytest.raises(FlashcoreError, match=r"build.*: cannot write: .*\n  hint: free space"):
        compile_one(TOY, tmp_path / "build", "two_steps")


def test_a_full_disk_while_compiling(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    limit = 40_000  # bytes a file: enough for sources and preprocessor-free logs, not for an object
    process = spawn(
        tmp_path / "build", "two_steps",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    output, error = process.communicate(timeout=200)
    assert "Traceback" not in error
    assert output.startswith("two_steps failed")
    assert "neither accepted nor rejected" in output and "File size limit exceeded" in output, output
    assert compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps").status == "ok"


@pytest.mark.slow
def test_a_full_disk_while_disassembling(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvdisasm ends with 0 after writing a part of a file."""
    find = toolchain.optional_tool
    real, tool = find("nvdisasm"), tmp_path / "nvdisasm"
    assert real is not None
    tool.write_text(f'#!/bin/sh\ntrap "" XFSZ\nulimit -f 8\n"{real}" "$@"\nexit 0\n', encoding="utf-8")
    tool.chmod(0o755)
    loaded = load.load(TOY)
    variants, _ = load.select(loaded, ("two_steps",))

    def counts(folder: Path) -> list[Fact]:
        (artifact, _) = build.build(loaded, folder, build.Options(operator=False), variants=variants)[::-1]
        return [fact for fact in static_facts.facts(artifact) if fact.source == "sass"]

    expected = counts(tmp_path / "whole")
    monkeypatch.setattr(toolchain, "optional_tool", lambda name: tool if name == "nvdisasm" else find(name))
    assert counts(tmp_path / "full") == expected and any(fact.value for fact in expected)


def failing_nvcc(nvcc: toolchain.Nvcc, folder: Path, words: str, end: str, times: int = 9) -> str:
    """A compiler that says so many times that it cannot work, and ends so; then it works."""
    script = folder / "failing_nvcc"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*|--dryrun*) exec "{nvcc.path}" "$@";; *--dryrun) exit 1;; esac\n'
        f'echo x >> "{folder}/count"\n[ $(wc -l < "{folder}/count") -le {times} ] || exec "{nvcc.path}" "$@"\n'
        f"cat <<'END'\n{words}\nEND\n{end}\n"
    )
    script.chmod(0o755)
    return str(script)


STOPPED = {
    "no space": ("<built-in>: fatal error: when writing output to /tmp/a.ii: No space left on device", "exit 1"),
    "killed": ("", "kill -9 $$"),
    "its child killed": ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "exit 9"),
    "no memory": ("a.h(9): catastrophic error: out of memory", "exit 4"),
    "no files": ("/bin/sh: 0: cannot open x: Too many open files", "exit 2"),
    "no word": ("", "exit 1"),
    "a part of the list of files": (
        "",
        '"$REAL_NVCC" "$@" && while [ "$1" != -MF ]; do shift; done && sed -i "\\$ d" "$2"',
    ),
}


def test_what_compilers_say_of_files_that_a_full_disk_cut_is_no_regression(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", failing_nvcc(compiler, tmp_path, "nvFatbin error: empty input", "exit 1"))
    assert isinstance(compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps").cause, CompileFailed)
    full = tmp_path / "tee"
    full.write_text("#!/bin/sh\necho tee: room: No space left on device >&2\nexit 1\n", encoding="utf-8")
    full.chmod(0o755)
    artifact = compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps")
    assert isinstance(artifact.cause, CompilerStopped) and "empty input" in artifact.message, artifact.message


@pytest.mark.parametrize("how", STOPPED)
def test_a_stopped_compiler_is_no_regression(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    words, end = STOPPED[how]
    monkeypatch.setenv("REAL_NVCC", str(compiler.path))
    monkeypatch.setenv("NVCC", failing_nvcc(compiler, tmp_path, words, end))
    built = compile_one(TOY, tmp_path / "build", "two_steps")
    artifact = built.of("two_steps")
    assert artifact.status == "failed" and isinstance(artifact.cause, CompilerStopped), artifact.message
    assert words in artifact.message and ("signal 9" in artifact.message) == ("killed" in how)
    assert (tmp_path / "count").read_text() == "x\n" * 2, "it is tried once more"
    record = factory.bare_record(built.suite, artifacts=(artifact,))
    judgement = judge.judge(record, variants=["two_steps"])
    assert (judgement.exit_code, [v.status for v in judgement.verdicts if v.budget == "builds"]) == (4, ["unmeasured"])
    assert words in judgement.trouble[0]
    assert cli_build.exit_code(built.artifacts, []) == 4


def test_what_ptxas_rejects_is_no_stopped_compiler(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "ptxas fatal   : (C7602) Insufficient registers (80) to compile instruction at line 677"
    monkeypatch.setenv("NVCC", failing_nvcc(compiler, tmp_path, words, "exit 255"))
    artifact = compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps")
    assert isinstance(artifact.cause, CompileFailed) and "signal" not in artifact.message, artifact.message


def test_a_compiler_killed_once_is_tried_again(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", failing_nvcc(compiler, tmp_path, "", "kill -9 $$", times=1))
    assert compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps").status == "ok"


def test_no_room_for_the_first_file(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    process = spawn(tmp_path / "build", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)))
    _, error = process.communicate(timeout=200)
    assert "WriteError" in error.splitlines()[-2] and "cannot write: File too large" in error


# --- options and tools --------------------------------------------------------------------------


def test_options_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load.load(TOY)

    def options(**environment: str) -> build.Options:
        for name in ("DEBUG", "VERBOSE", "CUDA_ARCH"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return build.Options.from_environment(loaded)

    assert options() == build.Options()
    assert options(DEBUG="1", VERBOSE="0") == build.Options(debug=True)
    assert options(DEBUG="") == build.Options()
    for text in ("9.0", "90", "9.0a", "sm_90a", "90a"):
        assert options(CUDA_ARCH=text).archs == ("sm_90a",)
    assert options(CUDA_ARCH="8.0,9.0;sm_90a").archs == ("sm_80", "sm_90a")
    with pytest.raises(UsageError, match="DEBUG=yes: expected 0 or 1"):
        options(DEBUG="yes")
    with pytest.raises(UsageError, match=r"CUDA_ARCH=7\.5: expected one of the suite's archs \(sm_80, sm_90a\)"):
        options(CUDA_ARCH="7.5")


def test_a_variant_gets_its_final_name_while_others_compile(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, complete = load.load(TOY), list[int]()
    monkeypatch.setenv("MAX_JOBS", "1")

    def say(text: str) -> None:
        complete.append(len([p for p in (tmp_path / loaded.name).glob("*-sm_90a-*") if p.is_dir()]))

    variants = [loaded.variants[name] for name in ("plain", "wide")]
    options = build.Options(archs=("sm_90a",), operator=False)
    build.build(loaded, tmp_path, options, variants=variants, say=say)
    assert complete[0] == 0 and 1 in complete


def test_one_arch_alone_is_the_host_and_verbose_shows_the_commands(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    loaded = load.load(TOY)
    lines: list[str] = []
    options = build.Options(verbose=True, archs=("sm_80",), operator=False)
    wide = [loaded.variants["wide"]]
    built = build.build(loaded, tmp_path, options, variants=wide, say=lines.append)
    assert [(a.variant, a.arch, a.plan_library is not None) for a in built] == [("wide", "sm_80", True)]
    assert any(re.search("arch[= ]compute_80", line) for line in lines)


def test_nonsense_for_ninja_is_passed_on(
    compiler: toolchain.Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "many")
    artifact = compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps")
    assert artifact.status == "failed" and "invalid -j" in artifact.message


def test_no_nvcc_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NVCC", raising=False)
    monkeypatch.setattr(toolchain, "program", lambda *_: None)
    loaded = load.load(TOY)
    with pytest.raises(
        CapabilityError, match=r"no nvcc found\n  hint: install CUDA 13, or: pip install 'flashcore-harness\[cuda\]'"
    ):
        build.build(loaded, tmp_path, build.Options(), variants=loaded.variants.values())
