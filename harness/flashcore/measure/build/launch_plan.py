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
from collections.abc import Iterable, Mapping, Sequence
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


def plans(
    suite: Suite, artifacts: Iterable[Artifact], shapes: Sequence[Shape], recorder: Recorder | None = None
) -> list[Plan]:
    """The launch plan of every variant that was built, on each of the shapes that it supports.

    If the variant refuses a shape, or its plan function crashes or hangs, its plan has that cause and no launches.

    Args:
        recorder: of the variants that are foreign launchers.
    """
    wanted: list[tuple[str, Path, dict[str, Question]]] = []
    launchers: dict[str, Artifact] = {}
    for artifact in artifacts:
        if artifact.plan_library is not None:
            variant = suite.variants[artifact.variant]
            problem = suite.problems[variant.problem]
            foreign = recorder if isinstance(variant.kind, ForeignLauncher) else None
            if foreign is not None:
                launchers[variant.name] = artifact
            sizes: dict[str, Question] = {}
            for s in shapes:
                if variant.runs_on(s):
                    recording = foreign.recording(problem, s, artifact.arch) if foreign is not None else {}
                    sizes[s.name] = ([int(s.params[d]) for d in problem.dims], recording)
            wanted.append((variant.name, Path(artifact.plan_library), sizes))
    known = {library: _cached(library) for _, library, _ in wanted}
    missing = [
        (library, new)
        for _, library, sizes in wanted
        if (new := [size for size in sizes.values() if _key(size) not in known[library]])
    ]
    for library, answers in _ask(missing).items():
        known[library].update(answers)
        # A missing answer may be due to a busy machine: the question is asked again next time.
        kept = {k: a for k, a in known[library].items() if not isinstance(_cause(a), PlanHung)}
        write_atomically(_cache(library), json.dumps(kept).encode())
    found = [
        _plan(name, shape, known[library][_key(size)])
        for name, library, sizes in wanted
        for shape, size in sizes.items()
    ]
    return [recorder.completed(p, launchers[p.variant]) if recorder and p.variant in launchers else p for p in found]


#: Dimensions, and the recording of a foreign launcher.
Question = tuple[Sequence[int], Mapping[str, Any]]


def _key(question: Question) -> str:
    sizes, recording = question
    return ",".join(map(str, [*sizes, *recording.get("key", ())]))


def _cache(library: Path) -> Path:
    return library.with_name("plans.json")


def _cached(library: Path) -> dict[str, Any]:
    try:
        answers = json.loads(_cache(library).read_bytes())
        return {k: a for k, a in answers.items() if a.keys() == _ANSWER}
    except (OSError, ValueError, AttributeError):
        return {}


def _ask(questions: Sequence[tuple[Path, list[Question]]]) -> dict[Path, dict[str, Any]]:
    """One child answers for all libraries. If it crashes, the reason is the answer to the question that it crashed on,
    and a new child takes the rest."""
    answers: dict[Path, dict[str, Any]] = {library: {} for library, _ in questions}
    pending = [(library, size) for library, sizes in questions for size in sizes]
    while pending:
        output, cause = _child([[str(library), question] for library, question in pending])
        for line in output.splitlines():
            library, size = pending.pop(0)
            answers[library][_key(size)] = json.loads(line)
        if not pending:
            break
        guilty, size = pending.pop(0)
        answer = {"cause": as_json(cause), "launches": [], "workspace": 0}
        answers[guilty][_key(size)] = answer
        if isinstance(cause, PlanHung):  # it would hang again on every other shape
            answers[guilty].update({_key(size): answer for library, size in pending if library == guilty})
            pending = [(library, size) for library, size in pending if library != guilty]
    return answers


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
    launches = tuple(
        Launch(
            *(_kernel(r["kernel"]), _three(r["grid"]), _three(r["block"]), _three(r["cluster"])),
            *(r["dynamic_smem"], r["programmatic"], r["cooperative"]),
        )
        for r in answer["launches"]
    )
    return Plan(variant, shape, launches, answer["workspace"], _cause(answer))


def _kernel(told: str) -> str:
    """The kernel's one name, of one that is mangled or that the compiler tells of ``flashcore::kernel_name``."""
    asked = re.search(r"kernel_name\(\) \[with .*?kernel = \(?&?(.*?)\)?\]$", told)
    return canonical(asked[1] if asked else told)


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    return (values[0], values[1], values[2])


def main() -> None:
    """The child: reads libraries with questions, writes one answer a line."""
    # What a plan prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for path, (sizes, recording) in json.load(sys.stdin):
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
            "launches": [
                {
                    "kernel": (r.kernel or b"?").decode(errors="replace"),
                    "grid": list(r.grid),
                    "block": list(r.block),
                    "cluster": list(r.cluster),
                    "dynamic_smem": r.dynamic_smem,
                    "programmatic": bool(r.programmatic),
                    "cooperative": bool(r.cooperative),
                }
                for r in records[: max(count, 0)]
            ],
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
