"""Raw data of a benchmark: written, and enough to print its figures again."""

from __future__ import annotations

import argparse
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import raw
from tests.conftest import ROOT

SECONDS = [1.0, 1.5, 9.0]
#: What each benchmark writes, made up; and what its figures must show.
FOUND: dict[str, tuple[dict[str, Any], str]] = {
    "build": ({"machine": "m", "suite": "s", "arch": "sm_80", "variants": ["a", "b"], "of": 3, "clean": 2.0,
               "load": [10.0, 20.0], "how": "linked", "unchanged": SECONDS, "python": [0.5]}, "15.0 ×"),
    "profile": ({"machine": "m", "suite": "s", "cases": ["a/b"], "of": 1, "stage": [3.0], "ncu": [2.0]}, "1.500 ×"),
    "crosscheck": ({"machine": "m", "suite": "s", "ours": {"a/b": [300.0]}, "nvbench": {"a/b": [301.0]}}, "agree"),
    "gate": ({"machine": "m", "suite": "s", "rows": [{"what": "x", "target": 2, "runs": [
        {"seconds": s, "cpu": 1.0, "memory": 9.0, "code": 0} for s in SECONDS]}]}, "1.50 s"),
    "frames": ({"machine": "m", "import": 1.0, "runs": [
        {"read": 0.5, "run": "r", "facts": 50_000, "made": {"facts_frame": {"clock": SECONDS, "cpu": SECONDS}}}]},
        "1.500 s per 50,000 facts"),
    "loop": ({"machine": "m", "suite": "s", "variant": "v", "rows": [{"what": "x", "target": 2, "runs": [
        {"seconds": s, "cpu": 1.0, "memory": 9.0, "code": 0, "stages": {"bench": 0.75}, "gpu": "H200"}
        for s in SECONDS]}]}, "0.75 s   50 %"),
    "kills": ({"machine": "m", "kills": [{"scenario": "build", "after": 1.0, "of": 2.0, "wrong": []}],
               "ends": {"build": []}}, "1 kills; nothing torn"),
    "gpus": ({"machine": "m", "scale": [{"cases": 1000, "standins": 4, "uses": 4, "ideal_s": 10.0, "bare_s": 10.2,
              "wall_s": 10.4, "cpu_s": 0.2, "mib": 30.0, "at_kill": 500, "lost": 0, "twice": 0}]},
             "10.4 s, ideal 10.0 s (+4.0 %); a bare loop 10.2 s (+2.0 %), to which sharing adds +2.0 %"),
    "mutation": ({"machine": "m", "mutants": [{"module": "a", "line": 1, "operator": "o", "before": "b", "after": "c",
                  "outcome": "killed"}]}, "1 of 1 killed"),
    "mutants": ({"machine": "m", "run": "r", "variants": ["v"], "mutants": [
        {"group": "device", "place": "p", "operator": "o", "before": "b", "after": "c", "published": "stale",
         "same_compilers": "", "equivalent": "same code", "outcome": "equivalent"}]}, "1 mutants, 0 left"),
    "holes": ({"machine": "m", "mutants": [
        {"class": "plans", "number": 0, "control": n == 0, "what": "w", "outcome": o, "words": "x", "seconds": 1.0}
        for n, o in enumerate(("equivalent", "noticed", "left"))]}, "2 mutants, 0 wrong; 3 s"),
}  # fmt: skip


def benchmark(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}{'.__main__' * (name in ('mutants', 'holes'))}")


@pytest.mark.parametrize("name", FOUND)
def test_figures_are_made_of_the_raw_data_alone(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, figure = FOUND[name]
    raw.write(tmp_path / "x.json", name, argparse.Namespace(json="x.json", rounds=3), result)
    assert benchmark(name).main(["--from", str(tmp_path / "x.json")]) == 0
    assert figure in capsys.readouterr().out


def test_what_was_measured_is_written_with_what_it_is_of(tmp_path: Path) -> None:
    file = tmp_path / "x.json"

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rounds", type=int, default=3)

    requested = ["--json", str(file), "--rounds", "5"]
    assert raw.main("x.py", "X.", add, lambda o: {"seconds": [o.rounds]}, lambda f: [str(f)], requested) == 0
    whole = json.loads(file.read_text())
    assert (whole["benchmark"], whole["arguments"], whole["found"]) == ("x", {"rounds": 5}, {"seconds": [5]})
    assert re.fullmatch(r"\d{4}-.*Z", whole["utc"]) and "sources" in whole


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"benchmark": "other", "found": {}}', "[" * 100_000])
def test_another_file_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    assert raw.main("x.py", "X.", lambda _: None, lambda _: {}, lambda _: [], ["--from", str(file)]) == 2
    assert "expected raw data of benchmarks.x" in capsys.readouterr().err


def test_every_figure_has_its_command_and_committed_data_print_theirs() -> None:
    folder = ROOT / "benchmarks/results"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    recorded = {file.name.split(".")[0] for file in raw.recorded(folder)}
    for name in ("against", *FOUND):
        command = f'make bench-{name} ARGS="--json benchmarks/results/{name}'
        assert command in listed if name in recorded else f"`bench-{name}`" in listed, name
    for file in raw.recorded(folder):
        name = file.name.split(".")[0]
        assert benchmark(name).table(raw.read(file, name)), file.name
