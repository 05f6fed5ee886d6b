"""The manifest: what a good one becomes, and that every mistake in a bad one is named at once."""

from __future__ import annotations

import copy as copying
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flashcore.chips.occupancy import LIMITS
from flashcore.errors import ManifestError, UsageError
from flashcore.suites import load, variants
from tests.conftest import TOY, Change, change, without_line


def toml(value: Any) -> str:
    """A value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float) and value != value:
        return "nan"
    return json.dumps(value) if not isinstance(value, float) else repr(value)


def manifest() -> dict[str, Any]:
    """The toy suite's manifest as data."""
    return tomllib.loads((TOY / load.MANIFEST).read_text(encoding="utf-8"))


def write(folder: Path, data: dict[str, Any]) -> Path:
    """A copy of the toy suite with another manifest."""
    if not folder.exists():
        shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = "".join(f"{json.dumps(k)} = {toml(v)}\n" for k, v in data.items())
    (folder / load.MANIFEST).write_text(text, encoding="utf-8")
    return folder


def mistakes(folder: Path, data: dict[str, Any]) -> list[str]:
    """Every mistake that loading reports, without its line."""
    with pytest.raises(ManifestError) as caught:
        load.load(write(folder, data))
    assert str(folder / load.MANIFEST) in str(caught.value)
    return [*map(without_line, caught.value.mistakes)]


# A change to the valid manifest → the whole line that must come of it.
FORM: list[tuple[Change, str]] = [
    ({"title": ...}, "title: expected a value, found nothing"),
    ({"title": 7}, "title: expected text, found 7"),
    ({"title": ""}, "title: expected text that is not empty, found ''"),
    ({"nvcc": "13"}, "nvcc: expected text matching ^[0-9]+\\.[0-9]+$, found '13'"),
    ({"libraries": "cublas"}, "libraries: expected a list, found 'cublas'"),
    ({"archs": []}, "archs: expected at least 1 item, found []"),
    ({"archs": ["sm_80", "ampere"]}, "archs[1]: expected text matching ^sm_[0-9]{2,3}[af]?$, found 'ampere'"),
    (
        {"variant.plain.where": {"arch": "x"}},
        "variant.plain.where.arch: expected no such key (did you mean archs?), found 'x'",
    ),
    (
        {"variant.plain.where": {"place": "x"}},
        "variant.plain.where.place: expected no such key (is it misspelled? valid keys: archs, shapes, unsupported), "
        "found 'x'",
    ),
    ({"problem": {}}, "problem: expected at least 1 item, found {}"),
    ({"problem": []}, "problem: expected a table, found []"),
    ({"problem.scale.schema": ...}, "problem.scale.schema: expected a value, found nothing"),
    ({"problem.scale.seeds": ["a"]}, "problem.scale.seeds[0]: expected a whole number, found 'a'"),
    ({"problem.scale.dims.x": "N"}, "problem.scale.dims.x: expected a list, found 'N'"),
    (
        {"problem.scale.dims.x": ["N M"]},
        "problem.scale.dims.x[0]: expected text matching ^([A-Za-z][A-Za-z0-9_]*([-+*/][1-9][0-9]*)?)$ or "
        "a whole number, found 'N M'",
    ),
    (
        {"problem.scale.strided": {"x": "columns"}},
        "problem.scale.strided.x: expected one of 'rows' or 'any', found 'columns'",
    ),
    (
        {"shape.Big One": {"params": {"N": 1}}},
        "shape.Big One: expected a key matching ^[a-z][a-z0-9_]*$, found 'Big One'",
    ),
    (
        {"shape.small.stages": ["bench", "race"]},
        "shape.small.stages[1]: expected one of 'check', 'bench', 'profile' or 'sanitize', found 'race'",
    ),
    (
        {"shape.small.params.N": [1]},
        "shape.small.params.N: expected a whole number, a number, text or true/false, found [1]",
    ),
    ({"variant.plain": "scale.cu"}, "variant.plain: expected a table, found 'scale.cu'"),
    ({"variant.plain.roof": ...}, "variant.plain.roof: expected a value, found nothing"),
    (
        {"variant.wide.config": {"elements": 4}},
        "variant.wide.config.elements: expected a key matching ^[A-Z][A-Z0-9_]*$, found 'elements'",
    ),
    (
        {"variant.wide.config.ELEMENTS": [4]},
        "variant.wide.config.ELEMENTS: expected a whole number, a number, text or true/false, found [4]",
    ),
    (
        {"variant.wide.predictions.0.to": "less"},
        "variant.wide.predictions[0].to: expected a number, found 'less'",
    ),
    (
        {"variant.wide.where": {"unsupported": {"hopper": "no"}}},
        "variant.wide.where.unsupported.hopper: expected a key matching ^(sm_[0-9]{2,3}[af]?|.*\\{.+)$, found 'hopper'",
    ),
    (
        {"variant.torch_mul.callable": "peers:torch_mul"},
        "variant.torch_mul.callable: expected text matching ^[^:]+\\.py:[A-Za-z_]\\w*$, found 'peers:torch_mul'",
    ),
    (
        {"variant.plain.sweep": 5},
        "variant.plain.sweep: expected a table of lists or a list of tables, found 5",
    ),
    (
        {"variant.plain.sweep": {"n": [1.5]}},
        "variant.plain.sweep.n[0]: expected a whole number or text, found 1.5",
    ),
    ({"variant.plain.sweep": {"n": []}}, "variant.plain.sweep.n: expected at least 1 item, found []"),
    ({"budget": {}}, "budget: expected a list, found {}"),
    ({"budget.0.max": "32"}, "budget[0].max: expected a number, found '32'"),
    ({"budget.0.max": float("nan")}, "budget[0].max: expected a finite number, found nan"),
    ({"budget.0.severity": "hard"}, "budget[0].severity: expected one of 'limit' or 'goal', found 'hard'"),
    (
        {"waiver": [{"budget": "registers", "accepted": 1, "reason": "r", "expires": "soon"}]},
        "waiver[0].expires: expected a date such as 2027-01-31, found 'soon'",
    ),
]

NO_NAME = ": expected the name of a compiler decision, found"
NO_LIMIT = ": expected with `must` and `must_not` no fact, no limit, no goal, and one piece of the source, found"
MEANING: list[tuple[Change, str]] = [
    ({"baseline": "fastest"}, "baseline: expected a variant, found 'fastest'"),
    (
        {"flags": ["-O3 -arch=sm_80"]},
        "flags: expected flags of one file's compilation, without -rdc and what `archs`, `include`, `libraries` and "
        "DEBUG=1 declare, found '-arch=sm_80'",
    ),
    (
        {"variant.plain.flags": ["-Ilib"]},
        "variant.plain.flags: expected flags of one file's compilation, without -rdc and what `archs`, `include`, "
        "`libraries` and DEBUG=1 declare, found '-Ilib'",
    ),
    (
        {"variant.torch_mul.libraries": ["m"]},
        "variant.torch_mul.libraries: expected none: nvcc does not compile this variant, found ['m']",
    ),
    (
        {"variant.torch_mul.packages": ["torch", "flash-attn"]},
        "variant.torch_mul.packages: expected names as Python imports them: flash_attn, found 'flash-attn'",
    ),
    (
        {"variant.torch_mul.packages": ["flash_attn.cute"]},
        "variant.torch_mul.packages: expected names as Python imports them: flash_attn, found 'flash_attn.cute'",
    ),
    ({"include": ["nowhere"]}, "include: expected a folder of the suite, found 'nowhere'"),
    (
        {"problem.scale.file": "p.py"},
        "problem.scale.file: expected a file of the suite, found no p.py",
    ),
    (
        {"problem.scale.dtypes.*": "fp32"},
        "problem.scale.dtypes.x: expected one of float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, "
        "int8, uint8, int16, int32, int64, uint16, uint32, uint64, bool, found 'fp32'",
    ),
    (
        {"problem.scale.dims.out": ...},
        "problem.scale.dims.out: expected the names of its dimensions, found nothing",
    ),
    (
        {"problem.scale.dims.out": ["N/3"]},
        "shape.small.params: expected whole sizes of out, found N/3: 4096 is not a multiple of 3",
    ),
    (
        {"problem.scale.dims.out": ["M/2"]},
        "problem.scale.dims.out: expected names that are a dimension of a tensor, without a number, found M/2",
    ),
    (
        {"problem.scale.dims.y": ["N"]},
        "problem.scale.dims.y: expected a tensor of the schema, found no such tensor",
    ),
    (
        {"problem.scale.dims.x": ["int"]},
        "problem.scale.dims.x: expected a name that is not reserved in C++, found 'int'",
    ),
    (
        {"problem.scale.inout": ["x", "out"]},
        "problem.scale.inout: expected outputs of the schema, written Tensor(a!), found x",
    ),
    (
        {"problem.scale.strided": {"y": "rows"}},
        "problem.scale.strided.y: expected a tensor of the schema, found no such tensor",
    ),
    (
        {"problem.scale.strided": {"factor": "any"}},
        "problem.scale.strided.factor: expected a tensor of the schema, found no such tensor",
    ),
    (
        {
            "problem.scale.strided": {"x": "any"},
            "problem.scale.schema": "(Tensor x, Tensor(a!) out, float factor, int x_strides) -> ()",
        },
        "problem.scale.strided.x: expected the name x_strides to be free, found an argument of that name",
    ),
    (
        {
            "problem.scale.schema": "(Tensor x, Tensor? bias, Tensor(a!) out, float factor) -> ()",
            "problem.scale.dims": {"x": ["N"], "out": ["N"], "bias": ["M"]},
        },
        "problem.scale.dims.bias: expected names that are a dimension of a tensor, without a number, found M",
    ),
    (
        {
            "problem.scale.schema": "(Tensor x, Tensor? bias, Tensor(a!) out, float factor) -> ()",
            "problem.scale.dims": {"x": ["N"], "out": ["N"], "bias": ["N"]},
            "shape.tail.params.bias": 0,
        },
        "shape.tail.params.bias: expected true or false: whether it is present, found 0",
    ),
    ({"shape.tail.params.N": ...}, "shape.tail.params.N: expected a whole number of at least 1, found nothing"),
    (
        {"shape.tail.params.N": 0},
        "shape.tail.params.N: expected a whole number of at least 1, found 0",
    ),
    ({"shape.tail.problem": "sort"}, "shape.tail.problem: expected one of scale, found 'sort'"),
    (
        {"variant.wide.parent": "plane"},
        "variant.wide.parent: expected a variant, found 'plane' (did you mean plain?)",
    ),
    (
        {"variant.wide.source": "w.cu"},
        "variant.wide.source: expected a file of the suite, found no w.cu",
    ),
    ({"variant.plain.source": ...}, "variant.plain: expected a source or a callable, found neither"),
    (
        {"variant.plain.callable": "peers.py:torch_mul"},
        "variant.plain: expected a source or a callable, found both",
    ),
    (
        {"variant.plain.where": {"archs": ["sm_61"]}},
        f"variant.plain.where: expected one of {', '.join(dict.fromkeys(['sm_80', 'sm_90a', *LIMITS]))}, found 'sm_61'",
    ),
    (
        {"variant.plain.where": {"shapes": ["huge*"]}},
        "variant.plain.where.shapes: expected globs that match a shape, found 'huge*'",
    ),
    (
        {"variant.wide.document": "tome"},
        "variant.wide.document: expected one of documents (book), found 'tome'",
    ),
    (
        {"variant.wide.predictions.0.fact": "speed"},
        "variant.wide.predictions[0].fact: expected a fact (see: flashcore list --facts), found 'speed' "
        "(did you mean speedup_vs_baseline?)",
    ),
    (
        {"variant.wide.predictions.0.to": ...},
        "variant.wide.predictions[0]: expected a `from`, a `to` or both, found neither",
    ),
    (
        {"budget.0.fact": "regsters"},
        "budget[0].fact: expected a fact (see: flashcore list --facts), found 'regsters' (did you mean registers?)",
    ),
    ({"budget.0.max": ...}, "budget[0]: expected a `min`, a `max` or both, found neither"),
    ({"budget.0.min": 64}, "budget[0]: expected min <= max, found 64.0 > 32.0"),
    (
        {"budget.0.device": "H20O"},
        "budget[0].device: expected a GPU of the device table, or its whole name (NVIDIA …), found 'H20O' (did you mean"
        " h200?)",
    ),
    (
        {"budget.0.variants": ["plan*"]},
        "budget[0].variants: expected globs that match a variant, found 'plan*' (did you mean plain?)",
    ),
    *(
        ({"budget.0": {"name": "decided", "source": "s", **keys}}, f"budget[0]{message}")
        for keys, message in (
            ({}, ".fact: expected a fact (see: flashcore list --facts), found ''"),
            ({"must": "wgma"}, f"{NO_NAME} 'wgma' (did you mean wgmma?)"),
            ({"must": ["4 ldg.128", "0 mma"]}, f"{NO_NAME} '0 mma' (did you mean mma?)"),
            ({"must_not": "2 local"}, f"{NO_NAME} '2 local' (did you mean local?)"),
            ({"must_not": "local", "fact": "registers", "max": 3}, f"{NO_LIMIT} fact, maximum"),
            ({"must_not": "local", "mark": "a", "quote": "b"}, f"{NO_LIMIT} quote"),
            ({"must_not": "local", "severity": "goal"}, f"{NO_LIMIT} severity"),
            ({"fact": "smem", "max": 3, "mark": "a"}, ".mark: expected it with `must` or `must_not`, found neither"),
        )
    ),
    ({"budget.1.name": "registers"}, "budget: expected unique names, found 'registers' 2 times"),
    (
        {"budget.1.documents": ["tome"]},
        "budget[1].documents: expected a document of the manifest, found 'tome'",
    ),
    (
        {"waiver": [{"budget": "speed", "accepted": 1, "reason": "r"}]},
        "waiver[0].budget: expected the name of a budget, found 'speed'",
    ),
]


def alias(problem: str, same_as: str, params: dict[str, Any], **changes: Any) -> Change:
    """A second problem that scales, and a shape of the problem named that is declared to be another."""
    return {
        "problem.twice": {**manifest()["problem"]["scale"], **changes},
        "shape.other": {"problem": problem, "params": params, "same_as": same_as},
    }


SAME_AS = "shape.other.same_as: expected"
MEANING += [
    (
        alias("scale", "small", {"N": 4096}),
        f"{SAME_AS} a shape of another problem, without same_as, found 'small'",
    ),
    (
        alias("twice", "smal", {"N": 4096}),
        f"{SAME_AS} a shape of another problem, without same_as, found 'smal' (did you mean small?)",
    ),
    (
        alias("twice", "small", {"N": 2048}),
        f"{SAME_AS} the parameters and tensors of small, {{'N': 4096}} {{'out': ('float32', 4096), "
        "'x': ('float32', 4096)}, found {'N': 2048} {'out': ('float32', 2048), 'x': ('float32', 2048)}; "
        "hint: without same_as they are two rows",
    ),
    (
        alias("twice", "small", {"N": 4096}, dtypes={"*": "float16"}),
        f"{SAME_AS} the parameters and tensors of small, {{'N': 4096}} {{'out': ('float32', 4096), "
        "'x': ('float32', 4096)}, found {'N': 4096} {'out': ('float16', 4096), 'x': ('float16', 4096)}; "
        "hint: without same_as they are two rows",
    ),
]


@pytest.mark.parametrize(("changes", "line"), [*FORM, *MEANING], ids=lambda v: v if isinstance(v, str) else "")
def test_a_mistake_is_named_with_what_was_expected_and_found(tmp_path: Path, changes: Change, line: str) -> None:
    data = manifest()
    change(data, changes)
    assert line in mistakes(tmp_path / "suite", data)


def test_a_shape_may_be_the_same_as_one_of_another_problem(tmp_path: Path) -> None:
    data = manifest()
    change(data, alias("twice", "small", {"N": 4096, "HALF": 2}))
    made = load.load(write(tmp_path / "suite", data))
    assert [[s.name for s in row] for row in made.rows(made.shapes.values())] == [["tail"], ["small", "other"]]


def test_a_date_may_be_in_quotes(tmp_path: Path) -> None:
    waiver = {"budget": "registers", "accepted": 40, "reason": "r", "expires": "2030-01-31"}
    suite = load.load(write(tmp_path / "suite", manifest() | {"waiver": [waiver]}))
    assert [w.expires for w in suite.waivers] == ["2030-01-31"]


@pytest.mark.parametrize("table", [FORM, MEANING])
def test_many_mistakes_are_reported_at_once(tmp_path: Path, table: list[tuple[Change, str]]) -> None:
    data = manifest()
    expected: list[str] = []
    for changes, line in table:
        changed = copying.deepcopy(data)
        try:
            change(changed, changes)
        except (KeyError, TypeError, IndexError):  # an earlier change took away what this one changes
            continue
        # Two changes can hide each other; keep those that are still seen together.
        reported = mistakes(tmp_path / "suite", changed)
        if line in reported and all(e in reported for e in expected):
            data, expected = changed, [*expected, line]
    assert len(expected) >= 12
    assert set(expected) <= set(mistakes(tmp_path / "suite", data))


def test_mistakes_are_not_repeated_for_each_point_of_a_sweep(tmp_path: Path) -> None:
    data = manifest()
    data["variant"]["n{n}"] = {**data["variant"]["plain"], "source": "gone.cu", "sweep": {"n": [1, 2, 4]}}
    assert mistakes(tmp_path / "suite", data) == ["variant.n{n}.source: expected a file of the suite, found no gone.cu"]


def test_parents_in_a_circle(tmp_path: Path) -> None:
    data = manifest()
    data["variant"]["plain"]["parent"] = "two_steps"
    reported = mistakes(tmp_path / "suite", data)
    assert "variant.plain.parent: expected no cycle, found plain → two_steps → plain" in reported
    assert not any("variant.wide" in m for m in reported)  # it hangs on the circle but is not in it


def test_not_toml(tmp_path: Path) -> None:
    (tmp_path / load.MANIFEST).write_text("name = \n", encoding="utf-8")
    with pytest.raises(ManifestError, match=r"not valid TOML.*line 1"):
        load.load(tmp_path)
    (tmp_path / load.MANIFEST).write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="not valid TOML"):
        load.load(tmp_path)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="flashcore init"):
        load.load(tmp_path / "nowhere")


# --- what a good manifest becomes ---------------------------------------------------------------


def test_the_toy_suite() -> None:
    loaded = load.load(TOY)
    assert list(loaded.variants) == ["plain", "wide", "two_steps", "torch_mul"]
    assert loaded.variants["two_steps"].where.archs == ("sm_90a",)
    assert loaded.variants["torch_mul"].is_reference
    assert loaded.problems["scale"].dims == ("N",)
    assert [(a.name, a.kind, a.mutable) for a in loaded.problems["scale"].arguments] == [
        ("x", "tensor", False),
        ("out", "tensor", True),
        ("factor", "float", False),
    ]
    registers, spills = loaded.budgets
    assert (registers.unit, registers.tier, registers.variants) == ("1", "static", ("*",))
    assert spills.variants == ("wide",)  # those of the document
    assert loaded.variants["wide"].predictions[0].before is None


def test_a_variant_names_archs_that_the_others_are_not_built_for(tmp_path: Path) -> None:
    data = manifest()
    data["variant"]["plain"]["where"] = {"archs": ["sm_90a", "sm_120a"]}
    loaded = load.load(write(tmp_path / "toy", data))
    assert loaded.archs == ("sm_80", "sm_90a", "sm_120a") and loaded.usual_arch == "sm_90a"
    assert loaded.variants["plain"].where.archs == ("sm_90a", "sm_120a")
    assert loaded.variants["wide"].where.archs == ("sm_80", "sm_90a")


def test_a_sweep_becomes_a_variant_for_each_point(tmp_path: Path) -> None:
    data = manifest()
    data["variant"]["m{m}_{order}"] = {
        **data["variant"]["plain"],
        "technique": "{m} rows, {order}",
        "config": {"M": "{m}", "ORDER": "ORDER_{order}", "FIXED": 3},
        "parent": "plain",
        "sweep": {"m": [64, 128], "order": ["row", "column"]},
    }
    loaded = load.load(write(tmp_path / "suite", data))
    made = [n for n in loaded.variants if n.startswith("m")]
    assert made == ["m64_row", "m64_column", "m128_row", "m128_column"]
    assert loaded.variants["m128_row"].config == {"M": 128, "ORDER": "ORDER_row", "FIXED": 3}
    assert loaded.variants["m64_column"].technique == "64 rows, column"


def test_where_has_the_values_of_a_sweep(tmp_path: Path) -> None:
    data = manifest()
    where = {"shapes": ["{shape}"], "unsupported": {"sm_{old}": "needs {shape}"}}
    points = [{"shape": "tail", "old": 80}, {"shape": "s*", "old": "90a"}]
    data["variant"]["of_{old}"] = {**data["variant"]["plain"], "where": where, "sweep": points}
    loaded = load.load(write(tmp_path / "suite", data))
    tail, small = loaded.variants["of_80"].where, loaded.variants["of_90a"].where
    assert (tail.shapes, tail.archs, tail.unsupported) == (("tail",), ("sm_90a",), {"sm_80": "needs tail"})
    assert (small.shapes, small.archs) == (("s*",), ("sm_80",))
    data["variant"]["of_{old}"]["where"] = {"shapes": ["{shapes}"], "archs": ["sm_1{old}1"]}
    with pytest.raises(ManifestError) as error:
        load.load(write(tmp_path / "suite", data))
    assert "expected only sweep axes (shape, old) in braces" in str(error.value) and "sm_1801" in str(error.value)


@pytest.mark.parametrize("template", ["v{x}", "v{}", "v{n[0]}", "v{", "V{n}", "v{n!z}", "v{n:q}"])
def test_a_bad_name_template(tmp_path: Path, template: str) -> None:
    data = manifest()
    data["variant"][template] = {**data["variant"]["plain"], "sweep": {"n": [1]}}
    assert any(m.startswith(f"variant.{template}") for m in mistakes(tmp_path / "suite", data))


def test_two_variants_of_one_name(tmp_path: Path) -> None:
    data = manifest()
    data["variant"]["pl{a}"] = {**data["variant"]["plain"], "sweep": {"a": ["ain"]}}
    assert "variant.pl{a}: expected a unique name, found 'plain' twice, first by variant.plain" in mistakes(
        tmp_path / "suite", data
    )


def test_selecting() -> None:
    loaded = load.load(TOY)
    variants, shapes = load.select(loaded, ("*i*",), ("small",))
    assert [v.name for v in variants] == ["plain", "wide"]
    assert [s.name for s in shapes] == ["small"]
    with pytest.raises(UsageError, match=r"--variant nothing\*: expected a glob matching one of plain, wide"):
        load.select(loaded, ("nothing*",))
    with pytest.raises(UsageError, match="--shape huge: expected one of tail, small"):
        load.select(loaded, (), ("huge",))


def test_a_misspelled_selection_is_told_with_the_nearest_name() -> None:
    suite = load.load(TOY)
    with pytest.raises(UsageError, match=r"--variant plian: .* \(did you mean plain\?\)"):
        load.select(suite, ("plian",))
    with pytest.raises(UsageError, match=r"--shape smal: .* \(did you mean small\?\)"):
        load.select(suite, (), ("smal",))


def test_only_so_many_variants_are_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = manifest()
    names = len(data["variant"])
    data["variant"]["m{m}"] = {**data["variant"]["plain"], "sweep": [{"m": i} for i in range(3)]}
    monkeypatch.setattr(variants, "MOST_POINTS", names + 3)
    assert len(load.load(write(tmp_path / "suite", data)).variants) == names + 3
    monkeypatch.setattr(variants, "MOST_POINTS", names + 2)
    (line,) = [m for m in mistakes(tmp_path / "suite", data) if "in total" in m]
    assert f"expected at most {names + 2} variants in total, found 3 more" in line


# --- what would switch a limit off, or break what reads on ------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"budget.0.variants": []}, "budget[0].variants: expected at least 1 item, found []"),
        ({"budget.0.archs": []}, "budget[0].archs: expected at least 1 item, found []"),
        ({"budget.0.shapes": []}, "budget[0].shapes: expected at least 1 item, found []"),
        ({"budget.0.kernels": []}, "budget[0].kernels: expected at least 1 item, found []"),
        ({"budget.1.documents": []}, "budget[1].documents: expected at least 1 item, found []"),
        ({"problem.scale.seeds": []}, "problem.scale.seeds: expected at least 1 item, found []"),
        ({"variant.wide.where": {"archs": []}}, "variant.wide.where.archs: expected at least 1 item"),
        ({"variant.wide.where": {"shapes": []}}, "variant.wide.where.shapes: expected at least 1 item"),
        ({"budget.0.variants": ["torch*"]}, "budget[0]: expected registers to apply to a case"),
        (
            {"budget.0.variants": ["two_steps"], "budget.0.archs": ["sm_80"]},
            "budget[0]: expected registers to apply to a case",
        ),
        (
            {"budget.0.fact": "cold_p50", "budget.0.shapes": ["tail"]},
            "budget[0]: expected registers to apply to a case",  # a shape that is never timed
        ),
        ({"variant.wide.roof": "fp61_tensor"}, "variant.wide.roof: expected one of barrier, "),
        (
            {"variant.wide.config.ELEMENTS": "4\n command = x"},
            "variant.wide: expected a file and a con",
        ),
        (
            {"variant.wide.config.ELEMENTS": "4\0"},
            "variant.wide.config.ELEMENTS: expected text, found",
        ),
        ({"variant.wide.source": "a\nb.cu"}, "variant.wide: expected a file and a config on one line"),
        (
            {"shape.small.params.N": 10**400},
            "shape.small.params.N: expected a 64-bit integer",
        ),
        ({"budget.0.max": 1e308}, "budget[0].max: expected a number up to 1e30, found 1e+308"),
        ({f"variant.{'v' * 101}": {}}, "variant."),
        ({f"shape.{'s' * 101}": {"params": {"N": 1}}}, f"shape.{'s' * 101}: expected"),
    ],
)
def test_what_would_fool_the_gate_is_a_mistake(tmp_path: Path, changes: Change, line: str) -> None:  # items 5, 18, 21
    data = manifest()
    change(data, changes)
    assert [m for m in mistakes(tmp_path / "suite", data) if m.startswith(line)], line


def test_a_tolerance_that_its_problem_does_not_list_is_a_mistake(tmp_path: Path) -> None:  # item 5
    folder = write(tmp_path / "suite", manifest())
    data = manifest()
    data["variant"]["wide"]["tolerance"] = "rounded_onec"
    expected = "variant.wide.tolerance: expected one of rounded_once, found 'rounded_onec' (did you mean rounded_once?)"
    assert mistakes(folder, data) == [expected]


def test_limits_are_said_at_once(tmp_path: Path) -> None:  # item 18
    data = manifest()
    axes = {a: list(range(22)) for a in ("a", "b", "c")}
    data["variant"]["x_{a}_{b}_{c}"] = {**data["variant"]["wide"], "sweep": axes}
    assert mistakes(tmp_path / "a", data) == [
        "variant.x_{a}_{b}_{c}: expected at most 10,000 variants in total, found 10,648 more"
    ]
    data = manifest()
    points = [{"n": i, "m": i + 1} for i in range(200)]
    data["variant"]["c{n}"] = {**data["variant"]["plain"], "sweep": points, "parent": "c{m}"}
    data["variant"]["c200"] = data["variant"]["plain"]
    assert mistakes(tmp_path / "b", data) == ["variant: expected at most 100 ancestors per variant, found more"]


@pytest.mark.parametrize("text", ["x = " + "[" * 50_000, "x = " + "9" * 5_000, "x = " + "[" * 50 + "]" * 50])
def test_what_no_parser_can_take_is_a_mistake(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "suite", manifest())
    path = folder / load.MANIFEST
    path.write_text(text + "\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ManifestError):
        load.load(folder)
