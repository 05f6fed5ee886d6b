"""Children get folders that the user named in full, and this package's own."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from flashcore.machine import python_process
from tests.conftest import ROOT

HARNESS = str(ROOT / "harness")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, HARNESS),
        ("", HARNESS),
        (":", HARNESS),
        (".:/carried::lib", f"{HARNESS}:/carried"),
        (f"/a:{HARNESS}:/b", f"{HARNESS}:/a:/b"),
    ],
)
def test_only_absolute_folders_are_kept(given: str | None, expected: str) -> None:
    environment = {"HOME": "/h"} if given is None else {"HOME": "/h", "PYTHONPATH": given}
    assert python_process.environment(environment) == {"HOME": "/h", "PYTHONPATH": expected}


def test_site_packages_do_not_come_before_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "getsitepackages", lambda: [HARNESS])
    assert python_process.environment({"PYTHONPATH": ":"}) == {}
    assert python_process.environment({"PYTHONPATH": "/carried"}) == {"PYTHONPATH": "/carried"}


def test_a_child_imports_this_package_and_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json.py", "flashcore.py"):
        (tmp_path / name).write_text("raise RuntimeError('theirs')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    command = python_process.command("flashcore.cli.main", "unused")
    assert command == [sys.executable, "-P", "-m", "flashcore.cli.main", "unused"]
    done = subprocess.run(
        [*command[:2], "-c", "import json, flashcore.cli.main as m; print(m.__file__)"],
        cwd=tmp_path, env=python_process.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"{HARNESS}/flashcore/cli/main.py\n", done.stderr
