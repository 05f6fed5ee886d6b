"""A candidate's launches on each shape: as it gives them, or as the planner makes them in the sandbox."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from flashcore.errors import CapabilityError, UsageError
from flashcore.measure.machine import python_process
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge import sandbox
from flashcore.plugins.judge.candidate import MOST_BYTES, Candidate
from flashcore.plugins.judge.text import untrusted, validated
from flashcore.plugins.launcher.plan import Word
from flashcore.suites.schema import Form


class _Answer(Form):
    """What the planner writes."""

    launches: dict[str, list[Any]] = Field(default={})
    workspaces: dict[str, dict[Word, Annotated[int, Field(ge=0)]]] = Field(default={})
    cubins: dict[Word, str] = Field(default={})
    error: str = ""
    incapable: bool = False


@dataclass(frozen=True, slots=True)
class Launches:
    """A candidate's launches and workspaces on a shape, as JSON with formulas, and the folder of their cubins."""

    launches: list[Any]
    workspaces: Mapping[str, Any]
    folder: Path


def launches(suite: Suite, one: Candidate, shapes: Sequence[tuple[Shape, bool]], arch: str) -> dict[str, Launches]:
    """Shape → launches, whose cubins are in the candidate's folder.

    Raises:
        UsageError: it does not compile, or a launch names no cubin of its folder.
        CapabilityError: nothing on this machine can confine its compilers.
    """
    form = one.form
    if form.variant:
        made = _compiled(suite, one, shapes, arch)
    else:
        every = form.launches if isinstance(form.launches, dict) else {s.name: form.launches for s, _ in shapes}
        made = {shape.name: Launches(every.get(shape.name, []), form.workspaces, one.folder) for shape, _ in shapes}
    for name, each in made.items():
        if not each.launches:
            raise UsageError(f"launches: expected some on {name}, found none")
        for launch in each.launches:
            file = launch.get("cubin") if isinstance(launch, dict) else None
            if not isinstance(file, str) or "/" in file or not (each.folder / file).is_file():
                raise UsageError("launches: expected the name of a cubin in the candidate's folder")
    return made


def _compiled(suite: Suite, one: Candidate, shapes: Sequence[tuple[Shape, bool]], arch: str) -> dict[str, Launches]:
    root, form = Path(suite.root).resolve(), one.form
    task = {
        "root": str(root),
        "candidate": str(one.folder),
        "problem": form.problem,
        "shapes": {shape.name: dict(shape.params) for shape, _ in shapes},
        "arch": arch,
        "variant": {**form.variant, "tolerance": form.tolerance, "roof": form.roof},
    }
    folders = [root, one.folder, (root / suite.problems[form.problem].file).parent]
    command = python_process.command("flashcore.plugins.judge.planner")
    output = sandbox.run(command, json.dumps(task).encode(), folders)
    try:
        answer = validated(_Answer, json.loads(output), "the planner's answer")
        contents = {name: base64.b64decode(text, validate=True) for name, text in answer.cubins.items()}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the planner's answer is not one: {untrusted(error)}") from None
    if answer.incapable:
        raise CapabilityError(untrusted(answer.error, 1000), "see flashcore doctor")
    if answer.error:
        raise UsageError(untrusted(answer.error, 1000))
    if sum(map(len, contents.values())) > MOST_BYTES:
        raise UsageError(f"expected at most {MOST_BYTES >> 20} MiB of cubins")
    folder = one.folder.parent / "compiled"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {
        shape.name: Launches(answer.launches.get(shape.name, []), answer.workspaces.get(shape.name, {}), folder)
        for shape, _ in shapes
    }
