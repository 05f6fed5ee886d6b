"""`tests/` mirrors what it tests: a test is found by its module's name, and no folder of tests is passed over."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import ROOT, TESTS

PACKAGE = ROOT / "harness" / "flashcore"
FILES = [p.relative_to(TESTS) for p in TESTS.rglob("test_*.py") if p.parent != TESTS]
#: Folders of tests whose subject lies beside the package: what is measured, the suites' kernels, the maintainers'
#: tools.
BESIDE = ("benchmarks", "fuzz", "kernels", "tools")


@pytest.mark.parametrize("test", [f for f in FILES if f.parts[0] not in BESIDE], ids=str)
def test_a_test_has_its_modules_name_and_place(test: Path) -> None:
    name = test.stem.removeprefix("test_")
    place = PACKAGE / test.parent
    assert place.name == name or (place / name).is_dir() or (place / f"{name}.py").is_file()


def test_every_folder_of_tests_is_collected(pytestconfig: pytest.Config) -> None:
    folders = {part for test in FILES for part in test.parent.parts}
    passed_over = pytestconfig.getini("norecursedirs")
    assert "build" in folders and not [f for f in folders if any(fnmatch(f, p) for p in passed_over)]
