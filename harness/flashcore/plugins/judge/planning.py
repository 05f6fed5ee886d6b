"""A candidate's launches on each shape: as it gives them, or as the planner makes them in the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.suite import Shape, Suite
from flashcore.plugins.judge.candidate import Candidate


def launches(suite: Suite, one: Candidate, shapes: Sequence[tuple[Shape, bool]], arch: str) -> dict[str, list[Any]]:
    """Shape → launches, whose cubins are in the candidate's folder.

    Raises:
        UsageError: it does not compile, or a launch names no cubin of its folder.
        CapabilityError: nothing on this machine can confine its compilers.
    """
    made = {shape.name: one.form.launches for shape, _ in shapes}
    for launch in (launch for each in made.values() for launch in each):
        name = launch.get("cubin") if isinstance(launch, dict) else None
        if not isinstance(name, str) or "/" in name or not (one.folder / name).is_file():
            raise UsageError("launches: expected the name of a cubin in the candidate's folder")
    return made
