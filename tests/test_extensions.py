"""Extensions: those of ``docs/reference/extend.md``, as they stand there, and ones that cannot be loaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from flashcore.errors import Exit
from flashcore.machine import toolchain
from flashcore.pipeline import plugins
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT, TOY
from tools import public_modules


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy suite and a recorded run."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(TOY, folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    record = factory.record(factory.suite([factory.variant("slow"), factory.variant("fast")], [factory.shape()]))
    (folder / "profiles" / record.id).mkdir(parents=True)
    store.write(record, folder / "profiles" / record.id)
    return folder


def installed(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """An environment in which these modules of the folder are extensions."""
    metadata = folder / "examples-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: examples\nVersion: 1.0\n")
    entry_points = "".join(f"{name} = {name}:PLUGIN\n" for name in names)
    (metadata / "entry_points.txt").write_text(f"[flashcore.plugins]\n{entry_points}")
    path = f"{folder}{os.pathsep}{ROOT / 'harness'}"
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def flashcore(arguments: str, cwd: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code, and both outputs."""
    command = [sys.executable, "-m", "flashcore", *arguments.split()]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


START = "from flashcore.model.plugin import Plugin\n"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import no_such_package", "found ModuleNotFoundError: No module named 'no_such_package'"),
        ("1 / 0", "found ZeroDivisionError"),
        ("", "found AttributeError"),
        ("PLUGIN = 3", "expected a Plugin at broken:PLUGIN, found int"),
        (START + "PLUGIN = Plugin('broken', commands={'gate': 'broken'})", "found gate, which exists"),
        (START + "PLUGIN = Plugin('broken', commands={'audit': 'broken'})", "found audit, which is taken"),
        (START + "PLUGIN = Plugin('broken', facts={'registers': 'broken:X'})", "found registers, which is taken"),
        (START + "PLUGIN = Plugin('broken', tables={'budget': 'broken:X'})", "found budget, which is taken"),
        (START + "PLUGIN = Plugin('broken', verdicts={'budget': 'broken:X'})", "found budget, which is taken"),
    ],
)
def test_an_extension_that_cannot_be_loaded_ends_every_command(tmp_path: Path, source: str, found: str) -> None:
    (tmp_path / "broken.py").write_text(source)
    environment = installed(tmp_path, ["broken"])
    code, message = flashcore("list --schema", tmp_path, environment)
    assert code == Exit.INCAPABLE and found in message and "broken" in message, message
    assert flashcore("list --schema", tmp_path, {**environment, plugins.VARIABLE: ""})[0] == Exit.OK


def test_only_chosen_extensions_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "fine.py").write_text(
        START + "PLUGIN = Plugin('fine', help={'fine': 'is fine'}, commands={'fine': 'x'})"
    )
    environment = installed(tmp_path, ["broken", "fine"])
    code, message = flashcore("more", tmp_path, {**environment, plugins.VARIABLE: "fine"})
    assert code == Exit.OK and "is fine" in message
    _, message = flashcore("doctor", tmp_path, {**environment, plugins.VARIABLE: "fine"})
    assert "extension fine: examples 1.0" in message
    code, message = flashcore("more", tmp_path, {**environment, plugins.VARIABLE: "fine,other"})
    assert code == Exit.USAGE and "found 'other'" in message
    assert {"broken", "fine"} <= set(re.split(r"\W+", message.partition("installed extensions (")[2].partition(")")[0]))


def test_a_suite_in_languages_of_an_extension_names_the_page_without_it(tmp_path: Path) -> None:
    suite = ROOT / "examples" / "languages"
    code, message = flashcore(f"gate --suite {suite}", tmp_path, {**os.environ, plugins.VARIABLE: ""})
    assert code == Exit.USAGE and "numba" in message and "docs/reference/extensions.md" in message, message


@pytest.mark.parametrize("command", ["unheard-of", "list --unheard-of", "list --suite suite"])
def test_what_nothing_provides_is_an_error_that_names_the_page(work: Path, tmp_path: Path, command: str) -> None:
    cwd = shutil.copytree(work, tmp_path / "work")
    with (cwd / "suite" / "suite.toml").open("a") as manifest:
        manifest.write("\n[unheard.of]\nx = 1\n")
    code, message = flashcore(command, cwd, os.environ)
    assert code == Exit.USAGE and "docs/reference/extensions.md" in message, message
    assert (ROOT / "docs" / "reference" / "extensions.md").exists()


def test_the_extensions_of_the_documentation_import_what_is_public() -> None:
    names = public_modules.named((ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "reference" / "extend.md").read_text(encoding="utf-8")
    imports = re.findall(r"(?m)^ *(?:from (flashcore[\w.]*) )?import ([\w, .]+)$", page)
    modules = {(module, name.strip()) for module, imported in imports for name in imported.split(",") if module}
    assert len(modules) > 10
    assert {
        f"{module}.{name}"
        for module, name in modules
        if not (public_modules.is_named(module, names) or public_modules.is_named(f"{module}.{name}", names))
    } == set()


@pytest.mark.slow
def test_the_extensions_of_the_documentation_work_as_shown(work: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "extend.md").read_text(encoding="utf-8")
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
    environment = installed(tmp_path, names)
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
