"""What is done to a candidate before any kernel of it runs: sealing, drawing shapes, planning, inspection.

Its launches on each shape are given, or the planner makes them in the sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Base64Bytes, Field

from flashcore.errors import CapabilityError, UsageError
from flashcore.machine import python_process
from flashcore.model.groups import picked
from flashcore.model.suite import Shape, Suite
from flashcore.runner.kernel_call import KernelCall
from flashcore.suites import load, parts
from flashcore.suites.schema import Form
from flashcore_judge import candidate, draws, inspection, sandbox
from flashcore_judge.candidate import MANIFEST, ByShape, CandidateForm, validated
from flashcore_judge.launcher.plan import Word
from flashcore_judge.measuring import Runnable
from flashcore_judge.verdict import Verdict, untrusted

#: The candidate's as a variant.
NAME = "judged_candidate"


class Planned(Form):
    """Launches by shape, and their cubins: a candidate's, or what the planner writes."""

    shapes: ByShape
    cubins: dict[Word, Base64Bytes] = Field(max_length=256)

    def runnable(self, case: KernelCall, scalars: Mapping[str, Any]) -> Runnable:
        """Those on a case for these numbers of the operator.

        Raises:
            CapabilityError: there are none.
        """
        for given in self.shapes.get(case.shape, ()):
            if given.numbers.items() <= scalars.items():
                return Runnable(candidate.plan(case, given, scalars), self.cubins)
        raise CapabilityError(f"{case.shape}: it has no launches for {dict(scalars)}", "give formulas of the numbers")


class Prepared(NamedTuple):
    """A candidate that may run, with its shapes and launches."""

    form: CandidateForm
    shapes: Sequence[Shape]
    plans: Planned
    state: Sequence[tuple[str, str]]  # cubin and name of global variables


def begun(suite: Suite, source: Path) -> Verdict:
    """The verdict on a candidate that is not sealed yet."""
    files = (parts.MANIFEST, *suite.manifests, *(p.file for p in suite.problems.values()))
    return Verdict(
        candidate=parts.digest({"path": os.fsencode(source.absolute())}),
        suite=suite.name,
        suite_hash=parts.digest({file: Path(suite.root, file).read_bytes() for file in files}),
        untrusted={"name": untrusted(source.name)},
    )


def prepared(verdict: Verdict, suite: Suite, arch: str, source: Path, folder: Path, seconds: float) -> Prepared:
    """Prepares the candidate in ``source``. ``folder`` is for its files. To read its launches may take so many seconds.

    Raises:
        UsageError: it is wrong, or its cubins are refused, for each of these reasons.
        CapabilityError: the machine is at fault, or it takes too long.
    """
    files, verdict.candidate, form = candidate.sealed(source)
    verdict.untrusted = {"name": untrusted(form.name)}
    verdict.claims = picked(form, "problem", "tolerance", "roof", "deterministic", "shapes")
    by_shape = form.launches if isinstance(form.launches, dict) else {}
    shapes = draws.shapes(suite, form.problem, form.shapes, fixed=bool(by_shape))
    for key in ("tolerance", "roof"):
        allowed = {getattr(v, key) for v in suite.variants.values() if v.problem == form.problem}
        if verdict.claims[key] not in allowed:
            raise UsageError(f"{key}: expected one of {', '.join(sorted(allowed))}")
    if form.variant:
        added = {**files, parts.MANIFEST: _manifest(suite, form, shapes)}
        plans = compiled(suite, NAME, shapes, arch, folder, added)
    else:
        plans = Planned.model_construct(shapes=by_shape or {s.name: [form] for s in shapes}, cubins=files)
    launched, until = defaultdict[str, set[str]](set), time.monotonic() + seconds
    for shape in shapes:
        if not (every := plans.shapes.get(shape.name)):
            raise UsageError(f"launches: expected some on {shape.name}, found none")
        case = KernelCall.of(suite, form.problem, shape, variant=NAME, tolerance=form.tolerance)
        for given in every:
            if time.monotonic() > until:
                raise CapabilityError("its launches took longer than its limit", "give it more with --limit")
            for launch in candidate.plan(case, given, {a.name: 1 for a in case.arguments}).launches:
                launched[launch.cubin].add(untrusted(launch.kernel))
    reasons, state = list[str](), list[tuple[str, str]]()
    for name, kernels in sorted(launched.items()):
        inspected = inspection.inspect(name, plans.cubins.get(name, b""), arch)
        facts = {each["kernel"]: each for each in inspected.kernels}
        verdict.kernels += [facts[kernel] for kernel in facts if kernel in kernels]
        reasons += inspected.reasons or [f"{name}: it has no kernel {kernel}" for kernel in kernels - facts.keys()]
        state += [(name, variable) for variable in inspected.state]
    if reasons:
        raise UsageError(*reasons[:20])
    return Prepared(form, shapes, plans, state)


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


def _left_out(folders: Collection[Path], folder: str, names: list[str]) -> set[str]:
    """What no compiler needs of a suite: hidden files, runs, other candidates, pipes, links to nothing."""
    return {
        name
        for name in names
        if (path := Path(folder, name)).name.startswith(".")
        or (path.parent in folders and name in ("build", "profiles", "reports", "verdicts"))
        or (path / MANIFEST).exists()
        or not (path.is_dir() or path.is_file())
    }


def compiled(
    suite: Suite, variant: str, shapes: Sequence[Shape], arch: str, folder: Path, added: Mapping[str, bytes] = {}
) -> Planned:
    """What the sandbox makes of a variant of the suite, to which files are added.

    Raises:
        UsageError: it does not compile.
        CapabilityError: nothing on this machine can confine its compilers.
    """
    folders, shown = load.folders(suite), folder / "shown"
    for path in folders:
        if not {*folders} & {*path.parents}:
            shutil.copytree(path, Path(f"{shown}{path}"), ignore=partial(_left_out, folders))
    root = Path(f"{shown}{folders[0]}")
    try:
        for name, content in added.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).unlink(missing_ok=True)  # it may be read-only
            (root / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"its files do not fit into the suite's: {error}") from None
    words = (str(root), variant, arch, *(shape.name for shape in shapes))
    output = sandbox.run(python_process.command("flashcore_judge.planner", *words), [shown])
    return validated(Planned, output, "the planner's answer")


def _manifest(suite: Suite, form: CandidateForm, shapes: Sequence[Shape]) -> bytes:
    """The suite's manifest, with tables of a candidate and its drawn shapes."""
    variant = {
        "technique": NAME,
        "tolerance_reason": NAME,
        **form.variant,
        **picked(form, "problem", "tolerance", "roof"),
    }
    tables = {f"variant.{NAME}": variant} | {
        f"shape.{s.name}": {"params": dict(s.params), "problem": form.problem}
        for s in shapes
        if s.name not in suite.shapes
    }
    lines = [Path(suite.root, parts.MANIFEST).read_text("utf-8")]
    for name, table in tables.items():
        lines.append(f"\n[{name}]\n")
        # JSON's values are TOML's, but for the sign after a key.
        lines += [f"{json.dumps(key)} = {json.dumps(x, separators=(',', '='))}\n" for key, x in table.items()]
    return "".join(lines).encode()
