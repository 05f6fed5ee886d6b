"""The line of every key in a manifest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import ManifestError
from flashcore.suites import budgets, load
from flashcore.suites.lines import declaration, lines, located
from tests.conftest import ROOT, TOY

FILES = sorted(
    path for folder in ("harness", "kernels", "examples", "tests") for path in (ROOT / folder).rglob("*.toml")
)


def paths(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The path of every key and entry, as the library has read them, and its last name."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inner:
        name = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
        yield name, str(key)
        yield from paths(entry, name)


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_line_names_its_key(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    names, places = dict(paths(tomllib.loads(text))), lines(text)
    rest = [line for line in text.splitlines() if re.match(r"""\[|[\w.\-"']+ *=""", line)]
    assert set(places) <= set(names) and len(set(places.values())) >= len(rest)
    for path, line in places.items():
        assert names[path].isdecimal() or names[path] in text.splitlines()[line - 1], path


TEXT = r"""
words = '''
[variant.a]
config = 1'''
[ variant . "n{n}" ] # = [x]
config = { A = 1.5, "B" = [
    1, # ]
    "x = ]",
], C.D = 2026-01-01 08:00:00 }
where.shapes = []
[[variant."n{n}".predictions]]
fact = QQQx
max = 1QQQ
[[variant."n{n}".predictions]]
[[gate.rule]]
[gate.rule.x]
""".replace("QQQ", '"' * 3)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("words", 2), ("variant.n{n}", 5), ("variant.n{n}.source", 5), ("variant.n{n}.config.B[1]", 6),
        ("variant.n{n}.where.shapes[0]", 10), ("variant.n{n}.predictions[0].fact", 12),
        ("variant.n{n}.predictions[0].max", 11), ("variant.n{n}.predictions[1]", 14), ("gate.rule[0].x.y", 16),
        ("title", 1), ("word", 1),
    ],
)  # fmt: skip
def test_a_mistake_is_at_its_key_or_at_what_is_around_it(key: str, line: int) -> None:
    assert set(lines(TEXT)) <= set(dict(paths(tomllib.loads(TEXT))))
    assert located("f", TEXT.encode(), key, "expected") == f"f:{line}: {key}: expected"


def test_a_key_that_resembles_another_is_itself() -> None:
    text = b'"budget[0] (x)" = 1\n[[budget]]\nname = "x"\n'
    assert located("f", text, "budget[0] (x)", "expected no such key").startswith("f:1: ")


def test_a_swept_variant_is_declared_by_its_template(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(TEXT, encoding="utf-8")
    files = ("suite.toml", "more.toml")
    assert declaration(tmp_path, files, "n4") == (tmp_path / "more.toml", "variant.n{n}", 5)
    assert declaration(tmp_path, files, "a") == (tmp_path / "more.toml", "", 1), "there is no other"
    (tmp_path / "suite.toml").touch()
    assert declaration(tmp_path, files, "a") == (tmp_path / "suite.toml", "", 1)


def test_mistakes_name_file_and_line(tmp_path: Path) -> None:
    text = (TOY / "suite.toml").read_text(encoding="utf-8").replace('parent = "plain"', 'parent = "plane"')
    (tmp_path / "suite.toml").write_text(f"nvcc_ = 1\n{text}", encoding="utf-8")
    (tmp_path / "budgets.toml").write_text('[[budget]]\nname = "a"\nmax = 1\nfact = "regs"\n', encoding="utf-8")
    with pytest.raises(ManifestError) as manifest:
        load.load(tmp_path)
    with pytest.raises(ManifestError) as of_budgets:
        budgets.read(tmp_path / "budgets.toml")
    assert [m.partition(": expected")[0] for m in manifest.value.mistakes] == ["suite.toml:1: nvcc_"]
    assert [m.partition(": expected")[0] for m in of_budgets.value.mistakes] == ["budgets.toml:4: budget[0].fact"]
