"""What each kernel language that is traced has to pass: a suite in it, compiled, and the tests of that.

A test module of a language imports the tests, and has a fixture ``compiled`` of its own.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from flashcore.build import static_facts
from flashcore.errors import CapabilityError, Exit
from flashcore.features.languages.traced import Package, Traced
from flashcore.gate import baseline, judge
from flashcore.model import plugin
from flashcore.model.causes import CompileFailed
from flashcore.model.record import Artifact, Facts, Record
from flashcore.model.suite import Suite
from flashcore.pipeline import plugins
from flashcore.suites.load import load
from tests import factory

ARCH = "sm_90a"
#: Language → the module that it needs, and a kernel whose registers, or the grid of whose launch, are too few or large.
LANGUAGES = {
    "gluon": ("triton.experimental.gluon", """from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def rows_kernel(x, out, columns, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    offsets = gl.program_id(0) * columns + gl.arange(0, BLOCK, layout=layout)
    values = gl.load(x + offsets)
    gl.store(out + offsets, values / gl.sum(values * values, 0))


def rows(x, out, CAP, GRID):
    rows_kernel[(x.shape[0], GRID)](x, out, x.shape[1], BLOCK=2048, num_warps=1, maxnreg=CAP)
"""),
}  # fmt: skip
HARMLESS = {"text": ("def rows_kernel", "# A block for each row.\n{}def rows_kernel"), "names": ("values", "loaded")}
MANIFEST = """
name = "planted"
title = "Planted"
{language} = "{release}"
archs = ["sm_90a"]
baseline = "sound"
[problem.rows]
file = "rows.py"
schema = "(Tensor x, Tensor(a!) out) -> ()"
dims = {{ x = ["R", "C"], out = ["R", "C"] }}
dtypes = {{ "*" = "float32" }}
[shape.rows]
params = {{ R = 64, C = 2048 }}
[[budget]]
name = "spills"
fact = "sass_stl"
max = 0
source = "test"
"""
VARIANT = """
[variant.{name}]
technique = "{name}"
callable = "{name}.py:rows"
cubins = "{language}"
config = {{ CAP = {cap}, GRID = {grid} }}
roof = "fp32"
tolerance = "fp32"
tolerance_reason = "fp32"
"""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Every variant of a suite in one language, compiled."""

    language: Traced
    suite: Suite
    build: Path
    artifacts: dict[str, Artifact]


def edited(source: str, old: str, new: str) -> str:
    line = next(line for line in source.splitlines() if old in line)
    return source.replace(old, new.format(" " * (len(line) - len(line.lstrip()))))


def written(folder: Path, name: str, source: str, language: Traced) -> Suite:
    folder.mkdir(parents=True)
    (folder / "rows.py").write_text("TOLERANCES = {'fp32': ''}\n", encoding="utf-8")
    texts = {"sound": source, "spilling": source, "impossible": source, "wrong": source.replace("/ ", "/ x.nonsense ")}
    texts |= {edit: edited(source, *change) for edit, change in HARMLESS.items()}
    release = ".".join((language.version or "").split(".")[:2])
    manifest = MANIFEST.format(language=name, release=release)
    for variant, text in texts.items():
        (folder / f"{variant}.py").write_text(text, encoding="utf-8")
        cap, grid = 24 if variant == "spilling" else 240, 70_000 if variant == "impossible" else 1
        manifest += VARIANT.format(name=variant, language=name, cap=cap, grid=grid)
    (folder / "suite.toml").write_text(manifest, encoding="utf-8")
    return load(folder)


def compiled_in(name: str, module: str, source: str, folder: Path) -> Compiled:
    """A suite of kernels of the language, compiled; skips the test where the language's module is not installed."""
    try:
        missing = importlib.util.find_spec(module) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        pytest.skip(f"package: needs {module}")
    plugins.load()
    language = plugin.find("languages", name)
    suite = written(folder / "suite", name, source, language)
    made = language.build(suite, folder / "build", (ARCH,), suite.variants.values())
    return Compiled(language, suite, folder / "build", {a.variant: a for a in made})


def record(compiled: Compiled, name: str, called: str = "sound") -> Record:
    """The record of one variant alone, under another's name."""
    artifact = replace(compiled.artifacts[name], variant=called)
    variant = replace(compiled.suite.variants[name], name=called)
    suite = replace(compiled.suite, variants={called: variant})
    facts = static_facts.facts(artifact, Path(suite.root))
    plans = tuple(compiled.language.plans(artifact, suite.shapes.values()))
    facts += list(static_facts.plan_facts(artifact, plans, facts, None))
    made = factory.bare_record(suite=suite)
    machine = replace(made.environment, nvcc=None, libraries={compiled.language.name: compiled.language.version or ""})
    made = replace(made, environment=machine, artifacts=(artifact,), plans=plans)
    return replace(made, facts=Facts(facts), keys={}, stale={})


def judged(compiled: Compiled, name: str) -> judge.Judgement:
    saved = baseline.save(record(compiled, "sound"), None).baseline
    return judge.judge(record(compiled, name), today=date(2026, 6, 1), baseline=saved)


def test_the_sound_kernel_passes_with_its_launch(compiled: Compiled) -> None:
    assert judged(compiled, "sound").exit_code is Exit.OK
    (plan,) = record(compiled, "sound").plans
    (launch,) = plan.launches
    assert launch.grid == (64, 1, 1) and launch.block[0] % 32 == 0 and "rows_kernel" in launch.kernel


def test_a_planted_spill_fails_the_gate_and_names_the_line(compiled: Compiled) -> None:
    verdict = judged(compiled, "spilling")
    assert verdict.exit_code is Exit.FAILED
    assert {"spills", "baseline_sass_stl"} & {v.budget for v in verdict.failed}
    facts = record(compiled, "spilling").facts
    (stored,) = facts.named("spill_store_bytes")
    assert (stored.number or 0) > 0
    sites = [str(fact.value) for fact in facts.named("local_memory_site")]
    if compiled.language.name == "cutile":  # its line table has no line for the instructions that spill
        assert sites == []
    else:
        (site,) = sites
        assert site.startswith("spilling.py:")


def test_an_impossible_launch_fails_the_gate(compiled: Compiled) -> None:
    verdict = judged(compiled, "impossible")
    assert verdict.exit_code is Exit.FAILED
    assert any("grid.y is 70,000" in str(v) for v in verdict.failed)


@pytest.mark.parametrize("edit", HARMLESS)
def test_an_edit_that_changes_no_machine_code_passes(compiled: Compiled, edit: str) -> None:
    verdict = judged(compiled, edit)
    assert verdict.exit_code is Exit.OK, verdict.failed
    sound, changed = compiled.artifacts["sound"], compiled.artifacts[edit]
    assert changed.calls == sound.calls  # what was measured stays fresh
    assert record(compiled, edit).artifacts[0].code == record(compiled, "sound").artifacts[0].code


def test_a_mistake_in_a_kernel_names_its_line(compiled: Compiled) -> None:
    artifact, text = compiled.artifacts["wrong"], (Path(compiled.suite.root) / "wrong.py").read_text()
    (line,) = (i for i, line in enumerate(text.splitlines(), 1) if "nonsense" in line)
    assert artifact.status == "failed" and isinstance(artifact.cause, CompileFailed)
    assert (artifact.cause.file, artifact.cause.line) == ("wrong.py", line)


def test_a_build_of_another_machine_needs_no_compiler(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Traced, "version", None)
    sound = compiled.suite.variants["sound"]
    (artifact,) = compiled.language.build(compiled.suite, compiled.build, (ARCH,), [sound])
    assert artifact == replace(compiled.artifacts["sound"], seconds=None, cached=True)
    changed = replace(sound, config={**sound.config, "CAP": 100})
    with pytest.raises(CapabilityError, match="on this machine, nor a build of sound"):
        compiled.language.build(compiled.suite, compiled.build, (ARCH,), [changed])
    changes_code = Traced("absent", Package("no-such-distribution"), "no.such.module", variables="CHANGES_CODE_")
    monkeypatch.setattr(changes_code, "name", compiled.language.name)
    monkeypatch.setenv("CHANGES_CODE_MUCH", "1")
    with pytest.raises(CapabilityError, match="no no-such-distribution on this machine"):
        changes_code.build(compiled.suite, compiled.build, (ARCH,), [sound])
