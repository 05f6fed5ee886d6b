"""`tests/` mirrors what it tests: a test is found by its module's name, and no folder of tests is passed over."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import ROOT, TESTS

PACKAGE = ROOT / "harness" / "flashcore"
#: Folders of tests whose subject lies beside the package.
BESIDE = ("benchmarks", "kernels")
FILES = [p.relative_to(TESTS) for p in TESTS.rglob("test_*.py") if p.parent != TESTS]


@pytest.mark.parametrize("test", FILES, ids=str)
def test_a_test_has_its_modules_name_and_place(test: Path) -> None:
    home = ROOT if test.parts[0] in BESIDE else PACKAGE
    name = test.stem.removeprefix("test_")
    if home == ROOT:
        assert list((ROOT / test.parts[0]).rglob(f"{name}.py"))
        return
    about_the_package = test.parent.name == name
    assert about_the_package or (home / test.parent / f"{name}.py").is_file() or (home / test.parent / name).is_dir()


def test_every_folder_of_tests_is_collected(pytestconfig: pytest.Config) -> None:
    folders = {part for test in FILES for part in test.parent.parts}
    passed_over = pytestconfig.getini("norecursedirs")
    assert "build" in folders and not [f for f in folders if any(fnmatch(f, p) for p in passed_over)]
