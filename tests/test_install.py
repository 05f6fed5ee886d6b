"""`pip install` adds one package and its command, which the user's folder cannot change."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from flashcore.machine import toolchain
from tests.conftest import ROOT
from tests.support.late import needs

pytestmark = [needs("setuptools"), pytest.mark.slow]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
CACHES = shutil.ignore_patterns("__pycache__", "*.egg-info")
ARCHS = re.compile(r"^archs = .*$", re.MULTILINE)
PLANS = "plans.json"
THEIRS = "raise RuntimeError('a module of the user was imported')\n"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools leaves its own files in the tree."""
    tree = tmp_path_factory.mktemp("wheel") / "tree"
    for folder in ("harness", "kernels/roofs"):
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=CACHES)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    made = tree.parent / "made"
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(made), str(tree)], check=True)
    (result,) = made.iterdir()
    return result


@pytest.fixture(scope="session")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed into an environment of its own; what it needs is borrowed from this one."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    subprocess.run([*PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    assert {p.name.partition("-")[0] for p in site.iterdir()} == {"flashcore", "flashcore_harness"}
    # The borrowed folder's own .pth files, an editable flashcore's among them, are not read.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home / "bin" / "flashcore"


def run(
    command: Path, *words: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the installed command, or the Python beside it; PYTHONPATH is set only by ``env``."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | dict(env or {})
    return subprocess.run(
        [str(command), *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entries = next(n for n in names if n.endswith("/entry_points.txt"))
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(entries).decode())
    package_files = {n for n in names if not n.startswith("flashcore_harness-")}
    roots = {"flashcore": ROOT / "harness" / "flashcore", "flashcore/roofs_suite": ROOT / "kernels" / "roofs"}
    assert package_files == {
        f"{prefix}/{path.relative_to(root).as_posix()}"
        for prefix, root in roots.items()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert {s: dict(scripts[s]) for s in scripts.sections()} == {
        "console_scripts": {"flashcore": "flashcore.__main__:main"}
    }


def test_the_roofs_suite_is_installed_with_it(command: Path, tmp_path: Path) -> None:
    code = "from flashcore.suites.find import roofs_suite; print(roofs_suite())"
    folder = run(command.parent / "python", "-P", "-c", code, cwd=tmp_path).stdout.strip()
    assert Path(folder) == next(command.parents[1].glob("lib/python*/site-packages")) / "flashcore" / "roofs_suite"
    listed = run(command, "list", "--suite", folder, cwd=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.startswith("roofs: ")


def test_recorded_roofs_are_read_from_anywhere(command: Path, tmp_path: Path) -> None:
    """The recorded roofs are read with the installed suite's problems, though the run names a folder not here."""
    code = (
        "from flashcore.pipeline.measure_roofs import measure_roofs; from flashcore.model.settings import Settings\n"
        f"record, found = measure_roofs(Settings(suite='', profiles={str(ROOT / 'profiles')!r}), print, None)\n"
        "print(record.suite.root, len(found) > 30)"
    )
    start = "import flashcore.machine.gpu as g\ng.Gpu.find = staticmethod(lambda: None)\n"
    done = run(command.parent / "python", "-P", "-c", start + code, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("kernels/roofs True\n", 0), done.stderr


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Somebody's repository: kernels, and modules whose names are also ours or the standard library's."""
    root = tmp_path / "theirs"
    suite = Path(shutil.copytree(ROOT / "examples" / "row_softmax", root / "kernels" / "softmax", ignore=CACHES))
    manifest = (suite / "suite.toml").read_text(encoding="utf-8")
    (suite / "suite.toml").write_text(ARCHS.sub('archs = ["sm_80"]', manifest), encoding="utf-8")  # one compilation
    for name in ("harness/__init__.py", "flashcore/cli.py", "json.py", "torch.py", "argparse.py"):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(THEIRS, encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder that the runs share: what is compiled does not depend on where; plans are asked for anew."""
    return tmp_path_factory.mktemp("built")


@pytest.mark.parametrize("given", [None, ".", ":"])
def test_a_users_modules_do_not_change_the_verdict(
    command: Path, compiler: toolchain.Nvcc, theirs: Path, built: Path, given: str | None
) -> None:
    if given is None:  # not even a package of our name
        (theirs / "flashcore" / "__init__.py").write_text(THEIRS, encoding="utf-8")
    env = {} if given is None else {"PYTHONPATH": given}
    for answers in built.rglob(PLANS):  # so that a child is asked again
        answers.unlink()
    done = run(command, "gate", "--variant", "warp", "--build-dir", str(built), cwd=theirs, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gate passed" in done.stdout and "user was imported" not in done.stdout + done.stderr
    assert len([*built.rglob(PLANS)]) == 1


@pytest.mark.parametrize("given", ["", "./kernels:.", "kernels/.."])
def test_other_ways_to_name_the_current_folder(command: Path, theirs: Path, given: str) -> None:
    done = run(command, "list", cwd=theirs, env={"PYTHONPATH": given})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("row_softmax: ")


def test_an_absolute_entry_is_the_users_wish(command: Path, theirs: Path) -> None:
    done = run(command, "--help", cwd=theirs, env={"PYTHONPATH": str(theirs)})
    assert "a module of the user was imported" in done.stderr


def test_python_m_does_not_take_them_either(command: Path, theirs: Path) -> None:
    shutil.rmtree(theirs / "flashcore")
    for name in ("torch.py", "harness/__init__.py"):
        (theirs / name).unlink()
    done = run(command.parent / "python", "-m", "flashcore", "list", cwd=theirs)
    assert done.returncode == 0 and done.stdout.startswith("row_softmax: "), done.stderr
