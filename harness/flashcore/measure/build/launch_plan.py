"""Asks built variants what they would launch, without a GPU and without torch.

A plan is the variant's own host code, so it runs in a child process: a crash or hang there affects nothing else.
Answers are cached beside the library, which is named by its content.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flashcore.measure.machine import python_process
from flashcore.model import plugin
from flashcore.model.causes import Cause, PlanCrashed, PlanHung, PlanRefused, as_json, from_json
from flashcore.model.files import write_atomically
from flashcore.model.record import Artifact, Launch, Plan
from flashcore.model.suite import ForeignLauncher, Problem, Shape, Suite
from flashcore.readers.kernel_names import canonical

TIME_LIMIT = 20.0
_CAPACITY = 32
_ANSWER = {"cause", "launches", "workspace"}


class _Record(ctypes.Structure):
    """``flashcore_launch_record`` of launch.h."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("dynamic_smem", ctypes.c_uint32),
        ("programmatic", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
    )


class Recorder(Protocol):
    """Records the launches of foreign launchers, which declare no plan; a plugin provides it."""

    def recording(self, problem: Problem, shape: Shape, arch: str) -> dict[str, Any]:
        """What a launcher is called with, as plain JSON.

        ``by`` is the reference of a function that a child calls with the library, this recording, and the arguments of
        ``flashcore_launch_plan``; ``key`` names the recording in the cache of plans.
        """
        ...

    def completed(self, plan: Plan, artifact: Artifact) -> Plan:
        """The plan with what a launch call does not name."""
        ...


@dataclass(frozen=True, slots=True)
class _Question:
    """What a built variant launches on a shape. ``recording`` is a foreign launcher's."""

    artifact: Artifact
    library: Path
    shape: str
    sizes: Sequence[int]
    recording: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Its key among the answers of its library."""
        return ",".join(map(str, [*self.sizes, *self.recording.get("key", ())]))


def plans(
    suite: Suite, artifacts: Iterable[Artifact], shapes: Sequence[Shape], recorder: Recorder | None = None
) -> list[Plan]:
    """The launch plan of every variant that was built, on each of the shapes that it supports.

    If the variant refuses a shape, or its plan function crashes or hangs, its plan has that cause and no launches.

    Args:
        recorder: of the variants that are foreign launchers.
    """
    foreign = {v.name for v in suite.variants.values() if recorder and isinstance(v.kind, ForeignLauncher)}
    questions: list[_Question] = []
    for artifact in artifacts:
        variant = suite.variants[artifact.variant]
        problem = suite.problems[variant.problem]
        for shape in shapes if artifact.plan_library is not None else ():
            if variant.runs_on(shape):
                recording: dict[str, Any] = {}
                if recorder and variant.name in foreign:
                    recording = recorder.recording(problem, shape, artifact.arch)
                sizes = [int(shape.params[d]) for d in problem.dims]
                questions.append(_Question(artifact, Path(artifact.plan_library or ""), shape.name, sizes, recording))
    answers = {q.library: _cached(q.library) for q in questions}
    missing = [q for q in questions if q.key not in answers[q.library]]
    for question, answer in _ask(missing):
        answers[question.library][question.key] = answer
    for library in {q.library for q in missing}:
        # A missing answer may be due to a busy machine: the question is asked again next time.
        kept = {key: a for key, a in answers[library].items() if not isinstance(_cause(a), PlanHung)}
        write_atomically(_cache(library), json.dumps(kept).encode())
    results: list[Plan] = []
    for q in questions:
        plan = _plan(q.artifact.variant, q.shape, answers[q.library][q.key])
        results.append(recorder.completed(plan, q.artifact) if recorder and plan.variant in foreign else plan)
    return results


def _cache(library: Path) -> Path:
    return library.with_name("plans.json")


def _cached(library: Path) -> dict[str, Any]:
    try:
        answers = json.loads(_cache(library).read_bytes())
        return {k: a for k, a in answers.items() if a.keys() == _ANSWER}
    except (OSError, ValueError, AttributeError):
        return {}


def _ask(questions: Sequence[_Question]) -> Iterator[tuple[_Question, dict[str, Any]]]:
    """One child answers for all libraries. If it crashes, the reason is the answer to the question that it crashed on,
    and a new child takes the rest."""
    pending = deque(questions)
    while pending:
        output, cause = _child([[str(q.library), q.sizes, q.recording] for q in pending])
        for line in output.splitlines():
            yield pending.popleft(), json.loads(line)
        if pending:
            guilty = pending[0]
            for q in list(pending):  # a library that hangs would hang again on every other shape
                if q is guilty or (isinstance(cause, PlanHung) and q.library == guilty.library):
                    pending.remove(q)
                    yield q, {"cause": as_json(cause), "launches": [], "workspace": 0}


def _child(questions: list[Any]) -> tuple[str, Cause]:
    """What a child wrote, in complete lines, and how it ended."""
    command = python_process.command("flashcore.measure.build.launch_plan")
    try:
        done = subprocess.run(
            command,
            input=json.dumps(questions).encode(),
            capture_output=True,
            check=False,
            timeout=TIME_LIMIT,
            env=python_process.environment(),
        )
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        cause: Cause = PlanHung(TIME_LIMIT)
    else:
        output = done.stdout
        cause = PlanCrashed(done.returncode, done.stderr.decode(errors="replace").strip()[-200:])
    return output[: output.rfind(b"\n") + 1].decode(), cause


def _cause(answer: Mapping[str, Any]) -> Cause | None:
    cause = answer["cause"] and from_json(answer["cause"])
    return cause if isinstance(cause, Cause) else None


def _plan(variant: str, shape: str, answer: Mapping[str, Any]) -> Plan:
    launches = []
    for launch in answer["launches"]:
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in launch.items()}
        launches.append(Launch(**plain | {"kernel": _kernel(launch["kernel"])}))
    return Plan(variant, shape, tuple(launches), answer["workspace"], _cause(answer))


def _kernel(told: str) -> str:
    """The kernel's one name, of one that is mangled or that the compiler tells of ``flashcore::kernel_name``."""
    asked = re.search(r"kernel_name\(\) \[with .*?kernel = \(?&?(.*?)\)?\]$", told)
    return canonical(asked[1] if asked else told)


def _plain(record: _Record) -> dict[str, Any]:
    """A launch as JSON."""
    dims = {name: list(getattr(record, name)) for name in ("grid", "block", "cluster")}
    flags = {name: bool(getattr(record, name)) for name in ("programmatic", "cooperative")}
    kernel = (record.kernel or b"?").decode(errors="replace")
    return {"kernel": kernel, **dims, "dynamic_smem": record.dynamic_smem, **flags}


def main() -> None:
    """The child: reads libraries with questions, writes one answer a line."""
    # What a plan prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for path, sizes, recording in json.load(sys.stdin):
        library = ctypes.CDLL(path)
        dims = (ctypes.c_int64 * len(sizes))(*sizes)
        records = (_Record * _CAPACITY)()
        workspace = ctypes.c_uint64()
        error = ctypes.c_char_p()
        out = (records, _CAPACITY, ctypes.byref(workspace), ctypes.byref(error))
        if recording:
            count = plugin.resolve(recording["by"])(library, recording, dims, *out)
        else:
            count = library.flashcore_launch_plan(dims, *out)
        refusal = PlanRefused((error.value or b"refused").decode(errors="replace"))
        answer = {
            "cause": as_json(refusal) if count < 0 else None,
            "workspace": workspace.value,
            "launches": [_plain(record) for record in records[: max(count, 0)]],
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
