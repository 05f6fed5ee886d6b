"""Mutants of a suite: what the operators touch, what counts as noticed, and who may be called equivalent."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from benchmarks.mutants import answers, drawing, gate, operators, trial
from benchmarks.mutants.gate import Said
from tests.conftest import ROOT

CODE = """// a + b
#include <x.h>
extern "C" __global__ void f(float* __restrict__ o, int n) {
  if (n < 2) g(o, n);  // n < 2
  __syncthreads();
  o[0] = n + 1 ? 0.5f : 2.0f;
}
"""


def test_code_is_mutated_and_comments_strings_and_includes_are_not() -> None:
    result = operators.code(CODE)
    assert {e.operator for e in result} == {
        "swap operator", "change number", "drop attribute", "drop statement", "exchange arguments"
    }  # fmt: skip
    assert all(e.text.startswith('// a + b\n#include <x.h>\nextern "C"') and e.text != CODE for e in result)
    assert all(e.text.count("// n < 2") == 1 for e in result if e.operator != "drop statement")
    assert "  if (n <= 2) g(o, n);  // n < 2" in {e.text.split("\n")[3] for e in result}


def test_lines_are_mutated_where_they_are_wanted() -> None:
    lines_of_source = operators.lines('# 1\nmax = 12\nlist = ["a", "b"]\n', lambda i, line: i != 2)
    assert {e.after for e in lines_of_source} == {
        "",
        "max = 12 ⏎ max = 12",
        "max = 13",
        "max = 11",
        "max = 24",
        "ma = 12",
    }


@pytest.mark.parametrize("seed", range(12))
def test_a_value_of_a_record_is_changed(seed: int) -> None:
    data = {"a": [1, {"b": 2.5}]}
    _, old, _ = operators.changed_leaf(data, ("a", 1, "b"), random.Random(seed))
    assert old == 2.5
    assert data != {"a": [1, {"b": 2.5}]} and data["a"][0] == 1


def test_the_sample_is_the_same_for_a_seed_and_of_every_group() -> None:
    first, again, other = (drawing.drawn(drawing.WHOLE, seed, ["host", "record"]) for seed in (1, 1, 2))
    assert first == again != other
    assert {m.group: len(drawing.drawn(drawing.WHOLE, 1, [m.group])) for m in first} == {"host": 26, "record": 50}
    assert all(m.text != (ROOT / "kernels/attention" / m.file.removeprefix("suite/")).read_text() for m in first
               if m.group in ("device", "header", "host", "manifest", "problem", "baseline"))  # fmt: skip


BEFORE = Said("", False, 0, {"spills v": ("pass", ""), "time v": ("unmeasured", "never measured")}, {})


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (BEFORE, ""),
        (Said(error="suite.toml: 1 mistake\n  x"), "refused: suite.toml"),
        (Said(error="Traceback\n  x\nKeyError: 'x'", crashed=True), "crash: KeyError"),
        (Said("", False, 1, {"spills v": ("fail", "12 > 0")}, {}), "gate: fails spills v: 12 > 0"),
        (Said("", False, 0, BEFORE.verdicts, {"v/s": "stale: the host code changed"}), "stale: the host code"),
        (Said("", False, 0, {"spills v": ("unmeasured", "gone")}, {}), "gate: unmeasured: spills v: gone"),
        (Said("", False, 3, BEFORE.verdicts, {}), "gate: exit 3, was 0"),
        (Said("", False, 0, BEFORE.verdicts, {}, notes=("gone: 3 facts",)), "gate: note: gone"),
        (Said("", False, 0, {"time v": ("pass", "")}, {}), ""),  # a limit that is gone, and nothing is said
    ],
)  # fmt: skip
def test_what_counts_as_noticed(after: Said, words: str) -> None:
    assert gate.noticed(BEFORE, after).startswith(words) and bool(gate.noticed(BEFORE, after)) == bool(words)


def test_a_record_is_changed_where_it_says(tmp_path: Path) -> None:
    subjects = [["case", "scalar_row", "mission"]]
    facts = [[0, "registers", 40, "registers", "cubin", ""]]
    path = tmp_path / "facts.json.gz"
    for operator, count in (("row dropped", 0), ("row doubled", 2), ("value changed", 1)):
        path.write_bytes(gzip.compress(json.dumps({"subjects": subjects, "facts": facts}).encode()))
        mutant = drawing.Mutant("record", path.name, operator, "", "", file=path.name, seed=3)
        trial.changed_record(path, mutant)
        result = json.loads(gzip.decompress(path.read_bytes()))["facts"]
        assert len(result) == count and result != facts


def test_every_mutant_of_an_answer_changes_it() -> None:
    names = [name for name, _, _ in answers.mutants()]
    assert len(set(names)) == len(names) > 40


def test_how_a_cubin_was_made_is_no_difference_and_what_it_does_is() -> None:
    note = '\t.section\t.note.nv.tkinfo,"",@"SHT_NOTE"\n\t.sectionflags\t@"X"\n\t.string "-w"\n'
    debug = '\t.section\t.debug_line,"",@progbits\n\t.byte 1\n'
    text = '\t.section\t.text.k,"ax",@progbits\n\t.sectionflags\t@""\n\tEXIT ;\n'
    assert gate._DEBUG.sub("", note + debug + text + note) == text
