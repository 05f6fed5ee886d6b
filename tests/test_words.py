"""The struck words: prose is plain technical English, understood at the first reading."""

from __future__ import annotations

import ast
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
#: What is not said → what is said instead.
STRUCK = {
    "to " + "mend:": "hint:",
    "chance " + "ends": "noise threshold",
    "became " + "of": "outcome",
    "its " + "door": "attributed to",
    "nobody is " + "at": "locked by process N",
    "nobody " + "said": "no reason was given",
    "nobody " + "asked": "not asked for",
    "gone " + "from the suite": "no longer in the suite",
    "held " + "by": "limited by",
}
#: The same for the package and its documentation alone. Idioms, and words for which the field has a term.
UNCLEAR = {
    "held against": "compared with",
    "came of": "the outcome of",
    "came to no end": "hung, or was ended",
    "the period of": "the launch-to-launch time of",
    "reckoned": "computed",
    "made ready": "set up",
    "nobody": "none, or no process",
    "whoever": "the process that",
    "behind our back": "by itself",
    "wrong door": "attributed to the wrong case",
    "lets go of": "releases",
    "takes nobody along": "affects no other",
    "what it said": "its output",
}
MOST_WORDS = 45  # in a sentence of the documentation
MOST_OF_DOCSTRINGS = 40
PROSE = {".py", ".md", ".html", ".js", ".toml", ".h", ".cuh", ".cu", ".cpp", ".yml", ".txt", ""}


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no checkout of git")
    names = done.stdout.split("\n")
    return [ROOT / name for name in names if Path(name).suffix in PROSE and (ROOT / name).is_file()]


def uses(file: Path, words: dict[str, str]) -> list[str]:
    text = re.sub(r"\s+(?:#:? )?", " ", file.read_text(encoding="utf-8", errors="replace"))
    return [
        f"{file.relative_to(ROOT)}: say {said!r}, not {word!r}"
        for word, said in words.items()
        if re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE)
    ]


def test_no_struck_word_is_left() -> None:
    left = ("profiles/", "experiments/", "tests/data/", "benchmarks/results/", "kernels/attention/fragment.py")
    wrong = [x for f in tracked() if not str(f.relative_to(ROOT)).startswith(left) for x in uses(f, STRUCK)]
    assert not wrong, "\n".join(wrong)


def documents() -> list[Path]:
    top = (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    return [f for f in tracked() if f in top or (f.suffix == ".md" and f.is_relative_to(ROOT / "docs"))]


def test_what_a_person_reads_has_microseconds_as_one_unit() -> None:
    """``us`` is its name in facts and files, and no part of a sentence or a heading."""
    package = ROOT / "harness" / "flashcore"
    wrong = []
    for file in (f for f in tracked() if f.suffix == ".py" and f.is_relative_to(package)):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}  # docstrings
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in prose):
            if isinstance(node.value, str) and node.value != "us" and re.search(r"(?<![\w.\[])us\b", node.value):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}: say µs: {node.value!r}")
    assert not wrong, "\n".join(wrong)


def test_the_package_and_its_documentation_use_the_terms_of_the_field() -> None:
    package = ROOT / "harness" / "flashcore"
    include = package / "build" / "include"  # part of every variant's hash: a word there makes recorded runs stale
    files = [f for f in tracked() if f.is_relative_to(package) and not f.is_relative_to(include)]
    wrong = [x for f in (*files, *documents()) if not f.name.endswith(".min.js") for x in uses(f, UNCLEAR)]
    assert not wrong, "\n".join(wrong)


def docstrings(file: Path) -> list[str]:
    """The paragraphs of all docstrings of a module, without tables: an entry below ``Args:`` or of a list is one."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    texts = [ast.get_docstring(n) or "" for n in nodes if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    parts = [re.split(r"\n\s*\n|\n(?=\s*[\w`*, ]+: )|\n(?=\s*(?:[-*]|\d\.) )|\n(?=(?:Args|Raises):)", t) for t in texts]
    return [part for own in parts for part in own if not re.search(r"\S {3,}\S", part)]


def test_sentences_of_docstrings_are_short() -> None:
    package = ROOT / "harness" / "flashcore"
    wrong = []
    for file in (f for f in tracked() if f.suffix == ".py" and f.is_relative_to(package)):
        sentences = [s for text in docstrings(file) for s in re.split(r"(?<=[.!?])\s+", text)]
        long = (s for s in sentences if len(s.split()) > MOST_OF_DOCSTRINGS)
        wrong += [f"{file.relative_to(ROOT)}: {len(s.split())} words: {s[:80]}" for s in long]
    assert not wrong, "\n".join(wrong)


def test_sentences_of_the_documentation_are_short() -> None:
    wrong = []
    for page in documents():
        marks = MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))
        prose = [t.content for before, t in pairwise(marks) if before.type == "paragraph_open"]
        sentences = [s for text in prose for s in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*(\[])", text)]
        wrong += [f"{page.name}: {len(s.split())} words: {s[:80]}" for s in sentences if len(s.split()) > MOST_WORDS]
    assert not wrong, "\n".join(wrong)
