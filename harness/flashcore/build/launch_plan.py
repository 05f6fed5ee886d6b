"""Reads the launch plans of built variants, without a GPU and without torch.

A plan is computed by the variant's host code, so each one runs in a separate forked process, whose crash, hang,
symbols, state or output affect nothing else. No such process sees a GPU, so a plan is the same on every machine. Plans
are cached next to the library, by its content, unless its host code calls a function whose result may change.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from flashcore.build.unit import OBJECT
from flashcore.machine.isolated import Ended, isolated, started
from flashcore.model import cache, plugin
from flashcore.model.cause import Cause, as_json, from_json
from flashcore.model.causes import LAUNCHES_NOTHING, PLAN_CRASHED, LibraryLaunches, PlanHung, PlanRefused, PlanStopped
from flashcore.model.files import file_hash, text_hash
from flashcore.model.groups import grouped, with_tuples
from flashcore.model.record import Artifact, Launch, Plan
from flashcore.model.suite import ForeignLauncher, Problem, Shape, Suite
from flashcore.readers import host_code
from flashcore.readers.kernel_names import canonical

TIME_LIMIT = 20.0  # for each plan
_CAPACITY = 32
_CACHE = "plans"
#: The functions that host code may call if its plans are cached: the CUDA runtime, which has no GPU here, and pure
#: functions of C and C++. Any other may read a clock, a file, the environment or random numbers.
_STEADY = re.compile(
    r"_{0,2}cuda[A-Z]\w+|_Unwind_Resume|__(cxa|gxx|stack_chk)_\w+|_GLOBAL_OFFSET_TABLE_|__dso_handle|atexit|abort"
    r"|exit|__assert_fail|(__)?(mem(cpy|move|set)|v?snprintf)(_chk)?|mem(cmp|chr)|str(n?cmp|n?len|r?chr|str)"
    r"|(ceil|exp2?|floor|fmod|log(2|10)?|pow|l?l?round|sqrt|trunc)f?"
    r"|_Zn[aw]\w+|_Zd[al]\w+|_ZT[ISV]\w+|_ZSt\d+(__throw|_Hash_bytes|_Rb_tree)\w+|_ZNK?St7__cxx1112basic_stringIc\w+"
    r"|_ZNSt\d+(exception|invalid_argument|length_error|logic_error|out_of_range|runtime_error)[CD]\d\w*"
)


#: The functions by which host code launches kernels past its declared plan; ``<<<…>>>`` calls the first. Before CUDA 13
#: a kernel's own stub calls ``cudaLaunchKernel``, so that any kernel of these compilers may be launched.
_LAUNCHES = re.compile(
    r"__cudaPushCallConfiguration|cudaLaunch(Cooperative)?Kernel(_ptsz|MultiDevice)?|cuLaunch\w+|cu(da)?GraphLaunch\w*"
)
#: ``flashcore::run`` calls this one too, and a compiler puts both into one function: only the preprocessed text tells
#: them apart, by the lines that name files.
_EXTENDED = rb'(?m)^# \d+ "(.*?)"|cudaLaunchKernelEx'


class LaunchRecord(ctypes.Structure):
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

    def as_dict(self) -> dict[str, Any]:
        """The launch as plain data, with the fields of :class:`Launch`."""
        dims = {name: tuple(getattr(self, name)) for name in ("grid", "block", "cluster")}
        flags = {name: bool(getattr(self, name)) for name in ("programmatic", "cooperative")}
        kernel = (self.kernel or b"?").decode(errors="replace")
        return {"kernel": kernel, **dims, "dynamic_smem": self.dynamic_smem, **flags}


class Recorder(Protocol):
    """Records the launches of foreign launchers, which declare no plan; provided by a plugin."""

    def recording(self, problem: Problem, shape: Shape, artifact: Artifact) -> dict[str, Any]:
        """The arguments of a launcher and the device, as plain JSON.

        ``by`` references the function that a child calls with the library, this recording and the dimensions, and that
        returns what :func:`declared` does. All of it identifies the recording in the cache of plans.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Question:
    """Asks for a built variant's plan on a shape. ``recording`` is for foreign launchers."""

    artifact: Artifact
    library: Path
    shape: str
    sizes: Sequence[int]
    recording: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The question's key among its library's answers."""
        recording = text_hash(json.dumps(self.recording)) if self.recording else ""
        return ",".join(filter(None, (*map(str, self.sizes), recording)))


def may_launch_more(compiled: Path, text: bytes, root: str, declaring: Iterable[Path]) -> bool:
    """Whether host code has launches, such as ``<<<…>>>``, that no declared plan names.

    Args:
        compiled: its object file.
        text: its preprocessed text.
        root: the folder of relative names in the text.
        declaring: folders of headers that declare all launches.
    """
    if any(map(_LAUNCHES.fullmatch, host_code.undefined(compiled))):
        return True
    files, file = set[bytes](), b""
    for found in re.finditer(_EXTENDED, text):
        if found[1]:
            file = found[1]
        else:
            files.add(file)
    folders = [folder.resolve() for folder in declaring]
    return not all(any(map(Path(root, os.fsdecode(f)).resolve().is_relative_to, folders)) for f in files)


def plans(
    suite: Suite, artifacts: Iterable[Artifact], shapes: Sequence[Shape], recorder: Recorder | None = None
) -> list[Plan]:
    """The launch plan of each artifact on each shape that its variant supports.

    If the variant refuses a shape, or its plan function crashes or hangs, the plan has that cause and no launches.

    Args:
        recorder: records the plans of foreign launchers.
    """
    foreign = {v.name for v in suite.variants.values() if recorder and isinstance(v.kind, ForeignLauncher)}
    questions: list[_Question] = []
    for artifact in artifacts:
        variant = suite.variants[artifact.variant]
        problem = suite.problems[variant.problem]
        integers = [a.name.upper() for a in problem.arguments if a.kind == "int"]
        for shape in shapes if artifact.plan_library is not None else ():
            if variant.runs_on(shape):
                recording: dict[str, Any] = {}
                if recorder and variant.name in foreign:
                    recording = recorder.recording(problem, shape, artifact)
                sizes = [int(shape.params[d]) for d in problem.dims]
                sizes += [v if isinstance(v := shape.params.get(name), int) else 0 for name in integers]
                questions.append(_Question(artifact, Path(artifact.plan_library or ""), shape.name, sizes, recording))
    hashes = {library: file_hash(library) for library in {q.library for q in questions}}
    answers = {library: cache.recall(library.parent, _CACHE, key) or {} for library, key in hashes.items()}
    missing = {(q.library, q.key): q for q in questions if q.key not in answers[q.library]}
    groups = [*grouped((q.library, q) for q in missing.values()).values()]
    for _ in range(2):  # retry once, separately, if the machine stopped the process
        for question, answer in _ask(groups):
            answers[question.library][question.key] = answer
        groups = [[q] for q in missing.values() if isinstance(_cause(answers[q.library][q.key]), PlanStopped)]
    for library in {q.library for q in missing.values()}:
        # Timeouts may be due to a busy machine and are not cached.
        kept = {key: a for key, a in answers[library].items() if not isinstance(_cause(a), PlanHung | PlanStopped)}
        steady = all(map(_STEADY.fullmatch, host_code.undefined(library.with_name(OBJECT))))
        cache.keep(library.parent, _CACHE, hashes[library], kept if steady else {})
    return [_plan(q, answers[q.library][q.key], suite.variants[q.artifact.variant].libraries) for q in questions]


def _ask(groups: Iterable[list[_Question]]) -> Iterator[tuple[_Question, dict[str, Any]]]:
    """Each question of one library with its answer. A process per group starts those of its plans, since starting all
    of them here takes longer than the plans; as many groups run at the same time as there are processors."""
    running: deque[tuple[list[_Question], Iterator[Any]]] = deque()
    most = os.cpu_count() or 1
    for group in (*groups, *[[]] * most):  # the last ones only wait
        if running and (not group or len(running) == most):
            questions, process = running.popleft()
            answers = next(process)
            if isinstance(answers, Ended):
                answers = [_answered(answers)] * len(questions)
            yield from zip(questions, answers, strict=True)
        if group:
            process = started(TIME_LIMIT * (len(group) + 1), partial(_answers, group))
            next(process)
            running.append((group, process))


def _answers(questions: Iterable[_Question]) -> list[dict[str, Any]]:
    """A library's answers. After it hung on a shape, its other shapes are not tried."""
    answers: list[dict[str, Any]] = []
    for question in questions:
        hung = answers and isinstance(_cause(answers[-1]), PlanHung)
        answers.append(answers[-1] if hung else _answered(isolated(TIME_LIMIT, partial(_answer, question))))
    return answers


def _without_launches(cause: Cause) -> dict[str, Any]:
    return {"cause": as_json(cause), "launches": [], "workspace": 0}


def _cause(answer: Mapping[str, Any]) -> Cause | None:
    cause = answer["cause"] and from_json(answer["cause"])
    return cause if isinstance(cause, Cause) else None


def _plan(question: _Question, answer: Mapping[str, Any], libraries: Sequence[str]) -> Plan:
    launches = [Launch(**with_tuples(x) | {"kernel": _kernel(x["kernel"])}) for x in answer["launches"]]
    variant, arch = question.artifact.variant, question.artifact.arch
    cause = _cause(answer)
    if not cause and not launches:
        cause = LibraryLaunches(", ".join(libraries)) if libraries else LAUNCHES_NOTHING()
    return Plan(variant, question.shape, tuple(launches), answer["workspace"], cause, (arch,))


def _kernel(name: str) -> str:
    """The kernel's canonical name, from a mangled one or from the signature of ``flashcore::kernel_name``."""
    signature = re.search(r"kernel_name\(\) \[with .*?kernel = \(?&?(.*?)\)?\]$", name)
    return canonical(signature[1] if signature else name)


def _answered(answer: Any) -> dict[str, Any]:
    """The answer of a process that loads only one library and handles only one question."""
    if not isinstance(answer, Ended):
        return dict(answer)
    if answer.exit_code is None:
        return _without_launches(PlanHung(TIME_LIMIT))
    ending = PlanStopped if answer.exit_code == -signal.SIGKILL else PLAN_CRASHED
    return _without_launches(ending(answer.exit_code, answer.output))


def _answer(question: _Question) -> dict[str, Any]:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    library = ctypes.CDLL(str(question.library))
    dims = (ctypes.c_int64 * len(question.sizes))(*question.sizes)
    if recording := question.recording:
        return dict(plugin.resolve(recording["by"])(library, recording, dims))
    return declared(library, dims)


def declared(library: Any, dims: Any) -> dict[str, Any]:
    """The plan that a library declares, or the cause, as JSON."""
    records = (LaunchRecord * _CAPACITY)()
    workspace = ctypes.c_uint64()
    error = ctypes.c_char_p()
    count = library.flashcore_launch_plan(dims, records, _CAPACITY, ctypes.byref(workspace), ctypes.byref(error))
    if not 0 <= count <= _CAPACITY:
        message = error.value or (b"refused" if count < 0 else b"%d launches; a plan holds at most 32" % count)
        return _without_launches(PlanRefused(message.decode(errors="replace")))
    return {
        "cause": None,
        "workspace": workspace.value,
        "launches": [record.as_dict() for record in records[:count]],
    }
