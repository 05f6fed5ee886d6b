"""Output on a terminal, into a closed pipe, and in an encoding without arrows."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashcore.cli import terminal
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.gate import formats
from flashcore.pipeline import plugins
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT, flashcore
from tests.support.judged import rendered

ENV = {**os.environ, "PYTHONPATH": str(ROOT / "harness"), "TERM": "xterm-256color"}
ENV.pop("NO_COLOR", None)
FAILS = "from flashcore.cli import list as c\nfrom flashcore.errors import Exit\ndef run(_): {}\nc.run = run\n"
#: A command that prints more than a pipe holds, and then finds that something failed.
LONG = FAILS.format("print('→ fail\\n' * 100_000); print('said', file=sys.stderr); return Exit.FAILED")
SHORT = FAILS.format("print('fail  →'); return Exit.FAILED")


def command(start: str) -> list[str]:
    return [sys.executable, "-c", f"import sys\n{start}from flashcore.cli.main import main\nsys.exit(main(['list']))"]


@pytest.mark.parametrize("start", [LONG, SHORT])
def test_the_exit_code_stands_when_the_reader_goes_away(start: str) -> None:
    process = subprocess.Popen(command(start), env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr:
        message = process.stderr.read()
    assert (process.wait(), message) == (Exit.FAILED, b"said\n" if start is LONG else b"")


def test_the_exit_code_stands_when_nobody_reads_either_stream() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command(LONG), env=ENV, stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert done.returncode == Exit.FAILED


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="tool: no /dev/full here")
@pytest.mark.parametrize(("start", "code"), [(LONG, Exit.FAILED), (SHORT.replace("FAILED", "OK"), Exit.INCAPABLE)])
def test_output_that_is_lost_is_no_success(start: str, code: Exit) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(start), env=ENV, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == code
    assert "flashcore: standard output: cannot write: No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "message"), [("ascii", b"fail  \\u2192 2 \\xb5s\n"), ("latin-1", b"fail  \\u2192 2 \xb5s\n")]
)
def test_an_encoding_without_arrows(encoding: str, message: bytes) -> None:
    text = SHORT.replace("→", "→ 2 µs")
    done = subprocess.run(command(text), env={**ENV, "PYTHONIOENCODING": encoding}, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (Exit.FAILED, message)


def on_a_terminal(code: str, **env: str) -> str:
    """The output of Python code on a terminal."""
    ours, child = pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", code], env={**ENV, **env}, stdout=child, stderr=child)
    os.close(child)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # what Linux says at the end
            part = b""
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert done.wait() == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


PAINTED = "from flashcore.cli import terminal; print(terminal.painted('ok  x\\nfail  ok\\na failure  failed: 3'))"


def test_colours_are_for_terminals_that_have_some() -> None:
    red, green, end = "\x1b[31m", "\x1b[32m", "\x1b[0m"
    plain = "ok  x\nfail  ok\na failure  failed: 3\n"
    assert on_a_terminal(PAINTED) == (
        f"{green}ok{end}  x\n{red}fail{end}  {green}ok{end}\na failure  {red}failed{end}: 3\n"
    )
    assert on_a_terminal(PAINTED, NO_COLOR="1") == plain
    assert on_a_terminal(PAINTED, TERM="dumb") == plain
    assert terminal.painted(plain) == plain  # no terminal


PROGRESS = """
import sys
from flashcore.cli import progress
from flashcore.model.progress import ProgressLine
with progress.shown() as say:
    say("build: 2 variants")
    say(ProgressLine("one [x]", 1, 2))
    say(ProgressLine("two", 2, 2))
"""


def test_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    pytest.importorskip("rich")
    shown = on_a_terminal(PROGRESS)
    assert "━" in shown and "1/2" in shown and "one [x]" in shown and "build: 2 variants\n" in shown
    long = PROGRESS.replace("build: 2 variants", f"{'a word ' * 20}[b]12[/b]")
    assert f"] {'a word ' * 20}[b]12[/b]\n" in on_a_terminal(long, COLUMNS="60")  # whole, where it is copied
    for one in (
        on_a_terminal(PROGRESS, TERM="dumb"),
        on_a_terminal(f"import sys\nsys.modules['rich'] = None\n{PROGRESS}"),
    ):
        assert "━" not in one and [line.split("] ", 1)[1] for line in one.splitlines()] == [
            "build: 2 variants", "one [x]", "two",
        ]  # fmt: skip
    log = subprocess.run([sys.executable, "-c", PROGRESS + "print('rich' in sys.modules)"], env=ENV,
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert log.stdout == "False\n" and len(log.stderr.splitlines()) == 3


# --- the gate's exit code, whatever reads it (items 6, 7, 18, 21) --------------------------------

FORMATS = ("table", *formats.FORMATS, *dict(plugins.entries("formats")))


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose gate fails, with what compilers and code hosts make of words."""
    folder = tmp_path_factory.mktemp("runs") / "20260102T030405Z-0001"
    folder.mkdir()
    suite = factory.suite(title="Aufmerksamkeit → größer")
    broken = factory.artifact("fast", "sm_80", "failed", "nvcc died:\n::error file=x::owned\n##[error]owned →")
    kept = [a for a in factory.artifacts(suite) if (a.variant, a.arch) != ("fast", "sm_80")]
    store.write(factory.record(suite, artifacts=(*kept, broken)), folder)
    return folder


def gate(*words: str | Path, **changes: str) -> list[str]:
    return [
        "env",
        *(f"{k}={v}" for k, v in changes.items()),
        sys.executable,
        "-m",
        "flashcore",
        "gate",
        *map(str, words),
    ]


@pytest.mark.parametrize(
    "form", [f if f in ("table", "github") else pytest.param(f, marks=pytest.mark.slow) for f in FORMATS]
)
def test_a_failed_gate_exits_1_in_latin_1(failed: Path, form: str) -> None:
    odd = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    words = gate(failed, "--format", form, **odd)
    done = subprocess.run(words, env={**ENV, "GITHUB_ACTIONS": "true"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (Exit.FAILED, b"")
    text = done.stdout.decode("latin-1")
    owned = [line for line in text.splitlines() if "owned" in line]
    obeyed = [x for x in owned if x.lstrip().startswith("::") or "##[" in x]
    assert all(form == "github" and x.startswith("::error file=kernels") for x in obeyed)
    assert form != "github" or text.startswith("::error ")


def test_a_defect_exits_4_and_a_closed_output_is_none(failed: Path) -> None:
    crash = FAILS.format("print('x' * 100_000); raise RuntimeError('a defect')")
    for redirect in ("| true", ">&-", ">&- 2>&-"):
        script = f'"$@" {redirect}; exit ${{PIPESTATUS[0]}}'
        done = subprocess.run(["bash", "-c", script, "-", *command(crash)], env=ENV, capture_output=True, check=False)
        assert done.returncode == Exit.INCAPABLE
    for redirect in (">&-", "| exec 0<&-"):
        script = f'"$@" {redirect}; exit ${{PIPESTATUS[0]}}'
        done = subprocess.run(["bash", "-c", script, "-", *gate(failed)], env=ENV, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (Exit.FAILED, b"")


@pytest.mark.parametrize("words", [["a" * 5000], ["--suite", "a" * 5000], ["--suite", "/dev/null/x"]])
def test_a_name_that_no_file_can_have_is_wrong_usage(words: list[str], tmp_path: Path) -> None:
    done = flashcore("gate", *words, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "Traceback" not in done.stderr and len(done.stderr) < 7000


# --- foreign text that would act on a terminal, a log or a page ----------------------------------

DRAWS = "\x1b[31mred\x1b[0m \x1b[2K\x1b[1A\rgate passed \x9b2J \x00 \u202edessap etag"
SHOWN = r"red \u001b[2K\u001b[1A\u000dgate passed \u009b2J \u0000 \u202edessap etag"
PRINTS = f"""
from flashcore.cli import progress, terminal
from flashcore.errors import Exit, UsageError
from flashcore.model.progress import ProgressLine
from flashcore.cli import list as c
def run(_):
    text = {DRAWS!r}
    with progress.shown() as say:
        say(text)
        say(ProgressLine(text, 1, 2))
    print(text)
    print(terminal.painted("fail  " + text))
    raise UsageError(text)
c.run = run
"""


def acts(text: str) -> bool:
    """True if a text contains one of the control characters :data:`DRAWS`, apart from color."""
    return bool(re.search("\x1b\\[(2K\x1b\\[1A\rgate|31mred)|\x9b|\0|\u202e", text))


def test_foreign_text_cannot_draw_on_a_terminal() -> None:
    code = command(PRINTS)[2].replace("sys.exit(main(['list']))", "main(['list'])")
    for env in ({}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"GITHUB_ACTIONS": "true"}):
        shown = on_a_terminal(code, COLUMNS="300", **env)
        assert shown.count(SHOWN) >= 4 and f"flashcore: {SHOWN}\n" in shown and not acts(shown)
        assert ("\x1b[31mfail\x1b[0m  " in shown) == (env in ({}, {"GITHUB_ACTIONS": "true"}))
    done = subprocess.run(command(PRINTS), env=ENV, capture_output=True, text=True, check=False)
    assert done.stdout == f"{SHOWN}\nfail  {SHOWN}\n" and f"flashcore: {SHOWN}\n" in done.stderr


@pytest.mark.parametrize("form", FORMATS)
def test_a_compilers_message_cannot_draw_the_gates_result(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = factory.suite(title=DRAWS)
    broken = factory.artifact("fast", "sm_80", "failed", DRAWS)
    kept = [a for a in factory.artifacts(suite) if (a.variant, a.arch) != ("fast", "sm_80")]
    folder, out = tmp_path / "20260102T030405Z-0001", tmp_path / "out"
    folder.mkdir()
    store.write(factory.record(suite, artifacts=(*kept, broken)), folder)
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["gate", str(folder), "--format", form, "--format", f"json={out}"]) == Exit.FAILED
    texts = (capsys.readouterr().out, out.read_text(), summary.read_text() if summary.exists() else "")
    assert not any(map(acts, texts))
    assert json.loads(out.read_text())["exit_code"] == 1


def test_foreign_text_cannot_act_on_a_page(tmp_path: Path) -> None:
    suite = factory.suite(title=DRAWS)
    broken = factory.artifact("fast", "sm_80", "failed", DRAWS)
    record = factory.record(suite, artifacts=(*factory.artifacts(suite)[1:], broken))
    pages = rendered(record, tmp_path / "report")
    texts = [page.read_text() for page in pages]
    assert any(SHOWN in text for text in texts) and not any(map(acts, texts))
