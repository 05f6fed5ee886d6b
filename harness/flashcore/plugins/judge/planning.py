"""A candidate's launches on each shape: as it gives them, or as the planner makes them in the sandbox."""

from __future__ import annotations

import base64
import json
import shutil
import tomllib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from flashcore.errors import CapabilityError, UsageError
from flashcore.measure.machine import python_process
from flashcore.model.suite import Shape, Suite, manifest_keys
from flashcore.plugins.judge import sandbox
from flashcore.plugins.judge.candidate import MANIFEST, Candidate, CandidateForm, Launches
from flashcore.plugins.judge.text import validated
from flashcore.plugins.launcher.plan import Word
from flashcore.suites import parts
from flashcore.suites.schema import Form

#: The candidate's as a variant.
NAME = "candidate"


class _Answer(Form):
    """What the planner writes."""

    shapes: dict[str, Annotated[list[Launches], Field(max_length=64)]] = Field(default={})
    cubins: dict[Word, str] = Field(default={}, max_length=256)
    error: str = ""
    incapable: bool = False


class Planned(NamedTuple):
    """A candidate's launches by shape, and the folder of their cubins."""

    shapes: Mapping[str, Sequence[Launches]]
    cubins: Path


def planned(suite: Suite, one: Candidate, shapes: Sequence[Shape], arch: str) -> Planned:
    """The launches of a candidate.

    Raises:
        UsageError: it does not compile, or has no launches on a shape.
        CapabilityError: nothing on this machine can confine its compilers.
    """
    form = one.form
    if form.variant:
        made = _compiled(suite, one, shapes, arch)
    else:
        usual = (
            [Launches(launches=form.launches, workspaces=form.workspaces)] if isinstance(form.launches, list) else []
        )
        every = form.launches if isinstance(form.launches, dict) else {shape.name: usual for shape in shapes}
        made = Planned(every, one.folder)
    if missing := [shape.name for shape in shapes if not made.shapes.get(shape.name)]:
        raise UsageError(f"launches: expected some on {missing[0]}, found none")
    return made


def baseline(suite: Suite, arch: str, folder: Path) -> Planned:
    """The launches of the suite's baseline on the shapes that it is timed on.

    Raises:
        FlashcoreError: it has none, or they cannot be planned.
    """
    variant = suite.variants[suite.baseline]
    shapes = [s for s in suite.shapes.values() if variant.runs_on(s) and "bench" in s.stages]
    if variant.is_reference:
        raise UsageError("it has no kernels of its own")
    keys = {**manifest_keys(variant.kind), "config": dict(variant.config)}
    form = CandidateForm(
        name=variant.name, problem=variant.problem, tolerance=variant.tolerance, roof=variant.roof, variant=keys
    )
    sealed = folder / "sealed"
    sealed.mkdir(parents=True)
    return planned(suite, Candidate(sealed, "", form), shapes, arch)


def _left_out(root: Path, folder: str, names: list[str]) -> set[str]:
    """What no compiler needs of a suite: hidden files, runs, other candidates, pipes, links to nothing."""
    paths = {name: Path(folder, name) for name in names}
    return {
        name
        for name, path in paths.items()
        if name.startswith(".")
        or (path.parent == root and name in ("build", "profiles", "reports", "verdicts"))
        or (path / MANIFEST).exists()
        or not (path.is_dir() or path.is_file())
    }


def _compiled(suite: Suite, one: Candidate, shapes: Sequence[Shape], arch: str) -> Planned:
    root, form, shown = Path(suite.root).resolve(), one.form, one.folder.parent / "shown"
    included = ((root / suite.problems[form.problem].file).parent, *map(root.joinpath, suite.include))
    needed = {root, *(folder.resolve() for folder in included)}
    for folder in needed:
        if not needed.intersection(folder.parents):
            shutil.copytree(folder, Path(f"{shown}{folder}"), ignore=partial(_left_out, root))
    copied = Path(f"{shown}{root}")
    try:
        shutil.copytree(one.folder, copied, dirs_exist_ok=True)
    except OSError as error:
        raise UsageError(f"its files do not fit into the suite's: {error}") from None
    (copied / parts.MANIFEST).write_text(_manifest(suite, form, shapes, arch))
    output = sandbox.run(python_process.command("flashcore.plugins.judge.planner", str(copied)), [shown])
    try:
        answer = validated(_Answer, json.loads(output), "the planner's answer")
        contents = {name: base64.b64decode(text, validate=True) for name, text in answer.cubins.items()}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the planner's answer is not one: {error}") from None
    if answer.incapable:
        raise CapabilityError(f"its compilers say: {answer.error}", "see flashcore doctor")
    if answer.error:
        raise UsageError(answer.error)
    folder = one.folder.parent / "compiled"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return Planned(answer.shapes, folder)


def _manifest(suite: Suite, form: CandidateForm, shapes: Sequence[Shape], arch: str) -> str:
    """A manifest of the candidate alone, with what its problem and compilers need of the suite's."""
    root, left_out = Path(suite.root), {*parts.tables(), *parts.LISTS, "manifests", "notes"}
    manifest = tomllib.loads((root / parts.MANIFEST).read_text("utf-8"))
    texts = parts.included(root, manifest.get("manifests"))[0].values()
    problems = ChainMap(*(part.get("problem", {}) for part in (manifest, *(tomllib.loads(t.decode()) for t in texts))))
    variant = {**form.variant, "tolerance": form.tolerance, "roof": form.roof, "problem": form.problem}
    manifest = {key: value for key, value in manifest.items() if key not in left_out} | {
        "archs": [arch],
        "baseline": NAME,
        "problem": {form.problem: problems[form.problem]},
        "shape": {shape.name: {"params": dict(shape.params), "problem": form.problem} for shape in shapes},
        "variant": {NAME: {"technique": NAME, "tolerance_reason": NAME, **variant}},
    }
    return "".join(f"{key} = {_toml(value)}\n" for key, value in manifest.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
