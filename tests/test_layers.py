"""Imports run downward only, and what is heavy is imported only where it is used."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: Lowest first. A module imports modules of lower layers; of its own layer only where `PEERS` allows it.
LAYERS: dict[int, str] = {
    1: "suite_model model errors",
    2: "binding compare cubin devices journal gate_policy manifest metrics ncu ncu_csv ncu_facts ninja_graph "
    "nvml nvperf occupancy operators phases planner remembered rounds samples spills store suite suite_builder "
    "timing toolchain worker",
    3: "bench build check join introspect launch_plan profile sanitize static target turns",
    4: "advice against baseline diff gate_formats gate_table guardrails ladder places "
    "predictions promises regressions roofline roofs",
    5: "report",
    6: "against_command against_table doctor gate_command introspect_command line measure new_suite "
    "compiling pairing pipeline recording revisions tables",
    7: "cli commands __main__",
}
#: In these layers modules may import each other, in no circle. The stages (3) may not.
PEERS = {1, 2, 4, 5, 6, 7}
#: What analysis, report and gate may know besides each other: no stage, no process, no machine.
PURE = {"model", "suite_model", "errors", "gate_policy", "metrics", "devices", "suite", "store", "occupancy", "samples"}

LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names.split()}
FILES = sorted(p for p in (ROOT / "harness").rglob("*.py"))
HEAVY = ("torch", "plotly", "jinja2", "numpy", "nvtx")


def module_of(path: Path) -> str:
    """The part of the package that a file belongs to: ``report`` for all of ``report/``."""
    first = path.relative_to(ROOT / "harness").parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The parts of the package that a file imports, also inside functions and for type checking."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{a.name}" for a in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "harness" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1]


def test_every_module_has_a_layer() -> None:
    assert {module_of(p) for p in FILES} - {"__init__"} == set(LAYER_OF)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downward(path: Path) -> None:
    module = module_of(path)
    if module == "__init__":
        assert not list(imports(path))
        return
    layer = LAYER_OF[module]
    for other in set(imports(path)) - {module}:
        assert other in LAYER_OF, f"{path} imports harness.{other}, which has no layer"
        lower = LAYER_OF[other] < layer or (LAYER_OF[other] == layer and layer in PEERS)
        assert lower, f"{module} (layer {layer}) imports {other} (layer {LAYER_OF[other]})"


def test_no_imports_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in FILES:
        graph.setdefault(module_of(path), set()).update(set(imports(path)) - {module_of(path)})
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " → ".join((*trail, module))
        if module not in done:
            for other in sorted(graph.get(module, ())):
                visit(other, (*trail, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


@pytest.mark.parametrize("module", [m for m, layer in LAYER_OF.items() if layer in (4, 5)])
def test_right_of_the_record_nothing_knows_the_machine(module: str) -> None:
    allowed = PURE | {m for m, layer in LAYER_OF.items() if layer in (4, 5)}
    found = {other for path in FILES if module_of(path) == module for other in imports(path)}
    assert found <= allowed


def loaded(code: str) -> set[str]:
    """The heavy packages that a fresh process has imported after running the code."""
    report = f"\nimport json, sys; print(json.dumps([m for m in {(*HEAVY, 'pydantic')} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code + report], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_nothing_heavy() -> None:
    code = "from harness.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded(code) == set()


def test_no_module_imports_anything_heavy_by_itself() -> None:
    names = sorted(n for n, layer in LAYER_OF.items() if layer != 5 and n != "__main__")
    assert loaded("\n".join(f"import harness.{n}" for n in names)) <= {"pydantic"}
    assert loaded("import harness.report") <= {"pydantic", "jinja2"}


def test_no_module_called_utils() -> None:
    assert not [p for p in ROOT.glob("*/**/utils.py") if ".venv" not in p.parts]
