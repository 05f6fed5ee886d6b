"""Heavy packages are imported only on use. import-linter checks the layers (``make lint``)."""

from __future__ import annotations

import ast
import graphlib
import re

from tests.conftest import ROOT
from tests.support.imports import loaded

MODULES = sorted(
    ".".join(p.relative_to(ROOT / "harness").with_suffix("").parts).removesuffix(".__init__")
    for p in (ROOT / "harness" / "flashcore").rglob("*.py")
    if p.name != "__main__.py"
)


def test_help_imports_nothing_heavy() -> None:
    code = "from flashcore.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded(code) == set()


def test_an_option_that_is_a_setting_loads_no_build() -> None:
    """Reading, importing and drawing records take their folders' defaults from the settings of a run."""
    report = "\nimport sys; assert not [m for m in sys.modules if m.startswith('flashcore.build.')]"
    assert not loaded("from flashcore.cli import options; options.default('profiles')" + report)


def test_no_module_imports_anything_heavy_by_itself() -> None:
    outside_report = [m for m in MODULES if not m.startswith("flashcore.report")]
    assert len(outside_report) > 60
    assert loaded("\n".join(f"import {m}" for m in outside_report)) <= {"pydantic"}
    assert loaded("import flashcore.report") <= {"pydantic", "jinja2"}


def test_no_modules_import_each_other_in_a_circle_not_for_types_and_not_within_functions_either() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        file = ROOT / "harness" / module.replace(".", "/")
        file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                within = (f"{node.module}.{name.name}" for name in node.names)
                graph.setdefault(module, set()).update(w if w in MODULES else node.module for w in within)
    assert sum(map(len, graph.values())) > 1000
    graphlib.TopologicalSorter({m: names - {m} for m, names in graph.items()}).prepare()


def test_no_module_called_utils() -> None:
    assert not [p for p in ROOT.glob("*/**/utils.py") if not any(part.startswith(".venv") for part in p.parts)]


def test_the_core_names_no_feature_and_no_extension() -> None:
    """Not even in a string or a comment: commands, pages and others are found by what features and extensions add."""
    package = ROOT / "harness" / "flashcore"
    extensions = [p.name for p in ROOT.glob("extensions/*/src/flashcore_*") if not p.name.endswith(".egg-info")]
    assert len(extensions) == len([*ROOT.glob("extensions/*/pyproject.toml")]) > 0
    named = re.compile(rf"features\.[a-z]+|\b({'|'.join(extensions)})\b")
    core = [p for p in package.rglob("*.py") if "features" not in p.relative_to(package).parts]
    found = {str(p.relative_to(package)): m[0] for p in core if (m := named.search(p.read_text(encoding="utf-8")))}
    assert not found
