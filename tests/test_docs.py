"""The documents of the repository: links and named files lead somewhere, and the commands shown are understood."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin

from benchmarks import raw
from docs import ladder
from flashcore.cli import inner_loop
from flashcore.cli import main as cli
from flashcore.errors import Exit
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.machine import toolchain
from flashcore.model.case import Case
from flashcore.model.catalogue import STALL_REASONS
from flashcore.model.record import CaseSubject, Subject
from flashcore.model.suite import TIMING_MODES, Shape
from flashcore.records import store
from tests.conftest import ROOT, published, published_run
from tests.support.judged import judged

MADE = {".venv", ".venv-extensions", ".venv-languages", "build", "_build", "generated", "SGEMM_CUDA"}
PAGES = sorted(p for p in ROOT.rglob("*.md") if not MADE & set(p.relative_to(ROOT).parts))
EXTENSIONS = ROOT / "extensions"
#: Their commands.
OF_EXTENSIONS = {p.parent.name for p in EXTENSIONS.glob("*/pyproject.toml")}
#: A document names a file from the repository, from the package, or from its own folder.
ROOTS = (ROOT, ROOT / "harness" / "flashcore")
#: Files that a reader of the document has, and this repository has not.
ELSEWHERE = ("kernels/suite.toml", "reports/", "torch/", "measure-1/")
_FILE = re.compile(r"[\w./-]+/[\w.-]+\.(?:md|py|toml|json|csv|h|cu|cuh|cpp|ipynb|yml|html)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def tokens(page: Path) -> list[Token]:
    parser = MarkdownIt().enable("table").use(anchors_plugin, max_level=6)
    return [t for block in parser.parse(page.read_text(encoding="utf-8")) for t in (block, *(block.children or ()))]


def anchors(page: Path) -> set[str]:
    return {str(t.attrs["id"]) for t in tokens(page) if t.type == "heading_open"}


@every_page
def test_links_and_anchors_exist(page: Path) -> None:
    wrong = []
    for link in (str(t.attrs.get("href") or t.attrs.get("src") or "") for t in tokens(page)):
        if re.match(r"[a-z]+:", link):  # of the network
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert not wrong


@every_page
def test_files_named_exist(page: Path) -> None:
    names = {t.content for t in tokens(page) if t.type == "code_inline" and _FILE.fullmatch(t.content)}
    places, packed = (*ROOTS, page.parent), raw.recorded(ROOT / "benchmarks" / "results")
    there = {n for n in names for p in places if (p / n).exists() or p / n in packed}
    wrong = [n for n in names - there if not n.startswith(ELSEWHERE)]
    assert not sorted(wrong)


def commands(page: Path) -> Iterator[str]:
    """The commands of a page: of its shell blocks, and those that a sentence names."""
    for token in tokens(page):
        if token.type == "fence" and (kind := token.info.strip()) in ("console", "sh", "bash"):
            lines = token.content.replace("\\\n", " ").splitlines()
            shown = [line.removeprefix("$ ") for line in lines if kind != "console" or line.startswith("$ ")]
        else:
            shown = [token.content] if token.type == "code_inline" else []
        for line in shown:
            yield from re.split(r"\s(?:&&|\||>)\s", line)


# Commands in extend.md are executed by test_extensions; those of extensions, and of their pages, by their tests.
OURS = [p for p in PAGES if p.name != "extend.md" and EXTENSIONS not in p.parents]


@pytest.mark.parametrize("page", OURS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_are_understood(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+%?):", makefile, re.MULTILINE))
    for command in commands(page):
        if not re.search(r"^([A-Z_]+=\S+ )*(flashcore|make|python -m benchmarks\.\w+) ", command):
            continue
        words = [w for w in shlex.split(command, comments=True) if not re.match(r"[A-Z_]+=", w)]
        arguments = re.search(r'ARGS="([^"]*)"', command)
        if words[0] == "flashcore" and words[1] in OF_EXTENSIONS:
            continue
        if words[0] == "flashcore":
            message = refusal(words[1:], capsys)
            # A sentence may name a command without what it takes.
            assert not message or "the following arguments are required" in message, command
        elif words[0] == "make":
            benchmarks = [word.removeprefix("bench-") for word in words[1:] if word.startswith("bench-")]
            assert {*words[1:]} <= targets | {f"bench-{name}" for name in benchmarks}, command
            for name in benchmarks:
                options_are_known(name, arguments[1] if arguments else "", command)
        else:
            options_are_known(words[2].removeprefix("benchmarks."), command, command)


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The command line's error for these words; empty if it accepts them."""
    try:
        cli.parser(words).parse_args(words)
    except SystemExit as end:
        return capsys.readouterr().err if end.code else ""
    return ""


def options_are_known(benchmark: str, arguments: str, command: str) -> None:
    place = ROOT / "benchmarks" / benchmark
    file = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
    text = file.read_text(encoding="utf-8") + (ROOT / "benchmarks" / "raw.py").read_text(encoding="utf-8")
    unknown = [o for o in re.findall(r"(?<=\s)--[a-z-]+", f" {arguments}") if f'"{o}"' not in text]
    assert not unknown, command


@pytest.mark.slow
def test_the_ladders_page_is_what_the_manifest_and_its_run_give(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "kernels" / "attention" / "README.md").read_text(encoding="utf-8")
    run = re.findall(r"^Run `([^`]+)`", page, re.MULTILINE)
    ladder.main(run)
    assert page == capsys.readouterr().out, "hint: make ladder"


LIBRARIES = {"cuDNN": "cudnn", "FlashAttention-2": "flash", "FlashAttention-3": "fa3", "FlashAttention-4": "fa4"}


@pytest.mark.slow
def test_the_shapes_where_a_library_is_faster_are_those_of_the_published_runs() -> None:
    text = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^\| (\d+T.*) \|$", text)
    shown = [[cell.split(":")[0].strip("` ") for cell in line.split(" | ")] for line in lines]
    slower = []
    for run in dict.fromkeys(cells[0] for cells in shown):
        readings = Readings(store.read(published_run(run)))
        timed = [s for s in readings.record.suite.shapes.values() if "bench" in s.stages]
        for row in (Row(readings, shapes) for shapes in readings.record.suite.rows(timed)):
            winner = next(name for name in row.times if name not in row.references)
            speedup = row.over(winner, row.reference)
            if speedup and speedup.value < 1:
                assert row.reference and row.shape.rank_by == "back_to_back"
                slower.append((run, row.shape.name, winner, row.reference))
                times = [readings.of("back_to_back_p50", Case(name, row.shape.name)).value for name in slower[-1][2:]]
                cells = shown[len(slower) - 1]
                assert [float(cells[3]), float(cells[5])] == pytest.approx(times, rel=0.006)
                assert float(cells[6]) == pytest.approx(speedup.value, abs=0.006)
    assert [(*cells[:3], LIBRARIES[cells[4]]) for cells in shown] == [
        (run, shape, winner, reference.partition("_")[0]) for run, shape, winner, reference in slower
    ]


@pytest.mark.slow
def test_the_results_are_those_of_the_published_run() -> None:
    text = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    run = re.search(r"run (\S+)\)", text)
    assert run
    record = store.read(published_run(run[1]))
    readings = Readings(record)
    timed = [s for s in record.suite.shapes.values() if "bench" in s.stages and not s.params["LSE"]]
    rows_of = [Row(readings, shapes) for shapes in record.suite.rows(timed)]
    by_sizes = {_sizes(row.shape): row for row in rows_of if row.reference}
    of_readme = re.search(r"([\d.]+) to ([\d.]+) times as fast", (ROOT / "README.md").read_text(encoding="utf-8"))
    rows = [[c.strip(" `") for c in line.split("|")[1:-1]] for line in text.splitlines() if re.match(r"\| \d+,", line)]
    assert len(by_sizes) == len(rows) >= 10
    ratios = [float(row[-1].partition(" ")[0]) for row in rows]
    assert of_readme and of_readme.groups() == (f"{min(ratios):.2f}", f"{max(ratios):.2f}")
    for sizes, variant, isolated, back_to_back, reference, theirs_isolated, theirs_back_to_back, ratio in rows:
        row = by_sizes[sizes]
        fastest = row.reference
        assert fastest and fastest.startswith(LIBRARIES[reference]), sizes
        (shown_ratio,) = re.findall(r"(\S+) \[(\S+), (\S+)\], (.+)", ratio)
        *numbers, mode = shown_ratio
        assert mode == row.shape.rank_by.replace("_", " "), sizes
        shown = (isolated, back_to_back, theirs_isolated, theirs_back_to_back)
        keys = [(f"{r}_p50", row.cases[n]) for n in (variant, fastest) for r in TIMING_MODES[:2]]
        for value, (fact, case) in zip(shown, keys, strict=True):
            levels = readings.levels(fact, case)
            mode = fact.removesuffix("_p50").replace("_", " ")
            note = f"- {sizes}, `{case.variant}`, {mode}: {levels.removeprefix('two levels: ')}.\n"
            assert bool(levels) == value.endswith("†") == (note in text), (sizes, fact)
            number_shown = float(value.replace(",", "").strip(" †"))
            assert number_shown == pytest.approx(readings.of(fact, case).value, rel=0.006), (sizes, fact)
        speedup = row.over(variant, fastest)
        assert speedup and speedup.ends, sizes
        interval = (speedup.value, speedup.low, speedup.high)
        assert [*map(float, numbers)] == pytest.approx(interval, abs=0.0006), sizes


def _sizes(shape: Shape) -> str:
    p = shape.params
    heads = f"{p['H']}" if p["H"] == p["HKV"] else f"{p['H']}/{p['HKV']}"
    more = " causal" * bool(p["CAUSAL"]) + ", bf16" * (p["DTYPE"] == "bfloat16")
    return f"{p['B']},{heads},{p['S']},{p['D']}{more}"


def test_the_table_of_exit_codes_is_that_of_the_commands() -> None:
    text = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in re.findall(r"(?m)^\| \d+ .*", text)]
    assert rows == [(str(int(code)), code.meaning, code.action) for code in Exit]


@pytest.mark.parametrize("page", [p for p in PAGES if "{literalinclude}" in p.read_text(encoding="utf-8")])
def test_code_shown_from_a_file_is_a_part_of_it(page: Path) -> None:
    for token in (t for t in tokens(page) if t.info.startswith("{literalinclude}")):
        text = (page.parent / token.info.split()[1]).read_text(encoding="utf-8")
        start, end = re.findall(r"(?m)^:(?:start-at|end-before|end-at): (.*)$", token.content)
        assert text.count(start) == 1, start
        assert 2 <= text[text.index(start) :].partition(end)[0].count("\n") <= 40, (start, end)


@pytest.mark.slow
def test_the_readmes_example_prints_what_is_shown(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    if toolchain.optional_tool("nvdisasm") is None:
        pytest.skip("tool: no nvdisasm")
    (tmp_path / "flashcore").symlink_to(ROOT)
    shown = next(t.content for t in tokens(ROOT / "README.md") if t.type == "fence" and "nvcc" in t.content)
    execute(shown, tmp_path, tmp_path, nvcc=compiler.path)


@pytest.mark.slow
def test_the_quickstart_prints_what_is_shown(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    fences = [t for t in tokens(ROOT / "docs" / "tutorial" / "quickstart.md") if t.type == "fence"]
    build, gate, save = [t.content for t in fences if t.info == "console"][1:4]
    built, failed = [t.content for t in fences if t.info == "text"]
    repository, manifest = tmp_path / "mine", tmp_path / "mine" / "kernels" / "suite.toml"
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    for key, value in (("user.name", "A"), ("user.email", "a@b.c")):
        subprocess.run(["git", "-C", str(repository), "config", key, value], check=True)
    execute(build + built, repository, tmp_path, nvcc=compiler.path)
    execute(gate, repository, tmp_path, nvcc=compiler.path)
    text = manifest.read_text(encoding="utf-8")
    assert text.count("config = { ELEMENTS = 4 }") == 1
    manifest.write_text(text.replace("config = { ELEMENTS = 4 }", "config = { ELEMENTS = 1 }"), encoding="utf-8")
    execute(f"$ flashcore gate --suite kernels\n{failed}", repository, tmp_path, nvcc=compiler.path)
    manifest.write_text(text, encoding="utf-8")
    execute(save, repository, tmp_path, nvcc=compiler.path)


@pytest.mark.slow
def test_the_tutorial_prints_what_is_shown(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorial" / "naive-to-library.md"
    fences = [t for t in tokens(page) if t.type == "fence" and t.info == "console"]
    shown = [t.content for t in fences if "pip install" not in t.content]
    assert len(shown) == 6
    for block in shown:
        execute(block, ROOT, tmp_path)


def test_the_tutorials_times_are_those_of_its_run() -> None:
    text = (ROOT / "docs" / "tutorial" / "naive-to-library.md").read_text(encoding="utf-8")
    rows = [[c.strip(" `") for c in line.split("|")[1:-1]] for line in text.splitlines() if re.match(r"\|.*\| `", line)]
    times = {
        name: published().facts.number("isolated_p50", CaseSubject(Case(name, "mission"))) or 0.0
        for _, name, *_ in rows
    }
    before = 0.0
    for step, name, shown, gain, over in rows:
        time = times[name]
        assert float(shown) == pytest.approx(time, rel=0.006)
        assert float(over) == pytest.approx(time / times["cudnn"], abs=0.006)
        if step:
            assert float(gain) == pytest.approx(before / time, abs=0.006)
            assert f"**{gain} times** faster" in text.replace("\n", " ")
        before = time
    assert [step for step, *_ in rows] == ["", "1", "2", "3", "4", "5", "6", ""]


def execute(block: str, cwd: Path, scratch: Path, **programs: Path) -> None:
    """Runs a block's commands in order; each prints the lines shown below it and ends with the code shown, or 0."""
    (scratch / "bin").mkdir(exist_ok=True)
    python = sys.executable
    for name, words in {"flashcore": f"{python} -P -m flashcore", "python": python, **programs}.items():
        (scratch / "bin" / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (scratch / "bin" / name).chmod(0o755)
    path = f"{scratch / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "harness")}
    for step in block.removeprefix("$ ").split("\n$ "):
        command, *lines = step.splitlines()
        done = subprocess.run(
            command,
            shell=True,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert set(lines) - {"…", ""} <= set(printed.splitlines()), printed
        assert done.returncode == int("(exit 1)" in step), printed


#: Shown commands that the test below does not run: a pattern, and what they need.
NEEDS = {
    r"pip install|python3 -m venv|^cd |^make |^export |^sh |^ray |^nsys |ncu --import|aws s3": "an installation",
    r"flashcore (bench|watch|phases|bisect|capture|profile|sanitize|map .*--points|tune )": "a GPU",
    r"flashcore check --gpus|--device cpu|transformer/model.py|^\w+=\S+ .*python my_model|^mkdir -p": "a GPU, torch",
    r"--require timing|RUN_ON_|flashcore (compare|gate) 20261122T004": "runs and keys",
    r"\.whl|their_kernels|--save-baseline|flashcore audit$|\.ncu-rep|trace\.json|\.sqlite|gemm\.csv": "own files",
    r"^\./|(before|after)\.json": "a program of the reader's",
    r"examples/(languages|sgemm)": "other compilers, a network",
    r"^#|^if |^git add|^printf": "a script of the reader's",
    r"gate --suite kernels/attention_general$": "minutes of compilation, and .ci/run has it",
}
#: Pages whose commands other tests run.
RUN_ELSEWHERE = [
    ROOT / "README.md",
    *(ROOT / "docs" / x for x in ("tutorial/quickstart.md", "tutorial/naive-to-library.md", "reference/extend.md")),
]
#: Shown commands that are about a clone; others are about a suite of the reader's.
IN_CLONE = r"examples/|kernels/attention|\d{8}T|tma_split_keys|results/|gpu\.run\.zip|flashcore (runs|report)$"


def runnable() -> Iterator[tuple[Path, str]]:
    """The commands in the documentation's shell blocks that need no GPU, no network and nothing of the reader's."""
    for page in OURS:
        for token in () if page in RUN_ELSEWHERE else tokens(page):
            if token.type == "fence" and (kind := token.info.strip()) in ("console", "sh", "bash"):
                lines = token.content.replace("\\\n", " ").splitlines()
                for line in lines if kind != "console" else [x[2:] for x in lines if x.startswith("$ ")]:
                    command = re.sub(r"\s+#.*", "", line)
                    if command and not any(re.search(pattern, command) for pattern in NEEDS):
                        yield page, command


@pytest.mark.slow
def test_shown_commands_that_need_no_gpu_run_in_a_fresh_clone(
    compiler: toolchain.Nvcc, whole_cuda_headers: None, tmp_path: Path
) -> None:
    """Or, if they are about a suite of the reader's, in a repository with that of ``flashcore init``."""
    clone, repository = tmp_path / "clone", tmp_path / "repository"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    (ROOT / "build").mkdir(exist_ok=True)
    (clone / "build").symlink_to(ROOT / "build")  # what is built here need not be built there, or here again
    repository.mkdir()
    git = "git -c user.name=A -c user.email=a@b.c"
    begun = f"{git} init -q -b main && git add . && {git} commit -qm A && git update-ref refs/remotes/origin/main HEAD"
    execute(f"$ flashcore init kernels\n$ {begun}", repository, tmp_path, nvcc=compiler.path)
    failed, commands = [], [*runnable()]
    for page, command in commands:
        folder = clone if re.search(IN_CLONE, command) else repository
        try:
            execute(f"$ {command}", folder, tmp_path, nvcc=compiler.path)
        except AssertionError as error:
            failed.append(f"{page.relative_to(ROOT)}: {command}\n{str(error)[-1000:]}")
    assert len(commands) >= 20 and not failed, "\n\n".join(failed)


def blocks(page: str, kind: str) -> list[str]:
    return [t.content for t in tokens(ROOT / "docs" / "how-to" / page) if t.type == "fence" and t.info.strip() == kind]


@pytest.mark.slow
def test_the_answers_shown_are_those_of_the_published_run() -> None:
    record = published()
    answers = inner_loop.answers(judged(record), None, "tma_split_keys")
    shown = blocks("find-the-limiter.md", "text")[0].splitlines()
    assert shown and set(shown) <= set(answers), "hint: copy the lines of these answers: " + "\n".join(answers)


@pytest.mark.slow
def test_sampled_and_counted_stalls_agree_as_is_said() -> None:
    record = published()
    sampled: dict[Subject, Counter[str]] = {}
    for listing in record.listings:
        samples_of = sampled.setdefault(CaseSubject(listing.subject.case), Counter())
        for instruction in listing.instructions:
            samples_of.update({r: instruction.values.get(f"stall_{r}", 0) for r in STALL_REASONS if r != "selected"})
    worst: list[float] = []
    alike = 0
    for case, samples in sampled.items():
        read = {r: record.facts.number(f"stall_share_{r}", case) for r in samples}
        counted = {r: share for r, share in read.items() if share is not None}
        total = sum(samples[r] for r in counted)
        alike += max(counted, key=lambda r: counted[r]) == max(counted, key=lambda r: samples[r])
        worst.append(max(abs(100 * samples[r] / total - share) for r, share in counted.items()))
    text = " ".join((ROOT / "docs" / "explanation" / "decisions.md").read_text(encoding="utf-8").split())
    assert f"largest in {alike} of {len(sampled)} cases" in text
    assert f"differs by {statistics.median(worst):.1f} points in the median" in text
    assert f"up to {max(worst):.0f} where" in text


def test_the_kernel_that_is_added_builds(
    compiler: object, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)  # no operator
    suite = tmp_path / "kernels"
    assert cli.main(["init", str(suite)]) == 0
    (suite / "wide_rows.cu").write_text(blocks("add-a-kernel.md", "cuda")[0], encoding="utf-8")
    manifest = (suite / "suite.toml").read_text(encoding="utf-8").replace('["sm_80", "sm_89", "sm_90a"]', '["sm_90a"]')
    declared = blocks("add-a-kernel.md", "toml")[0]
    (suite / "suite.toml").write_text(f"{manifest}\n{declared}", encoding="utf-8")
    chosen = ["--suite", str(suite), "--variant", "wide_rows", "--build-dir", str(tmp_path / "build")]
    assert cli.main(["gate", *chosen, "--profiles", str(tmp_path / "profiles"), "-q"]) == 0, capsys.readouterr().out
