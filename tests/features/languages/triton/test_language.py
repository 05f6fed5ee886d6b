"""Triton kernels as variants, through the real compiler: a planted spill fails the gate on a machine without a GPU,
and what changes nothing of the machine code passes it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashcore.build import static_facts
from flashcore.errors import Exit
from flashcore.features.languages import compile_child, traced
from flashcore.features.languages.launches import StandIn, difference
from flashcore.features.languages.triton import language
from flashcore.features.languages.triton.language import LANGUAGE
from flashcore.gate import baseline, judge
from flashcore.machine.gpu import Gpu
from flashcore.model.case import Case
from flashcore.model.causes import CodeChanged, CompileFailed, Decided, Hang
from flashcore.model.record import Artifact, CodeSubject, Facts, Record, subject_of
from flashcore.model.settings import Settings
from flashcore.model.suite import Argument, Decision, Suite
from flashcore.pipeline.opening import open_context
from flashcore.records import freshness
from flashcore.stages.compiling import compile_all
from flashcore.suites.load import load
from tests import factory
from tests.conftest import ROOT, no_disassembler
from tests.support.late import needs
from tests.support.triton_suite import HARMLESS, SOURCE, VERSION, written

pytestmark = needs("triton")
PINNED = f"triton=={VERSION}" in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
ARCH = "sm_89"
TODAY = date(2026, 6, 1)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Every variant of the suite, compiled."""

    suite: Suite
    build: Path
    artifacts: dict[str, Artifact]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder = tmp_path_factory.mktemp("triton")
    suite = written(folder / "suite")
    made = LANGUAGE.build(suite, folder / "build", (ARCH,), suite.variants.values())
    return Compiled(suite, folder / "build", {a.variant: a for a in made})


def record(compiled: Compiled, name: str, called: str = "") -> Record:
    """The record of one variant alone, called otherwise if a name is given."""
    artifact = replace(compiled.artifacts[name], variant=called or name)
    variant = replace(compiled.suite.variants[name], name=called or name)
    suite = replace(compiled.suite, variants={variant.name: variant})
    result = static_facts.facts(artifact, Path(suite.root))
    plans = tuple(LANGUAGE.plans(artifact, suite.shapes.values()))
    result += list(static_facts.plan_facts(artifact, plans, result, None))
    made = factory.bare_record(suite=suite)
    machine = replace(made.environment, nvcc=None, libraries={"triton": VERSION})
    made = replace(made, environment=machine, artifacts=(artifact,), plans=plans)
    return replace(made, facts=Facts(result), keys={}, stale={})


def judged(results: Record, held_to: Record) -> judge.Judgement:
    return judge.judge(results, today=TODAY, baseline=baseline.save(held_to, None).baseline)


def test_the_sound_kernel_passes_and_its_facts_are_those_of_its_cubin(compiled: Compiled) -> None:
    result = record(compiled, "sound")
    assert judged(result, result).exit_code is Exit.OK
    (plan,) = result.plans
    assert [(x.kernel, x.grid, x.block) for x in plan.launches] == [("softmax_kernel", (64, 1, 1), (32, 1, 1))]
    kernel = CodeSubject("sound", ARCH, kernel="softmax_kernel")
    facts = {name: result.facts.number(name, kernel) for name in ("registers", "spill_store_bytes", "sass_ldg")}
    assert 40 <= (facts["registers"] or 0) <= 80
    assert facts["spill_store_bytes"] == 0
    assert facts["sass_ldg"] == 8  # 1,024 values of 32 lanes, four at once
    assert result.facts.number("theoretical_occupancy", subject_of("sound", "rows", kernel.kernel, arch=ARCH)) == 50


def test_registers_stack_and_barriers_are_what_ptxas_says(compiled: Compiled) -> None:
    """ptxas's own words are the oracle of what is read from the cubin; Triton's wheel has ptxas 12."""
    message = 0
    for artifact in compiled.artifacts.values():
        with no_disassembler():
            result = Facts(static_facts.facts(artifact, Path(compiled.suite.root)))
        for kernel, file in artifact.cubins.items():
            log = Path(file).with_suffix(".log").read_text()
            subject = CodeSubject(artifact.variant, ARCH, kernel=kernel)
            for name, words in (("registers", r"Used (\d+) registers"), ("stack_bytes", r"(\d+) bytes stack frame"),
                                ("barriers", r"used (\d+) barriers")):  # fmt: skip
                listed = re.search(words, log)
                assert result.number(name, subject) == int(listed[1] if listed else 0), (artifact.variant, kernel, name)
                message += listed is not None
    assert message > 10


def test_a_planted_spill_fails_the_gate_and_names_the_line(compiled: Compiled) -> None:
    result = record(compiled, "spilling", "sound")
    verdict = judged(result, record(compiled, "sound"))
    assert verdict.exit_code is Exit.FAILED
    failed = {v.budget for v in verdict.failed}
    assert {"spills", "baseline_spill_store_bytes"} <= failed
    site = result.facts.get("local_memory_site", CodeSubject("sound", ARCH, kernel="softmax_kernel"))
    assert site is not None and str(site.value).startswith("spilling.py:")


@pytest.mark.parametrize(
    ("decision", "places"),
    [
        (Decision(("ldg.128",), quote="values = tl.load"), {"spilling": (0, "values = tl.load")}),
        (Decision(("ldg.64", "stg.128"), ("local",), function="softmax_kernel"), {"sound": (0, "def softmax_kernel")}),
        (Decision((), ("ldg.128",), quote="tl.load"), {"text": (1, "values = tl.load")}),
        (Decision(("stg.128",), quote="tl.sum"), {"sound": (0, "tl.store"), "names": (None, "")}),  # T.sum
    ],
)
def test_decisions_are_judged_at_lines_of_python(
    decision: Decision, places: Mapping[str, tuple[int | None, str]], compiled: Compiled
) -> None:
    budget = replace(compiled.suite.budgets[0], fact="decision_of", decision=decision)
    suite = replace(compiled.suite, budgets=(budget,))
    for name, (value, text) in places.items():
        result = static_facts.facts(compiled.artifacts[name], Path(suite.root), suite)
        (fact,) = (fact for fact in result if fact.name == "decision_of")
        # Another Triton's line table may not tell, and then nothing passes or fails.
        assert fact.value in ((value,) if PINNED else (value, None)), fact.note
        if isinstance(fact.detail, Decided):
            assert text in (Path(suite.root) / fact.detail.file).read_text().splitlines()[fact.detail.line - 1]


def test_facts_of_another_triton_are_no_measure(compiled: Compiled) -> None:
    sound = record(compiled, "sound")
    spilling = record(compiled, "spilling", "sound")
    for version, words in (
        ("2.9.9", "the static budgets were set with"),
        (VERSION + "1", "was written with"),
    ):
        artifacts = tuple(replace(a, cxx=f"triton {version}") for a in spilling.artifacts)
        verdict = judged(replace(spilling, artifacts=artifacts), sound)
        assert verdict.exit_code is Exit.INCAPABLE and not verdict.failed
        assert len(verdict.trouble) == 1 and words in verdict.trouble[0] and version in verdict.trouble[0]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_no_machine_code_passes_the_gate(compiled: Compiled, name: str) -> None:
    sound, edited = record(compiled, "sound"), record(compiled, name, "sound")
    verdict = judged(edited, sound)
    assert verdict.exit_code is Exit.OK, verdict.failed
    assert edited.artifacts[0].calls == sound.artifacts[0].calls  # what was measured stays fresh


def test_each_configuration_of_a_tuned_kernel_has_its_facts(compiled: Compiled) -> None:
    artifact = compiled.artifacts["tuned"]
    shapes = compiled.suite.shapes.values()
    result = Facts(static_facts.facts(artifact, Path(compiled.suite.root)))
    spilled = {f.subject.kernel: f.number for f in result.named("spill_store_bytes")}
    assert [name for name, stores in spilled.items() if stores] == ["softmax_kernel<num_warps=1,maxnreg=24>"]
    assert len(spilled) == 3
    (possible,) = LANGUAGE.plans(artifact, shapes, possible=True)
    assert sorted(x.block[0] for x in possible.launches) == [32, 32, 128]
    assert LANGUAGE.plans(artifact, shapes) == []  # which of them is launched only a GPU says
    (call,) = LANGUAGE.calls(artifact, "rows")
    assert difference([call], [call[1]]) == ""
    assert "none of the 3" in difference([call], [{**call[1], "grid": [1, 1, 1]}])


def test_launches_are_held_to_code_grid_and_arguments(compiled: Compiled) -> None:
    ((call,),) = LANGUAGE.calls(compiled.artifacts["sound"], "rows")
    assert call["arguments"] == ["x", "out", "1024"]
    assert difference([[call]], [dict(call)]) == ""
    for key in call:
        assert key in difference([[call]], [{**call, key: "other"}])
    assert "1 launches were compiled, 2 ran" in difference([[call]], [call, call])


def test_a_call_is_compared_by_what_it_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = {"code": "c0de", "grid": [4, 1, 1], "arguments": ["x", "out"]}

    @contextlib.contextmanager
    def recorded(names: Mapping[int, str], *, launch: bool) -> Iterator[list[Any]]:
        assert names == {1: "x"} and launch
        yield launches

    launches: list[Any] = []
    monkeypatch.setattr(language, "recorded", recorded)
    assert LANGUAGE.run(lambda: launches.append(SimpleNamespace(identity=launch)), {1: "x"}, [[launch]]) == ""
    assert LANGUAGE.run(lambda: None, {1: "x"}, [[{**launch, "code": "0ther"}]]) == (
        "launch 0: code was 0ther when it was compiled, c0de when it ran"
    )


def test_a_second_build_starts_nothing(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LANGUAGE, "_make", None)
    again = LANGUAGE.build(compiled.suite, compiled.build, (ARCH,), compiled.suite.variants.values())
    assert all(a.cached for a in again) and len(again) == len(compiled.artifacts)
    assert {Path(a.log or "").parent for a in again} <= LANGUAGE.in_use(
        compiled.suite, compiled.build, compiled.suite.variants.values()
    )


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda s, root: (root / "sound.py").write_text(SOURCE.replace("tl.sum", "tl.max"), encoding="utf-8"), False),
        (lambda s, root: (root / "suite.toml").write_text(
            (root / "suite.toml").read_text().replace("C = 1024", "C = 512"), encoding="utf-8"), False),
        (lambda s, root: (root / "rows.py").write_text("TOLERANCES = {'fp32': 'x'}\n", encoding="utf-8"), True),
    ],
)  # fmt: skip
def test_what_is_compiled_anew(
    compiled: Compiled, tmp_path: Path, change: Callable[[Suite, Path], object], same: bool
) -> None:
    suite = written(tmp_path)
    change(suite, tmp_path)
    suite = load(tmp_path)
    unit = LANGUAGE._unit(suite, compiled.build / "planted", suite.variants["sound"], ARCH)
    assert traced._is_made(unit, suite) == same


def _edited(path: Path) -> None:
    path.write_text(re.sub('("shared": ?)', r"\g<1>1", path.read_text(encoding="utf-8")), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: _edited(folder / "traced.json"),
        lambda folder: (folder / "traced.json").chmod(0o666),
        lambda folder: (folder / "0.cubin").write_bytes((folder / "0.cubin").read_bytes() + b"edited"),
        lambda folder: (folder / "0.log").write_text("edited", encoding="utf-8"),
        lambda folder: (folder / "variant.sass").write_text("added", encoding="utf-8"),
        lambda folder: folder.rename(folder.with_name("other")).rename(folder),
    ],
    ids=["edited answer", "answer that others may write", "edited kernel", "edited log", "added listing", "none"],
)
def test_what_is_not_as_it_was_made_is_compiled_anew(
    compiled: Compiled, tmp_path: Path, change: Callable[[Path], object], request: pytest.FixtureRequest
) -> None:
    build = Path(shutil.copytree(compiled.build, tmp_path / "build"))
    unit = LANGUAGE._unit(compiled.suite, build / "planted", compiled.suite.variants["sound"], ARCH)
    assert traced._is_made(unit, compiled.suite)
    change(unit.folder)
    assert traced._is_made(unit, compiled.suite) == request.node.name.endswith("[none]")


def test_a_key_knows_the_compiler_the_code_and_the_arguments(compiled: Compiled) -> None:
    suite = compiled.suite
    cases = [(suite.variants[n], suite.shapes["rows"]) for n in ("sound", "text", "spilling")]
    keys = freshness.case_keys(suite, cases, list(compiled.artifacts.values()), [], ARCH, "13.0.88")
    sound, text, spilling = (keys[Case(n, "rows")] for n in ("sound", "text", "spilling"))
    assert sound.nvcc == sound.cxx == f"triton {VERSION}"
    assert freshness.freshness(text, sound) is None
    assert freshness.freshness(spilling, sound) == CodeChanged("device")


def test_a_launcher_that_asks_for_more_than_there_is_fails_with_its_words(tmp_path: Path) -> None:
    suite = written(tmp_path / "suite")
    wrong = SOURCE.replace("    rows,", "    x.sum()\n    rows,")
    Path(suite.root, "sound.py").write_text(wrong, encoding="utf-8")
    Path(suite.root, "text.py").write_text("x = (\n", encoding="utf-8")
    own = [suite.variants[n] for n in ("sound", "text")]
    first, second = LANGUAGE.build(suite, tmp_path / "build", (ARCH,), own)
    assert first.status == second.status == "failed"
    line = wrong.splitlines().index("    x.sum()") + 1
    assert first.message.startswith(f"sound.py({line}): error: AttributeError: the tensor x was asked for .sum")
    assert second.message.startswith("text.py(1): error: SyntaxError: '(' was never closed")
    for artifact, place in ((first, ("sound.py", line)), (second, ("text.py", 1))):
        assert isinstance(artifact.cause, CompileFailed) and (artifact.cause.file, artifact.cause.line) == place


def test_a_launcher_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of archs. What it started is ended with it."""
    suite = written(tmp_path / "suite")
    manifest = Path(suite.root, "suite.toml")
    manifest.write_text(manifest.read_text().replace('["sm_89"]', '["sm_80", "sm_89", "sm_90"]'), encoding="utf-8")
    called = tmp_path / "called"
    hanging = f"    open({str(called)!r}, 'a').write('.')\n    __import__('os').system('sleep 600')\n    rows,"
    Path(suite.root, "sound.py").write_text(SOURCE.replace("    rows,", hanging), encoding="utf-8")
    monkeypatch.setenv("MAX_JOBS", "1")
    monkeypatch.setattr(traced, "LIMIT", 4)
    monkeypatch.setattr(Gpu, "find", lambda: Gpu("NVIDIA L4", (8, 9), 58, 1 << 34, 48 << 20, 2040.0, "580.65"))
    settings = Settings(suite.root, variants=("sound",), build=str(tmp_path / "build"), upto="check", roofs=None)
    assert {(a.arch, a.status, a.cause) for a in compile_all(open_context(settings)).artifacts} == {
        (arch, "failed", Hang(4, "sound.py:softmax")) for arch in ("sm_80", "sm_89", "sm_90")
    }
    assert called.read_text() == "."


BUILD = """
import sys
from pathlib import Path
from flashcore.pipeline import plugins
from flashcore.features.languages.triton.language import LANGUAGE
from flashcore.suites.load import load
plugins.load()
suite = load(sys.argv[1])
LANGUAGE.build(suite, Path(sys.argv[2]), ("sm_89",), [suite.variants[name] for name in ("text", "sound")])
"""


def test_what_was_compiled_before_a_build_was_killed_is_kept(tmp_path: Path) -> None:
    suite = written(tmp_path / "suite")
    waiting = "    __import__('time').sleep(600)\n    rows,"
    Path(suite.root, "sound.py").write_text(SOURCE.replace("    rows,", waiting), encoding="utf-8")
    command = [sys.executable, "-c", BUILD, suite.root, str(tmp_path / "build")]
    environment = {**os.environ, "MAX_JOBS": "2"}
    with subprocess.Popen(command, start_new_session=True, env=environment) as process:
        try:
            while not (kept := [*tmp_path.glob(f"build/planted/text-{ARCH}-*")]):
                assert process.poll() is None, "it waits"
                time.sleep(0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    (artifact,) = LANGUAGE.build(suite, tmp_path / "build", (ARCH,), [suite.variants["text"]])
    assert artifact.cached and [Path(artifact.log or "").parent] == kept


def test_a_tensor_that_the_shape_leaves_out_is_none() -> None:
    argument = dataclasses.asdict(Argument("bias", "tensor", False, ("N",), "float32", optional=True))
    made: list[StandIn] = []
    assert compile_child._stand_in(argument, {"N": 4, "bias": False}, made) is None
    for params in ({"N": 4, "bias": True}, {"N": 4}):
        assert compile_child._stand_in(argument, params, made).shape == (4,)


def test_recorded_kernels_have_their_facts_and_no_grid(compiled: Compiled, tmp_path: Path) -> None:
    """As Triton's cache has them, and torch.compile's."""
    suite = written(tmp_path / "suite")
    recorded = Path(suite.root, "recorded", ARCH)
    recorded.mkdir(parents=True)
    for kind in ("cubin", "log"):
        made = Path(compiled.artifacts["spilling"].cubins["softmax_kernel"]).with_suffix(f".{kind}")
        (recorded / f"triton_red_fused_0.{kind}").write_bytes(made.read_bytes())
    (recorded / "triton_red_fused_0.json").write_text('{"num_warps": 1, "shared": 0}')
    path = Path(suite.root, "suite.toml")
    path.write_text(path.read_text().replace('cubins = "triton"', 'cubins = "recorded"', 1))
    suite = load(Path(suite.root))
    (artifact,) = LANGUAGE.build(suite, tmp_path / "build", (ARCH,), [suite.variants["sound"]])
    result = Facts(static_facts.facts(artifact, Path(suite.root)))
    kernel = CodeSubject("sound", ARCH, kernel="triton_red_fused_0")
    assert (result.number("spill_store_bytes", kernel) or 0) > 0
    assert artifact.code == compiled.artifacts["spilling"].code and artifact.cxx == "recorded"
    assert LANGUAGE.plans(artifact, suite.shapes.values()) == []
    plans = LANGUAGE.plans(artifact, suite.shapes.values(), possible=True)
    assert len(plans) == 1
    planned = {f.name: f.number for f in static_facts.plan_facts(artifact, plans, result, 132)}
    assert planned["theoretical_occupancy"] == 50 and planned["blocks"] is None and "waves" not in planned
    ((call,),) = LANGUAGE.calls(artifact, "rows")
    ((known,),) = LANGUAGE.calls(compiled.artifacts["spilling"], "rows")
    assert call["code"] == known["code"] and "arguments" not in call
    (recorded / "triton_red_fused_0.log").unlink()
    (artifact,) = LANGUAGE.build(suite, tmp_path / "build", (ARCH,), [suite.variants["sound"]])
    result = Facts(static_facts.facts(artifact, Path(suite.root)))
    spilled = result.get("spill_store_bytes", kernel)
    assert spilled is not None and spilled.value and spilled.source == "cubin"
    assert (result.number("sass_stl", kernel) or 0) > 0


def test_what_is_kept_names_the_files_that_were_read(compiled: Compiled) -> None:
    folder = Path(compiled.artifacts["sound"].log or "").parent
    assert list(json.loads((folder / "traced.json").read_text())["value"]["read"]) == ["sound.py"]


def _tuned_by_a_file(folder: Path, line: str) -> Suite:
    """A suite whose launcher takes the warps from what a line of Python gives."""
    suite = written(folder / "kernels")
    text = SOURCE.replace("num_warps=1", "num_warps=WARPS").replace("import triton\n", f"import triton\n{line}\n", 1)
    Path(suite.root, "sound.py").write_text(text, encoding="utf-8")
    return suite


@pytest.mark.parametrize(
    ("line", "file"),
    [
        pytest.param(
            "import json; WARPS = json.load(open(__file__[:-8] + 'warps.json'))",
            "kernels/warps.json",
            marks=pytest.mark.slow,
        ),
        ("import json; WARPS = json.load(open(__file__[:-8] + '../tables/warps.json'))", "tables/warps.json"),
        pytest.param(
            "import sys; sys.path.append(__file__[:-8] + '../lib'); from warps import WARPS",
            "lib/warps.py",
            marks=pytest.mark.slow,
        ),
        ("import os; WARPS = len(os.listdir(__file__[:-8] + '../tables'))", "tables/more"),
    ],
)
def test_what_a_launcher_reads_is_part_of_the_build(tmp_path: Path, line: str, file: str) -> None:
    suite, read = _tuned_by_a_file(tmp_path, line), tmp_path / file
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "kernels" / "pyproject.toml").touch()
    read.parent.mkdir(exist_ok=True)
    counted = file.endswith("more")
    (read.with_name("one") if counted else read).write_text("WARPS = 1" if file.endswith(".py") else "1")

    def threads() -> list[tuple[int, int, int]]:
        (artifact,) = LANGUAGE.build(suite, tmp_path / "build", (ARCH,), [suite.variants["sound"]])
        (plan,) = LANGUAGE.plans(artifact, suite.shapes.values())
        return [launch.block for launch in plan.launches]

    assert threads() == [(32, 1, 1)]
    read.write_text("WARPS = 2" if file.endswith(".py") else "2")
    assert threads() == [(64, 1, 1)]
