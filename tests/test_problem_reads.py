"""Freshness by what a suite's Python code read: modules found in any way, and data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.model.case import Case
from flashcore.model.causes import FILES_CHANGED, SETTINGS_CHANGED
from flashcore.model.files import content_hash
from flashcore.model.record import CaseKey, Reads, Record
from flashcore.records import freshness, store
from tests import factory
from tests.conftest import ROOT

PROBLEM = """
import importlib.metadata, platform, sqlite3, sys, tempfile, threading
from pathlib import Path
HERE = Path(__file__).parent
sys.path += [str(HERE / "lib"), str(HERE.parent / "common"), str(HERE.parent / "site-packages")]
import installed, shared
from helpers import core
import package.part
import elsewhere
TABLES = sorted(path.name for path in (HERE / "tables").glob("*.json"))
try:
    OVERRIDES = (HERE / "overrides.json").read_text()
except FileNotFoundError:
    OVERRIDES = "{}"

def temporary(folder):
    (folder / "made.bin").touch()
    for path in folder.iterdir():
        path.read_bytes()

def answer():
    thread = threading.Thread(target=lambda: (HERE / "threaded.bin").read_bytes())
    thread.start()
    thread.join()
    (HERE / "written.txt").write_text("")
    (HERE / "written.txt").read_text()
    with tempfile.NamedTemporaryFile() as made:
        Path(made.name).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        temporary(Path(folder))
    platform.processor()  # Python's own processes read nothing of the suite's
    importlib.metadata.version("numpy")
    sqlite3.connect(HERE / "base.db").execute("select 1")
    sqlite3.connect(HERE / "made.db").execute("create table made (x)")
    (HERE / "made.db").unlink()
    return importlib.import_module("late"), open(HERE / "data" / "weights.bin", "rb").read()
"""
FILES = {
    "pyproject.toml": "",
    ".git/config": "",
    "problem.py": PROBLEM,
    "peers.py": "import peers_helper, shared",
    "peers_helper.py": "",
    "process.py": "import subprocess; subprocess.run(['true'])",
    "unread.py": "",
    "late.py": "",
    "helpers/__init__.py": "",
    "helpers/core.py": "from . import relative",
    "helpers/relative.py": "",
    "package/__init__.py": "",
    "package/part.py": "",
    "lib/elsewhere.py": "",
    "data/weights.bin": "1",
    "threaded.bin": "1",
    "base.db": "",
    "../common/shared.py": "from pathlib import Path; (Path(__file__).parent / 'data.bin').read_bytes()",
    "../common/data.bin": "1",
    "../site-packages/installed.py": "",
    "tables/80.json": "",
}
UNREAD = ("pyproject.toml", ".git/config", "problem.py", "peers.py", "peers_helper.py", "process.py", "unread.py",
          "../site-packages/installed.py", "tables/80.json")  # fmt: skip
READ = [n for n in FILES if n not in UNREAD]
#: What was found to be missing, and a folder whose names were read.
LOOKED_FOR = ("overrides.json", "tables")
#: As the child of check does, with Python's own cache of compiled files the second time.
CHILD = """
import json, sys
from flashcore.runner import opened_files, problem_file as p
opened_files.watch()
module = p.load_file(sys.argv[1] + "/problem.py")
for name in ("peers.py", "process.py"):
    p.load_file(sys.argv[1] + "/" + name)
module.answer()
print(json.dumps(opened_files.reads(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reads]:
    """A suite's folder, and what its problem read."""
    root = tmp_path_factory.mktemp("reads").resolve() / "suite"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    run = [subprocess.run([sys.executable, "-c", CHILD, str(root)], capture_output=True, text=True) for _ in range(2)]
    assert not run[1].returncode, run[1].stderr
    assert run[0].stdout == run[1].stdout, "compiled files are not read instead"
    return root, json.loads(run[1].stdout)


def measured(reads: Reads) -> Record:
    """A run whose problem read these files."""
    made = factory.suite()
    made = replace(made, problems={n: replace(p, file="problem.py") for n, p in made.problems.items()})
    keys = {Case(v.name, s.name): CaseKey("c", "c", "13", host="h", settings="s") for v, s in factory.cases(made)}
    return factory.record(suite=made, keys=keys, reads=reads)


def test_all_that_was_imported_or_opened_is_recorded(suite: tuple[Path, Reads]) -> None:
    _, reads = suite
    assert sorted(reads["problem.py"]) == sorted((*READ, *LOOKED_FOR))
    started_by_any = {"threaded.bin"}
    imported = {"peers_helper.py", "../common/shared.py", "../common/data.bin"}  # the last two by the problem, before
    assert set(reads["peers.py"]) - started_by_any == imported


@pytest.mark.parametrize("file", READ)
def test_a_change_of_what_was_read_is_stale(suite: tuple[Path, Reads], file: str, tmp_path: Path) -> None:
    root, reads = suite
    store.write(measured(reads), tmp_path)
    run = store.read(tmp_path)
    here = replace(run.suite, root=str(root))
    assert {*freshness.reasons(run, run.keys, here).values()} == {None}
    text = (root / file).read_text()
    try:
        (root / file).write_text(f"{text}\n")
        assert {*freshness.reasons(run, run.keys, here).values()} == {FILES_CHANGED((file,))}
        assert not freshness.join(run, run.keys, set(), here).facts
        (root / file).unlink()
        assert {*freshness.reasons(run, run.keys, here).values()} == {FILES_CHANGED((file,))}
    finally:
        (root / file).write_text(text)


@pytest.mark.parametrize("file", ["overrides.json", "tables/90.json"])
def test_a_new_file_that_the_code_would_have_found_is_stale(suite: tuple[Path, Reads], file: str) -> None:
    root, reads = suite
    run = measured(reads)
    here = replace(run.suite, root=str(root))
    (root / file).write_text("{}")
    changed = {*freshness.reasons(run, run.keys, here).values()}
    (root / file).unlink()
    assert changed == {FILES_CHANGED((file.partition("/")[0],))}
    assert {*freshness.reasons(run, run.keys, here).values()} == {None}


def test_what_a_process_reads_that_the_code_starts_cannot_be_told(suite: tuple[Path, Reads]) -> None:
    root, reads = suite
    assert "" in reads["process.py"].values()
    assert freshness.changed_reads(measured(reads), str(root)).keys() == {"process.py"}


def test_a_suite_reached_by_a_link_reads_the_files_around_its_folder(suite: tuple[Path, Reads], tmp_path: Path) -> None:
    root, reads = suite
    (tmp_path / "link").symlink_to(root)
    assert freshness.changed_reads(measured(reads), str(tmp_path / "link")).keys() == {"process.py"}


def test_what_only_references_read_leaves_the_others_fresh(suite: tuple[Path, Reads]) -> None:
    root, reads = suite
    run = measured(reads)
    here = replace(run.suite, root=str(root))
    (root / "peers_helper.py").write_text("# edited\n")
    stale = {case for case, reason in freshness.reasons(run, run.keys, here).items() if reason}
    (root / "peers_helper.py").write_text("")
    assert stale == {case for case in run.keys if case.variant == "cudnn"}


def test_a_file_that_changed_between_two_checks_is_never_fresh() -> None:
    both = freshness.merged([{"problem.py": {"a": "1", "b": "2"}}, {"problem.py": {"a": "3"}}])
    assert both == {"problem.py": {"a": "", "b": "2"}}
    assert "problem.py" in freshness.changed_reads(measured(both), "/nowhere")


def test_seeds_repeats_and_the_mode_that_ranks_are_part_of_the_key() -> None:
    made = factory.suite()
    pairs = [(made.variants["fast"], made.shapes["mission"])]
    built = [factory.artifact("fast", "sm_90a", host="h")]

    def key(suite: object = made, **changes: object) -> CaseKey:
        shape = replace(made.shapes["mission"], **changes)  # type: ignore[arg-type]
        keys = freshness.case_keys(suite, [(pairs[0][0], shape)], built, [], "sm_90a", "13")  # type: ignore[arg-type]
        return keys[Case("fast", "mission")]

    seeded = replace(made, problems={n: replace(p, seeds=(7, 8)) for n, p in made.problems.items()})
    for other in (key(repeats=500), key(rank_by="back_to_back"), key(seeded)):
        assert freshness.freshness(other, key()) == SETTINGS_CHANGED()
        assert freshness.freshness(other, replace(key(), settings="")) is None, "of a run before it was recorded"
    assert freshness.freshness(key(), key()) is None


def test_a_package_that_was_installed_into_a_folder_of_its_own_is_no_input(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for package in ("installed_there", "mine"):
        (target / package).mkdir(parents=True)
        (target / package / "__init__.py").write_text("")
    (target / "installed_there-1.dist-info").mkdir()
    (target / "installed_there-1.dist-info" / "RECORD").write_text("installed_there/__init__.py,,\n")
    (tmp_path / "reader.py").write_text("import installed_there, mine\n")
    code = (
        "import json, sys; from flashcore.runner import opened_files as o; root = sys.argv[1]; o.watch(); "
        "sys.path.insert(0, root); o.track(f'{root}/reader.py'); import reader; print(json.dumps(o.reads(root)))"
    )
    environment = os.environ | {"PYTHONPATH": f"{target}:{ROOT / 'harness'}"}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=environment, capture_output=True, text=True, check=True
    )
    read = json.loads(done.stdout)["reader.py"]
    assert "target/mine/__init__.py" in read, "beside a package, but of the user"
    assert not any("installed_there/" in file for file in read)


def test_of_installed_modules_those_with_kernels_count_where_kernels_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "language").mkdir()
    (tmp_path / "language" / "__init__.py").write_text("class Kernel: pass\n")
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "with_kernel.py").write_text("import language; kernel = language.Kernel()\n")
    (packages / "without.py").write_text("number = 1\n")
    (packages / "earlier.py").write_text("import language; kernel = language.Kernel()\n")
    (tmp_path / "launcher.py").write_text("import earlier, with_kernel, without\n")
    code = (
        "import json, sys; from flashcore.runner import opened_files as o; import earlier, language; "
        "root = sys.argv[1]; o.watch('', (language.Kernel,)); sys.path.insert(0, root); import launcher;"
        "print(json.dumps(o.dependencies(f'{root}/launcher.py', root)))"
    )
    environment = os.environ | {"PYTHONPATH": f"{packages}:{tmp_path}:{ROOT / 'harness'}"}
    run = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    read = json.loads(done.stdout)
    assert read.keys() == {"site-packages/with_kernel.py"}
    assert read["site-packages/with_kernel.py"] == content_hash(str(packages / "with_kernel.py"))
