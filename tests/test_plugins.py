"""The plugins of ``docs/how-to/extend.md``, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flashcore.measure.machine import toolchain
from flashcore.pipeline import plugins
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT, TOY


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy suite and a recorded run."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(TOY, folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    record = factory.record(factory.suite([factory.variant("slow"), factory.variant("fast")], [factory.shape()]))
    (folder / "profiles" / record.id).mkdir(parents=True)
    store.write(record, folder / "profiles" / record.id)
    return folder


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
