"""The JSON Schema for editors: as committed, true of every manifest here, and no wider than the forms."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flashcore.suites import schema
from flashcore.suites.parts import MANIFEST
from tests.conftest import ROOT, TOY, flashcore
from tests.support.late import optional

jsonschema = optional("jsonschema")


def included(folder: Path) -> list[Path]:
    """The files that a manifest includes; others beside it are an extension's."""
    globs = tomllib.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("manifests", ())
    return [file for glob in globs for file in folder.glob(glob)]


COMMITTED = Path(schema.__file__).with_name("suite.schema.json")
#: Suites with keys of an extension.
OTHERS = {ROOT / "examples/languages"}
SUITES = [
    p.parent
    for folder in ("kernels", "examples", "tests/suites")
    for p in (ROOT / folder).glob(f"*/{MANIFEST}")
    if p.parent not in OTHERS
]
FILES = sorted(file for root in SUITES for file in (root / MANIFEST, *included(root)))


def test_the_committed_schema_is_the_one_of_the_forms() -> None:
    fix = "hint: flashcore list --schema > harness/flashcore/suites/suite.schema.json"
    assert COMMITTED.read_text(encoding="utf-8") == schema.schema_text(), fix


def test_the_command_line_prints_it(tmp_path: Path) -> None:
    done = flashcore("list", "--schema", cwd=tmp_path)  # where no suite is near
    assert (done.returncode, done.stdout) == (0, COMMITTED.read_text(encoding="utf-8"))


def test_every_key_has_a_meaning() -> None:
    form = json.loads(schema.schema_text())
    tables = {"": form, **form["$defs"]}
    keys = {f"{name} {key}": spec for name, t in tables.items() for key, spec in t.get("properties", {}).items()}
    assert len(keys) > 80 and not [key for key, spec in keys.items() if len(spec.get("description", "")) < 10]


def errors(data: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft7Validator(json.loads(schema.schema_text()))
    plain = json.loads(json.dumps(data, default=datetime.date.isoformat))
    return [e.json_path for e in validator.iter_errors(plain)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_manifest_here_is_valid_and_names_its_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert errors(tomllib.loads(text)) == []
    if ROOT / "tests" not in path.parents:
        directive = re.match(r"#:schema (\S+)\n", text)
        assert directive and (path.parent / directive[1]).resolve() == COMMITTED


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"tittle": "x"}, "$"),
        ({"archs": ["ampere"]}, "$.archs[0]"),
        ({"manifests": [1]}, "$.manifests[0]"),
        ({"shape": {"Big One": {"params": {}}}}, "$.shape"),
        ({"budget": [{"name": "a", "fact": "registres", "source": "s"}]}, "$.budget[0].fact"),
        ({"waiver": [{"budget": "a", "accepted": "1", "reason": "r"}]}, "$.waiver[0].accepted"),
    ],
)
def test_a_mistake_is_one_for_the_editor_too(change: dict[str, Any], where: str) -> None:
    data = tomllib.loads((TOY / MANIFEST).read_text(encoding="utf-8"))
    assert errors(data) == []
    assert where in errors({**data, **change})


def test_a_manifest_is_whole_or_a_part() -> None:
    data = tomllib.loads((TOY / MANIFEST).read_text(encoding="utf-8"))
    assert errors({"budget": data["budget"]}) == []
    assert errors({k: v for k, v in data.items() if k not in ("variant", "problem", "shape")}) == []
    assert errors({k: v for k, v in data.items() if k != "archs"}) == ["$"]


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (2**63 - 1, False), (2**63, True), (2**64, True), (-(2**63), False), (-(2**63) - 1, True), (1e30, False),
        (1.1e30, True), (-1.1e30, True), ("a\tb", False), ("a\x07b", True),
    ],
)  # fmt: skip
def test_what_no_key_may_hold_is_told_by_its_key(value: object, refused: bool) -> None:
    for data, key in (({"x": {"y": value}}, "x.y"), ({"x": [0, value]}, "x[1]")):
        message = schema.parse(data)
        assert isinstance(message, list) and (message[0][0] == key) is refused
