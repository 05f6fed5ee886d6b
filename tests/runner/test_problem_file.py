"""A problem's file as a module, and what its formulas say."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest

from flashcore.errors import UsageError
from flashcore.runner.problem_file import load_problem, work_of


def test_a_problem_that_lacks_parts(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text("KINDS = ()\ndef work(params): return {}\n")
    with pytest.raises(UsageError, match="found no make_inputs, reference, emulate, TOLERANCES, FENCE"):
        load_problem(tmp_path, "problem.py")
    with pytest.raises(UsageError, match="expected a Python file"):
        load_problem(tmp_path, "other.py")


def test_a_function_may_import_a_module_of_its_suite_when_it_is_called(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "problem.py").write_text(
            "make_inputs = reference = emulate = None\nKINDS = TOLERANCES = FENCE = ()\n"
            "def work(params):\n    from lazily_found import AMOUNT\n    return {'flop': AMOUNT}\n"
        )
        (folder / "lazily_found.py").write_text(f"AMOUNT = {len(name)}{len(str(folder))}\n")
    one = load_problem(tmp_path / "one", "problem.py")
    assert one.work({}) == {"flop": int(f"3{len(str(tmp_path)) + 4}")}
    (tmp_path / "two" / "lazily_found.py").write_text("AMOUNT = 7\n")
    assert load_problem(tmp_path / "two", "problem.py").work({}) == {"flop": 7}, "another suite's has the same name"
    with pytest.raises(ModuleNotFoundError):
        __import__("lazily_found_nowhere")


def test_work_may_differ_by_the_variants_roof() -> None:
    plain, by_roof = ModuleType("plain"), ModuleType("by_roof")
    plain.work = lambda params: {"flop": params["N"]}  # type: ignore[attr-defined]
    by_roof.work = lambda params, roof: {"tensor_flop" if roof.endswith("_tensor") else "fp32_flop": params["N"]}  # type: ignore[attr-defined]
    assert work_of(plain, {"N": 3}, "tf32_tensor") == {"flop": 3}
    plain.work = lambda params, scale=2: {"flop": params["N"] * scale}  # type: ignore[attr-defined]
    assert work_of(plain, {"N": 3}, "tf32_tensor") == {"flop": 6}, "what it does not ask for it is not given"
    assert work_of(by_roof, {"N": 3}, "tf32_tensor") == {"tensor_flop": 3}
    assert work_of(by_roof, {"N": 3}, "fp32") == {"fp32_flop": 3}


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 1e308, 10**400, "12", None, [1]])
def test_work_that_is_no_amount_is_refused(value: object) -> None:
    odd = ModuleType("odd")
    odd.work = lambda params: {"bytes": 8, "flop": value}  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"odd: work\(\) returns 'flop': expected a number from 0 to 1e30, found"):
        work_of(odd, {}, "fp32")


@pytest.mark.parametrize(
    ("body", "results"), [("return {'flop': params['M']}", "KeyError: 'M'"), ("return 3", "TypeError")]
)
def test_a_mistake_in_work_is_the_files_and_named_by_its_line(tmp_path: Path, body: str, results: str) -> None:
    functions = "make_inputs = reference = emulate = KINDS = TOLERANCES = FENCE = None\n"
    (tmp_path / "problem.py").write_text(f"{functions}def work(params):\n    {body}\n", encoding="utf-8")
    problem = load_problem(tmp_path, "problem.py")
    with pytest.raises(
        UsageError, match=rf"problem\.py:[13]: expected work\(\) to return amounts for .*, found {results}"
    ):
        work_of(problem, {"N": 3}, "fp32")


# --- callables that are variants ----------------------------------------------------------------
