"""A candidate's launches on each shape: as it gives them, or as the planner makes them in the sandbox."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from flashcore.errors import CapabilityError, UsageError
from flashcore.measure.machine import python_process
from flashcore.model.suite import Shape, Suite, manifest_keys
from flashcore.plugins.judge import sandbox
from flashcore.plugins.judge.candidate import MANIFEST, Candidate, CandidateForm, Launches
from flashcore.plugins.judge.text import validated
from flashcore.plugins.launcher.plan import Word
from flashcore.suites.schema import Form


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
    task = {
        "root": str(root),
        "shown": str(shown),
        "candidate": str(one.folder),
        "problem": form.problem,
        "shapes": {shape.name: dict(shape.params) for shape in shapes},
        "arch": arch,
        "variant": {**form.variant, "tolerance": form.tolerance, "roof": form.roof},
    }
    command = python_process.command("flashcore.plugins.judge.planner")
    output = sandbox.run(command, json.dumps(task).encode(), [shown, one.folder])
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
