"""A candidate's launches on each shape: as it gives them, or as the planner makes them in the sandbox."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from flashcore.errors import CapabilityError, UsageError
from flashcore.measure.machine import python_process
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge import sandbox
from flashcore.plugins.judge.candidate import MANIFEST, Candidate, CandidateForm, Launches
from flashcore.plugins.judge.text import validated
from flashcore.plugins.launcher.plan import Word
from flashcore.suites import parts
from flashcore.suites.schema import Form

#: The candidate's as a variant.
NAME = "judged_candidate"


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

    def of(self, shape: str) -> Sequence[Launches]:
        """The launches on a shape.

        Raises:
            UsageError: there are none.
        """
        if launches := self.shapes.get(shape):
            return launches
        raise UsageError(f"launches: expected some on {shape}, found none")


def planned(suite: Suite, one: Candidate, shapes: Sequence[Shape], arch: str) -> Planned:
    """The launches of a candidate.

    Raises:
        UsageError: it does not compile.
        CapabilityError: nothing on this machine can confine its compilers.
    """
    form = one.form
    if form.variant:
        return compiled(suite, NAME, shapes, arch, one.folder.parent, one)
    if isinstance(form.launches, dict):
        return Planned(form.launches, one.folder)
    usual = [Launches(launches=form.launches, workspaces=form.workspaces)]
    return Planned(dict.fromkeys((shape.name for shape in shapes), usual), one.folder)


def baseline(suite: Suite, arch: str, folder: Path) -> Planned:
    """The launches of the suite's baseline on the shapes that it is timed on.

    Raises:
        FlashcoreError: it has none, or they cannot be planned.
    """
    variant = suite.variants[suite.baseline]
    if variant.is_reference:
        raise UsageError("it has no kernels of its own")
    shapes = [s for s in suite.shapes.values() if variant.runs_on(s) and "bench" in s.stages]
    return compiled(suite, variant.name, shapes, arch, folder)


def needed(suite: Suite) -> set[Path]:
    """The folders of a suite's files."""
    root = Path(suite.root).resolve()
    problems = ((root / problem.file).resolve().parent for problem in suite.problems.values())
    return {root, *((root / path).resolve() for path in suite.include), *problems}


def _left_out(folders: set[Path], folder: str, names: list[str]) -> set[str]:
    """What no compiler needs of a suite: hidden files, runs, other candidates, pipes, links to nothing."""
    paths = {name: Path(folder, name) for name in names}
    return {
        name
        for name, path in paths.items()
        if name.startswith(".")
        or (path.parent in folders and name in ("build", "profiles", "reports", "verdicts"))
        or (path / MANIFEST).exists()
        or not (path.is_dir() or path.is_file())
    }


def compiled(
    suite: Suite, variant: str, shapes: Sequence[Shape], arch: str, folder: Path, one: Candidate | None = None
) -> Planned:
    """What the sandbox makes of a variant of the suite, or of a candidate that is added to it under that name.

    Raises:
        FlashcoreError: see :func:`planned`.
    """
    root, shown = Path(suite.root).resolve(), folder / "shown"
    folders = needed(suite)
    for path in folders:
        if not folders.intersection(path.parents):
            shutil.copytree(path, Path(f"{shown}{path}"), ignore=partial(_left_out, folders))
    copied = Path(f"{shown}{root}")
    if one:
        try:
            shutil.copytree(one.folder, copied, dirs_exist_ok=True)
        except OSError as error:
            raise UsageError(f"its files do not fit into the suite's: {error}") from None
        manifest = (root / parts.MANIFEST).read_text("utf-8") + _tables(suite, one.form, shapes)
        (copied / parts.MANIFEST).write_text(manifest, "utf-8")
    words = (str(copied), variant, arch, *(shape.name for shape in shapes))
    output = sandbox.run(python_process.command("flashcore.plugins.judge.planner", *words), [shown])
    try:
        answer = validated(_Answer, json.loads(output), "the planner's answer")
        contents = {name: base64.b64decode(text, validate=True) for name, text in answer.cubins.items()}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the planner's answer is not one: {error}") from None
    if answer.incapable:
        raise CapabilityError(f"its compilers say: {answer.error}", "see flashcore doctor")
    if answer.error:
        raise UsageError(answer.error)
    cubins = folder / "compiled"
    cubins.mkdir()
    for name, content in contents.items():
        (cubins / name).write_bytes(content)
    return Planned(answer.shapes, cubins)


def _tables(suite: Suite, form: CandidateForm, shapes: Sequence[Shape]) -> str:
    """A candidate and its drawn shapes, as more tables of the suite's manifest."""
    fixed = {"tolerance": form.tolerance, "roof": form.roof, "problem": form.problem}
    drawn = [shape for shape in shapes if shape.name not in suite.shapes]
    tables: dict[str, dict[str, Any]] = {
        f"variant.{NAME}": {"technique": NAME, "tolerance_reason": NAME, **form.variant, **fixed}
    }
    tables |= {f"shape.{s.name}": {"params": dict(s.params), "problem": form.problem} for s in drawn}
    return "".join(f"\n[{name}]\n{''.join(starmap(_toml, table.items()))}" for name, table in tables.items())


def _toml(key: str, value: Any) -> str:
    """A line of a table. JSON's values are TOML's, but for the sign after a key."""
    return f"{json.dumps(key)} = {json.dumps(value, separators=(',', '='))}\n"
