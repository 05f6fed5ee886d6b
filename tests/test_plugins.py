"""The core without each of its plugins; and the plugins of ``docs/how-to/extend.md``, as they stand there."""

from __future__ import annotations

import compileall
import contextlib
import dataclasses
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashcore.measure.machine import python_process, toolchain
from flashcore.model import plugin
from flashcore.model.record import Fact, Facts, Source
from flashcore.pipeline import plugins
from flashcore.records import store
from tests import factory, forks
from tests.conftest import ROOT, TOY

PACKAGE = ROOT / "harness" / "flashcore"
#: A plugin → words of a command line that need it.
NEEDS = {
    "tune": "tune space",
    "map": f"map --points 5 --suite {ROOT / 'kernels' / 'attention'}",
    "reports": "import report.ncu-rep",
    "cluster": "bench --suite suite --cluster auto",
    "ssh": "bench --suite suite --host box",
    "watch": "watch --suite suite --host box",
    "runs": "runs",
    "trends": "trends",
    "bisect": "bisect fast/mission HEAD~1 HEAD --suite suite",
    "energy": "bench --suite suite --energy",
    "base": "gate --suite suite --base HEAD",
    "against": "bench --suite suite --against HEAD",
    "compare": "diff 2026 2026",
    "init": "init new",
    "phases": "phases wide",
    "mcp": "mcp --root .",
    "formats": "gate 2026 --format sarif",
    "recorded": f"build --suite {ROOT / 'tests' / 'suites' / 'update'}",
    "languages/triton": f"list --suite {ROOT / 'examples' / 'triton_kernels'}",
    **dict.fromkeys(
        (f"languages/{name}" for name in ("cute", "cutile", "numba")), f"list --suite {ROOT / 'examples' / 'languages'}"
    ),
}
OURS = [Path(name) for name in NEEDS]
#: Imports every module of the core.
IMPORTS = """
import importlib, pkgutil
import flashcore
for module in pkgutil.walk_packages(flashcore.__path__, "flashcore."):
    if module.name != "flashcore.__main__":
        importlib.import_module(module.name)
"""
#: In a fork that has imported the package and others: imports the package anew, from the folder that is named first.
ANEW = """
import sys
for module in [m for m in sys.modules if m.partition(".")[0] == "flashcore"]:
    del sys.modules[module]
sys.path.insert(0, sys.argv.pop(1))
"""
#: In a fork that has imported the core: has the plugins of the folder that is named first.
PLUGINS_OF = """
import sys
from pathlib import Path
import flashcore.plugins
from flashcore.pipeline import plugins
assert not [m for m in sys.modules if m.startswith("flashcore.plugins.")]
plugins.FOLDER = Path(sys.argv.pop(1), "flashcore", "plugins")
flashcore.plugins.__path__[:] = [str(plugins.FOLDER)]
"""
#: Runs command lines; prints the exit code, standard output and standard error of each.
SESSION = """
import contextlib, io, json, shlex, sys
from flashcore.cli.main import main
for line in sys.argv[1:]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(shlex.split(line))
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy suite and a recorded run."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(TOY, folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    record = factory.record(factory.suite([factory.variant("slow"), factory.variant("fast")], [factory.shape()]))
    (folder / "profiles" / record.id).mkdir(parents=True)
    store.write(record, folder / "profiles" / record.id)
    return folder


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package; compiled modules too, which its processes do not write. Links would change
    the files' ctime."""
    compileall.compile_dir(PACKAGE, quiet=1)
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, folder / "flashcore")
    return folder


@contextlib.contextmanager
def without(removed: str, copy: Path) -> Iterator[Path]:
    """The copy without a folder of its plugins, meanwhile."""
    folder, elsewhere = copy / "flashcore" / "plugins" / removed, copy / "removed"
    folder.rename(elsewhere)
    try:
        yield copy
    finally:
        elsewhere.rename(folder)


def run(package: Path, cwd: Path, code: str, *words: str, begin: str = PLUGINS_OF) -> str:
    """Runs Python that has the plugins of this package; the core is the same for all."""
    environment = {**python_process.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    forked = forks.of((*forks.COMMANDS, "flashcore.cli.list", "flashcore.cli.report", "jinja2", "numpy"))
    done = forked.run(["-c", begin + code, str(package), *words], cwd, environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("removed", OURS, ids=str)
def test_the_core_runs_without_a_plugin_and_names_it_where_it_is_needed(
    removed: Path, work: Path, copy: Path, tmp_path: Path
) -> None:
    core = ("--help", "list --suite suite", "gate 2026", f"report 2026 -o {tmp_path / 'report'}")
    with without(str(removed), copy) as package:
        output = run(package, work, SESSION, *core, NEEDS[str(removed)])
    *results, needed = (json.loads(line) for line in output.splitlines())
    assert [code for code, _, _ in results] == [0] * len(core), results
    code, _, message = needed
    assert code == 2 and f"the plugin {removed.name}, which is not installed" in message


def test_a_run_with_facts_of_a_missing_plugin_names_it(work: Path, copy: Path, tmp_path: Path) -> None:
    cwd = shutil.copytree(work, tmp_path / "work")
    record = factory.record()
    of = next(f.subject for f in record.facts.named("isolated_p50"))
    joules = [Fact(of, "energy", 20.0, "mJ", Source.NVML)]
    store.write(dataclasses.replace(record, facts=Facts([*record.facts, *joules])), cwd / "profiles" / record.id)
    with without("energy", copy) as package:
        (code, _, message) = json.loads(run(package, cwd, SESSION, "facts 2026"))
    assert code == 2 and "the plugin energy, which is not installed" in message
    assert json.loads(run(PACKAGE.parent, cwd, SESSION, "facts 2026"))[0] == 0


def test_the_facts_of_each_plugin_are_known_without_it() -> None:
    loaded = [importlib.import_module(f"flashcore.plugins.{path}".replace("/", ".")).PLUGIN for path in NEEDS]
    loaded += [importlib.import_module(f"flashcore.plugins.{name}").PLUGIN for name in ("audit", "judge")]
    assert plugin.SHIPPED["facts"] == {fact: entry.name for entry in loaded for fact in entry.facts}


def test_watch_runs_without_ssh_which_its_host_needs(work: Path, copy: Path) -> None:
    with without("ssh", copy) as package:
        results = map(json.loads, run(package, work, SESSION, "watch --help", "watch --host box").splitlines())
    (code, text, _), (refused, _, message) = results
    assert code == 0 and "--serve" in text and "--host" not in text
    assert refused == 2 and "the plugin ssh, which is not installed" in message


def test_a_suite_is_read_without_the_plugin_of_a_table_that_it_has(work: Path, copy: Path) -> None:
    suites = (ROOT / "kernels" / "attention", ROOT / "examples" / "row_softmax")
    with without("map", copy) as package:
        output = run(package, work, SESSION, *(f"list --suite {suite}" for suite in suites))
    assert [json.loads(line)[0] for line in output.splitlines()] == [0, 0]


def test_the_core_passes_its_tests_without_any_plugin(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "flashcore", ignore=lambda at, _: {"plugins"} if at == str(PACKAGE) else set())
    package = tmp_path
    run(package, ROOT, IMPORTS, begin=ANEW)
    words = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-o",
        f"pythonpath={package} .",
    ]
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("FLASHCORE_TESTS", None)  # a missing plugin's tests are skipped there
    files = ("model/test_causes.py", "explain/test_roofline.py", "cli/test_verdict_table.py")
    done = subprocess.run(
        [*words, *(f"tests/{f}" for f in files)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- docs/how-to/extend.md ------------------------------------------------------------------


@pytest.mark.slow
def test_the_plugins_of_the_documentation_work_as_shown(work: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "extend.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^```(python|jinja|toml|console)\n(.*?)^```$", page)
    cwd = shutil.copytree(work, tmp_path / "work")
    store.write(factory.record(), next((cwd / "profiles").iterdir()))
    names = []
    for language, block in blocks:
        if named := re.match(r"(?:# |\{# )([\w./]+)", block):
            place = (cwd if "/" in named[1] else tmp_path) / named[1]
            place.parent.mkdir(exist_ok=True)
            place.write_text(block, encoding="utf-8")
            assert block.count("\n") <= 41, "40 lines and the file's name"
            names += [place.stem] if language == "python" and "/" not in named[1] else []
    metadata = tmp_path / "examples-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: examples\nVersion: 1.0\n")
    entry_points = "".join(f"{name} = {name}:PLUGIN\n" for name in names)
    (metadata / "entry_points.txt").write_text(f"[flashcore.plugins]\n{entry_points}")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'harness'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        plugins.VARIABLE: ",".join(names),
    }
    (tmp_path / "bin").mkdir()
    for name, words in (("flashcore", f"{sys.executable} -m flashcore"), ("python", sys.executable)):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    for path in (tmp_path / "bin").iterdir():
        path.chmod(0o755)
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for language, block in blocks:
        if language == "console" and "export" not in block and (toolchain.optional_tool("ptxas") or "ptx" not in block):
            script = "\n".join(line[2:] for line in block.splitlines() if line.startswith(("$ ", "> ")))
            done = subprocess.run(
                ["sh", "-e", "-c", script], cwd=cwd, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, script + done.stderr
            for line in (line for line in block.splitlines() if not line.startswith(("$ ", "> "))):
                assert line in done.stdout.splitlines(), (script, done.stdout)
