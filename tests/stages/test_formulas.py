"""Amounts by a problem's file, whose code must not decide anything else."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.build import build
from flashcore.errors import FlashcoreError, UsageError
from flashcore.machine import isolated
from flashcore.model.case import Case
from flashcore.model.settings import Settings
from flashcore.stages.context import Context
from flashcore.stages.formulas import formula_facts, works
from flashcore.suites.load import load
from tests import factory
from tests.conftest import ROOT, TOY

PROBLEM = """
make_inputs = reference = emulate = None
KINDS = TOLERANCES = FENCE = ()
def work(params, roof):
    {body}
    return {{"flop": params["S"], "tensor_flop" if "tensor" in roof else "fp32_flop": 2}}
"""


def amounts(root: Path, text: str) -> list[dict[str, float]]:
    suite = replace(factory.suite(), root=str(root))
    for problem in suite.problems.values():
        (root / problem.file).parent.mkdir(parents=True, exist_ok=True)
        (root / problem.file).write_text(text)
    return works(suite, [(v, s) for v in suite.variants.values() for s in suite.shapes.values()])


def test_an_edited_file_has_other_amounts(tmp_path: Path) -> None:
    before, after = (amounts(tmp_path, PROBLEM.format(body="pass").replace(": 2", f": {n}")) for n in (2, 3))
    assert [a | {"fp32_flop": 0, "tensor_flop": 0} for a in before] == [
        a | {"fp32_flop": 0, "tensor_flop": 0} for a in after
    ]
    assert {*map(str, before)}.isdisjoint(map(str, after))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is not temporary: files that this process made in one do not count as read."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        yield Path(name)


def test_an_edited_module_or_table_that_the_problem_reads_has_other_amounts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # whatever the environment says
    text = PROBLEM.format(body="import sizes").replace(": 2", ": sizes.FLOP + float(open(__file__ + '.txt').read())")
    problems = {Path(p.file) for p in factory.suite().problems.values()}

    def flop(module: int, table: int) -> set[float]:
        for file in problems:
            (folder / file.parent).mkdir(parents=True, exist_ok=True)
            (folder / file.parent / "sizes.py").write_text(f"FLOP = {module}")
            (folder / f"{file}.txt").write_text(str(table))
        return {v for a in amounts(folder, text) for name, v in a.items() if name != "flop"}

    assert [flop(2, 0), flop(3, 0), flop(3, 4), flop(3, 4)] == [{2}, {3}, {7}, {7}]


def test_each_case_has_the_amounts_of_its_shape_and_roof(tmp_path: Path) -> None:
    suite = factory.suite()
    cases = [(v, s) for v in suite.variants.values() for s in suite.shapes.values()]
    kinds = ["tensor_flop" if "tensor" in v.roof else "fp32_flop" for v, _ in cases]
    assert amounts(tmp_path, PROBLEM.format(body="pass")) == [
        {"flop": s.params["S"], kind: 2} for (_, s), kind in zip(cases, kinds, strict=True)
    ]


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("__import__('os')._exit(0)", UsageError, r"problem.py: expected work.. to return amounts, but .* exit code 0"),
        ("print('disk is full'); raise SystemExit(3)", UsageError, r"exit code 1(.|\n)*SystemExit: 3"),
        ("raise KeyError('S')", UsageError, "expected work.. to return amounts for .*, found KeyError"),
        ("pass\n1 / 0\nif 1:\n  pass", FlashcoreError, "its import failed with IndentationError"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", UsageError, "exit code -9"),
    ],
)  # fmt: skip
def test_a_problem_that_gives_no_amounts(tmp_path: Path, body: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        amounts(tmp_path, PROBLEM.format(body=body))


def test_a_problem_that_changes_this_process_does_not(tmp_path: Path) -> None:
    body = "import flashcore.model.catalogue as c; c.hurt = 1"
    amounts(tmp_path, PROBLEM.format(body=body))
    from flashcore.model import catalogue

    assert not hasattr(catalogue, "hurt")


def test_a_function_that_takes_too_long() -> None:
    ended = isolated.isolated(0.2, lambda: __import__("time").sleep(60))
    assert ended == isolated.Ended(None, "")


@pytest.mark.parametrize(("amount", "refused"), [("8 * params", False), ("4 * params", True)])
def test_a_shape_that_is_the_same_as_another_has_its_flop_and_bytes(tmp_path: Path, amount: str, refused: bool) -> None:
    shutil.copytree(TOY, tmp_path / "toy")
    source = (TOY / "problem.py").read_text(encoding="utf-8")
    assert "8 * params" in source
    (tmp_path / "toy" / "twice.py").write_text(source.replace("8 * params", amount), encoding="utf-8")
    suite = load(tmp_path / "toy")
    twice = replace(suite.problems["scale"], name="twice", file="twice.py")
    other = replace(suite.shapes["small"], name="other", problem="twice", same_as="small")
    wide = replace(suite.variants["wide"], name="wider", problem="twice")
    suite = replace(
        suite,
        problems={**suite.problems, "twice": twice},
        shapes={**suite.shapes, "other": other},
        variants={**suite.variants, "wider": wide},
    )
    context = Context(Settings(suite.root), suite, None, None, build.Options(), (wide,), (other,))
    if refused:
        with pytest.raises(UsageError, match=r"other\.same_as: .*'bytes': 32768.*found .*16384") as error:
            formula_facts(context)
        assert "hint: remove same_as to show two rows" in str(error.value)
    else:
        assert {f.subject.case for f in formula_facts(context)} == {Case("wider", "other")}
