"""A manifest in several files: the same suite as from one, and mistakes that name the file they stand in."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import ManifestError
from flashcore.records import lookup, store
from flashcore.suites import load, parts
from tests.conftest import ROOT, TOY, without_line

RULE = '\n[[gate.rule]]\nfacts = ["registers"]\nseverity = "show"\nreason = "r"\n'


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """The toy suite with its shapes, variants, budgets and a rule of the gate in files of their own."""
    root = Path(shutil.copytree(TOY, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__")))
    text = (root / load.MANIFEST).read_text(encoding="utf-8") + RULE
    head, shapes = text.split("[shape.tail]")
    shapes, plain = shapes.split("[variant.plain]")
    plain, wide = plain.split("[variant.wide]")
    wide, budgets = wide.split("[[budget]]", 1)
    (root / "more").mkdir()
    for name, content in {
        "shapes.toml": f"# sizes\n[shape.tail]{shapes}",
        "more/b.toml": f"\n[variant.wide]{wide}",
        "more/a.toml": f"[variant.plain]{plain}",
        "budgets.toml": f"[[budget]]{budgets}",
        load.MANIFEST: f'manifests = ["shapes.toml", "more/*.toml", "budgets.toml"]\n{head}',
    }.items():
        (root / name).write_text(content, encoding="utf-8")
    return root


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def mistakes(root: Path) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load.load(root)
    assert str(caught.value).startswith(f"{root / load.MANIFEST}: ")
    return [*map(without_line, caught.value.mistakes)]


def test_several_files_are_the_suite_that_one_is(split: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    shutil.copytree(TOY, one, ignore=shutil.ignore_patterns("__pycache__"))
    with (one / load.MANIFEST).open("a", encoding="utf-8") as stream:
        stream.write(RULE)
    whole, result = load.load(one), load.load(split)
    assert result.manifests == ("shapes.toml", "more/a.toml", "more/b.toml", "budgets.toml")
    assert repr(dataclasses.replace(result, root=whole.root, manifests=())) == repr(whole)


def test_a_file_counts_where_it_is_named_first(split: Path) -> None:
    edit(split / load.MANIFEST, '"more/*.toml"', '"more/b.toml", "more/*.toml"')
    assert list(load.load(split).variants) == ["wide", "two_steps", "torch_mul", "plain"]


HERE = "[variant.plain]"
AFTER = '"budgets'
TABLES = ", ".join(f"[{name}.…]" for name in parts.tables())
HOLDS = f"expected {TABLES}, [[budget]], [[waiver]], [[gate.rule]]"
OWN = "expected a unique name, found"
CASES = [
    (load.MANIFEST, AFTER, f'"/etc/x", {AFTER}',
     "manifests[2]: expected a file within the suite's folder, found '/etc/x'"),
    (load.MANIFEST, AFTER, f'"/etc/x", "../x", {AFTER}',
     "manifests[3]: expected a file within the suite's folder, found '../x'"),
    *(
        (load.MANIFEST, AFTER, f'"{name}", {AFTER}',
         f"manifests[2]: expected a file of the suite other than suite.toml, found no {name}")
        for name in ("gone.toml", "x/*.toml", "./suite.toml", "more")
    ),
    (load.MANIFEST, AFTER, f'"a**", {AFTER}',
     "manifests[2]: expected a file of the suite other than suite.toml, found no a**"),
    (load.MANIFEST, AFTER, f"7, {AFTER}", "manifests[2]: expected text, found 7"),
    (load.MANIFEST, "[problem.scale]", f"{HERE}\nroof = 1\n[problem.scale]",
     f"more/a.toml: variant.plain: {OWN} 'plain' in suite.toml and in more/a.toml"),
    ("more/a.toml", HERE, "name = \n", "more/a.toml: not valid TOML: Invalid value (at line 1, column 8)"),
    ("more/a.toml", HERE, f'manifests = ["b.toml"]\n{HERE}', f"more/a.toml: manifests: {HOLDS}, found ['b.toml']"),
    ("more/a.toml", HERE, f"budget = 1\n{HERE}", f"more/a.toml: budget: {HOLDS}, found 1"),
    ("more/a.toml", HERE, f"shape = []\n{HERE}", f"more/a.toml: shape: {HOLDS}, found []"),
    ("more/a.toml", HERE, f'gate.baseline = "b"\n{HERE}', f"more/a.toml: gate.baseline: {HOLDS}, found 'b'"),
    ("more/b.toml", "[variant.wide]", HERE,
     f"more/b.toml: variant.plain: {OWN} 'plain' in more/a.toml and in more/b.toml"),
    ("more/b.toml", "[variant.wide]", '[[budget]]\nname = "registers"\n[variant.wide]',
     f"budgets.toml: budget[0]: {OWN} 'registers' in more/b.toml and in budgets.toml"),
    ("more/b.toml", "[variant.wide]", "[variant.'pl{a}']",
     "more/b.toml: variant.pl{a}: expected only sweep axes (none) in braces, found 'pl{a}' ('a')"),
    ("more/b.toml", "[variant.wide]\n", "[variant.'pl{a}']\nsweep = { a = ['ain'] }\n",
     f"more/b.toml: variant.pl{{a}}: {OWN} 'plain' twice, first by more/a.toml: variant.plain"),
    ("more/b.toml", 'technique = "four', 'tecnique = "four',
     "more/b.toml: variant.wide.technique: expected a value, found nothing"),
    ("more/b.toml", 'parent = "plain"', 'parent = "plane"',
     "more/b.toml: variant.wide.parent: expected a variant, found 'plane' (did you mean plain?)"),
    ("shapes.toml", "N = 1001", "N = 0",
     "shapes.toml: shape.tail.params.N: expected a whole number of at least 1, found 0"),
    ("budgets.toml", '"spill_store_bytes"', '"spil"',
     "budgets.toml: budget[1].fact: expected a fact (see: flashcore list --facts), found 'spil' "
     "(did you mean spill_store_bytes?)"),
    ("budgets.toml", "max = 0", 'max = "0"', "budgets.toml: budget[1].max: expected a number, found '0'"),
    ("budgets.toml", 'facts = ["registers"]', "facts = []",
     "budgets.toml: gate.rule[0].facts: expected at least 1 item, found []"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "line"), CASES)
def test_a_mistake_names_the_file_and_the_key(split: Path, file: str, old: str, new: str, line: str) -> None:
    edit(split / file, old, new)
    assert line in mistakes(split)


def test_a_list_is_counted_within_its_file(split: Path) -> None:
    """The second budget of the second file, though the suite's fourth."""
    (split / "more" / "c.toml").write_text(
        '[[budget]]\nname = "a"\nfact = "registers"\nmax = 1\nsource = "s"\n'
        '[[budget]]\nname = "b"\nfact = "registers"\nsource = "s"\n'
    )
    assert mistakes(split) == ["more/c.toml: budget[1]: expected a `min`, a `max` or both, found neither"]


# --- remembered -------------------------------------------------------------------------------------


def widen(root: Path) -> None:
    edit(root / "budgets.toml", "max = 32", "max = 64")


def add(root: Path) -> None:
    (root / "more" / "c.toml").write_text(
        '[[budget]]\nname = "late"\nfact = "registers"\nmax = 64\nsource = "s"\n', encoding="utf-8"
    )


@pytest.mark.parametrize("change", [widen, add])
def test_a_change_of_what_is_included_is_seen(split: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    recorded = tmp_path / "known"
    assert load.load(split, recorded).budgets[0].maximum == 32
    change(split)
    assert max(b.maximum or 0 for b in load.load(split, recorded).budgets) == 64


def test_what_is_included_and_went_away_is_a_mistake(split: Path, tmp_path: Path) -> None:
    load.load(split, tmp_path / "known")
    (split / "budgets.toml").unlink()
    with pytest.raises(ManifestError, match=r"found no budgets\.toml"):
        load.load(split, tmp_path / "known")


# --- our own ------------------------------------------------------------------------------------


def test_the_ladder_lies_in_files_that_are_all_included() -> None:
    root = ROOT / "kernels" / "attention"
    files = {p.relative_to(root).as_posix() for p in root.rglob("*.toml")} - {load.MANIFEST}
    assert files == set(load.load(root).manifests)
    assert len((root / load.MANIFEST).read_text(encoding="utf-8").splitlines()) < 200


def test_variants_budgets_and_shapes_keep_the_order_of_the_published_run() -> None:
    """Verdicts and rows of a report are told in the manifest's order."""

    def applies_to(waiver: Mapping[str, Any]) -> tuple[str, ...]:
        return waiver["budget"], *(" ".join(waiver[part]) for part in ("variants", "archs", "shapes", "kernels"))

    runs = (json.loads((run / store.HEADER).read_bytes())["suite"] for run in lookup.all_runs(ROOT / "profiles"))
    recorded = next(s for s in runs if s["name"] == "attention")
    suite = load.load(ROOT / "kernels" / "attention")
    for old, new in (
        ([*recorded["shapes"]], [*suite.shapes]),
        ([*recorded["variants"]], [*suite.variants]),
        ([b["name"] for b in recorded["budgets"]], [b.name for b in suite.budgets]),
        ([applies_to(w) for w in recorded["waivers"]], [applies_to(dataclasses.asdict(w)) for w in suite.waivers]),
    ):
        assert len(set(old) & set(new)) > 5
        assert [n for n in old if n in new] == [n for n in new if n in old]
