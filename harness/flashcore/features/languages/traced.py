"""Compiles Python functions that launch a language's kernels, and records their launches, without a GPU.

A child calls each function with stand-ins for its tensors (:mod:`flashcore.features.languages.compile_child`). The
result is cached in a folder of the variant and arch, named by a hash of the task, the compiler's version and its
environment. It lists the hashes of the files that were read; if they are unchanged, nothing is compiled again. Kernels
that were recorded on a GPU are copied into such a folder.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from flashcore.build.workplace import made_in
from flashcore.errors import CapabilityError
from flashcore.features.languages.launches import Call, difference
from flashcore.machine import python_process, toolchain
from flashcore.model import cache, plugin
from flashcore.model.causes import UNSUPPORTED_ARCH, Hang, PlanRefused
from flashcore.model.files import content_hash, file_hash, text_hash, writing
from flashcore.model.record import Artifact, Dim3, Launch, Plan
from flashcore.model.suite import AheadOfTime, Shape, Suite, Variant, manifest_keys
from flashcore.readers import cubin
from flashcore.readers.compiler_log import failed

ANSWER, TRACED, LOG = "answer.json", "traced", "variant.log"
_FORMAT = 8  # of the cached result; increment it when that changes
LIMIT = 300  # seconds for one variant and arch; one that hangs is not waited for on its other archs


@dataclass(frozen=True, slots=True)
class _Unit:
    variant: Variant
    arch: str
    folder: Path
    task: dict[str, Any]


class Compiler(Protocol):
    """A module that compiles a language's kernels. Only children call it, so that it may import the language."""

    def prepare(self) -> tuple[type, ...]:
        """Imports the language; the types of its kernels."""

    def launches(
        self, function: Callable[..., Any], arguments: Sequence[Any], config: Mapping[str, Any], arch: str
    ) -> list[Call]:
        """What a function launches on one shape: cubins with line tables, their compiler's remarks, and launches.

        Args:
            arguments: the operator's; each tensor a :class:`flashcore.features.languages.launches.StandIn`.

        Raises:
            ValueError, NotImplementedError: the function refuses the shape.
        """


@dataclass(frozen=True, slots=True)
class Package:
    """The distribution of a compiler; ``install`` is what to ask pip for, if that is not its name."""

    name: str
    install: str = ""

    @property
    def version(self) -> str | None:
        """The installed release; ``None`` without one."""
        return toolchain.version_of(self.name)


@dataclass(eq=False)
class Traced:
    """A :class:`flashcore.model.languages.Language` whose kernels a :class:`Compiler` compiles.

    Args:
        package: its version is the compiler's.
        compiler: the compiler's module.
        variables: the prefix of environment variables that change what is compiled.
        recorder: names a context with the launches of the function as it runs on a GPU.
        launcher: without a recorder, names the function that launches kernels from their cubins; see ``launcher`` of
            :class:`flashcore.model.languages.Language`.
    """

    name: str
    package: Package
    compiler: str
    variables: str = "FLASHCORE_NONE"
    recorder: str = ""
    launcher: str = ""

    @property
    def version(self) -> str | None:
        """The compiler's release; ``None`` if it is not installed."""
        return self.package.version

    def build(self, suite: Suite, folder: Path, archs: Sequence[str], variants: Iterable[Variant]) -> list[Artifact]:
        """Compiles the variants for each arch.

        Raises:
            CapabilityError: the language is not installed, and there is no build of these sources.
            WriteError: the build folder cannot be written.
        """
        artifacts: list[Artifact] = []
        units: list[_Unit] = []
        for variant in variants:
            for arch in archs:
                if arch in variant.where.archs:
                    units.append(self._unit(suite, folder / suite.name, variant, arch))
                else:
                    cause = UNSUPPORTED_ARCH(variant.where.archs, variant.where.unsupported.get(arch, ""))
                    artifacts.append(Artifact(variant.name, arch, "unsupported", cause))
        missing = [u for u in units if not _is_made(u, suite)]
        started = time.monotonic()
        if missing:
            self._make(missing, folder / suite.name, suite)
        seconds = round(time.monotonic() - started, 3)
        return [*artifacts, *(_artifact(u, seconds if u in missing else None) for u in units)]

    def in_use(self, suite: Suite, folder: Path, variants: Iterable[Variant]) -> set[Path]:
        """The cache folders of the variants' present sources."""
        root = folder / suite.name
        return {self._unit(suite, root, v, arch).folder for v in variants for arch in v.where.archs}

    def plans(self, artifact: Artifact, shapes: Iterable[Shape], *, possible: bool = False) -> list[Plan]:
        """The launch plan on each traced shape, for the artifact's arch.

        Args:
            possible: also where only a GPU knows the plan: every configuration of what is tuned while it runs, and
                every kernel that was recorded, without grids.
        """
        traced = _traced(Path(artifact.log or "").parent) if artifact.cubins else {}
        by_shape: Mapping[str, Any] = traced.get("shapes", {})
        by_name = {s.name: by_shape[s.name] for s in shapes if s.name in by_shape}
        return [
            _plan(artifact, shape, traced)
            for shape, traced in by_name.items()
            if possible or all(len(call) == 1 and "arguments" in call[0] for call in traced["calls"])
        ]

    def calls(self, artifact: Artifact, shape: str) -> list[list[dict[str, Any]]]:
        """The launches of a variant on a shape. Each is a list of possible configurations, as
        :attr:`flashcore.features.languages.launches.Call.identity`."""
        traced = _traced(Path(artifact.log or "").parent)
        return _unnamed(traced["shapes"][shape]["calls"]) if traced and shape in traced["shapes"] else []

    def run(
        self, call: Callable[[], object], names: Mapping[int, str], expected: Sequence[Sequence[Mapping[str, Any]]]
    ) -> str:
        """Calls the variant; returns how its launches differ from the expected ones, or an empty text."""
        if not self.recorder:
            return f"kernels of {self.name} are launched from their cubins, whose launch plan is unmeasured"
        with plugin.resolve(self.recorder)(names, launch=True) as ran:
            call()
        return difference(expected, [one.identity for one in ran])

    def _unit(self, suite: Suite, root: Path, variant: Variant, arch: str) -> _Unit:
        task = {
            **manifest_keys(variant.kind),
            "config": dict(variant.config),
            "arch": arch,
            "arguments": [asdict(a) for a in suite.problems[variant.problem].arguments],
            "shapes": {s.name: dict(s.params) for s in suite.shapes.values() if variant.runs_on(s)},
        }
        given = {n: v for n, v in os.environ.items() if n.startswith(self.variables) and not n.endswith("CACHE_DIR")}
        work = _hash([_FORMAT, self.name, task])[:16]

        def unit(version: str | None) -> _Unit:
            key = _hash([work, version, given])[:16]
            folder = root / f"{variant.name}-{arch}-{key}"
            return _Unit(variant, arch, folder, {**task, "root": str(Path(suite.root).resolve())})

        if self.version or not isinstance(variant.kind, AheadOfTime):
            return unit(self.version)
        for folder in sorted(root.glob(f"{variant.name}-{arch}-*")):  # from a machine that has the language
            made = unit(_traced(folder).get("compiler", "").rpartition(" ")[2])
            if made.folder == folder and _is_made(made, suite):
                return made
        raise CapabilityError(
            f"no {self.package.name} on this machine, nor a build of {variant.name}'s present sources",
            f"pip install '{self.package.install or self.package.name}'",
        )

    def _make(self, units: Sequence[_Unit], root: Path, suite: Suite) -> None:
        """Compiles the units in a temporary folder, and moves complete results to their final names."""
        with made_in(root) as place:
            folders = {(place / str(i)).resolve(): unit for i, unit in enumerate(units)}
            tasks = []
            for made, unit in folders.items():
                made.mkdir()
                if isinstance(unit.variant.kind, AheadOfTime):
                    tasks.append({**unit.task, "variant": unit.variant.name, "folder": str(made)})
                else:
                    (made / ANSWER).write_text(json.dumps(_recorded(unit, made)), encoding="utf-8")
            output = self._child(tasks, place, lambda made: self._keep(folders.pop(made), made, suite)) if tasks else ""
            for made, unit in folders.items():
                self._keep(unit, made, suite, output[-4000:].strip())

    def _keep(self, unit: _Unit, made: Path, suite: Suite, output: str = "") -> None:
        """Moves a unit's result to its final name."""
        traced: dict[str, Any] = {"error": output or "no reason was given"}
        with contextlib.suppress(OSError, ValueError):
            traced = json.loads((made / ANSWER).read_bytes())
        if "read" in traced:
            logs = [(made / file).with_suffix(".log") for file in traced["kernels"].values()]
            (made / LOG).write_text("".join(log.read_text("utf-8") for log in logs if log.is_file()), "utf-8")
            traced["source_hash"] = _source_hash(unit, suite, traced["read"])
            codes = sorted(cubin.read(made / file, unit.arch).code for file in traced["kernels"].values())
            traced["code"] = text_hash(" ".join(codes))
        traced = {"compiler": f"{self.name} {self.version}", **traced, "files": _files(made)}
        cache.keep(made, TRACED, unit.folder.name, traced)
        if not _is_made(unit, suite):  # otherwise another build was first
            with writing(unit.folder):
                shutil.rmtree(unit.folder, ignore_errors=True)
                made.rename(unit.folder)

    def _child(self, tasks: list[dict[str, Any]], place: Path, ended: Callable[[Path], None]) -> str:
        """Compiles, and tells each folder that is complete; returns the child's messages."""
        jobs = int(os.environ.get("MAX_JOBS") or 0) or os.cpu_count() or 1
        question = {"language": self.compiler, "jobs": jobs, "limit": LIMIT, "tasks": tasks}
        cache_folder = {f"{self.variables}CACHE_DIR": str((place / "cache").resolve())}
        with (
            tempfile.TemporaryFile() as messages,
            subprocess.Popen(
                python_process.command("flashcore.features.languages.compile_child"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                cwd=place,  # some compilers write there
                env={**python_process.environment(), **cache_folder},
            ) as process,
        ):
            assert process.stdin and process.stdout
            try:
                with contextlib.suppress(BrokenPipeError), process.stdin as stream:
                    json.dump(question, stream)
                for line in process.stdout:
                    ended(Path(line.rstrip("\n")))
            except BaseException:
                process.kill()
                raise
            messages.seek(0)
            return messages.read().decode(errors="replace")


def _hash(value: object) -> str:
    return text_hash(json.dumps(value, sort_keys=True))


def _is_made(unit: _Unit, suite: Suite) -> bool:
    """Whether a unit's folder is complete and its sources are unchanged."""
    read = _traced(unit.folder).get("read", {})
    root = os.path.realpath(suite.root)
    return bool(read) and all(content_hash(os.path.join(root, file)) == content for file, content in read.items())


def _traced(folder: Path) -> dict[str, Any]:
    """A folder's result, or its ``error``; empty if the folder is incomplete or its files were changed."""
    traced: dict[str, Any] = cache.recall(folder, TRACED, folder.name) or {}
    return traced if traced and traced["files"] == _files(folder) else {}


def _files(folder: Path) -> dict[str, str]:
    """The hashes of the kernels and of their ptxas logs."""
    return {path.name: file_hash(path) for path in folder.iterdir() if path.suffix != ".json"}


def _recorded(unit: _Unit, made: Path) -> dict[str, Any]:
    """Kernels recorded on a GPU, in a folder for each arch: ``<name>.cubin`` with ``<name>.json`` (``num_warps``,
    ``shared``) and, if recorded, ptxas's log ``<name>.log``. They have neither grids nor arguments."""
    root = Path(unit.task["root"])
    kernels, calls, read = {}, [], {}
    for i, path in enumerate(sorted((root / unit.task["cubins"] / unit.arch).glob("*.cubin"))):
        for file in (path, path.with_suffix(".json"), path.with_suffix(".log")):
            if file.is_file():
                read[file.relative_to(root).as_posix()] = file_hash(file)
                shutil.copyfile(file, made / f"{i}{file.suffix}")
        meta = json.loads(path.with_suffix(".json").read_bytes())
        kernels[path.stem] = f"{i}.cubin"
        calls.append(
            [
                {
                    "kernel": path.stem,
                    "code": cubin.code_of(path.read_bytes()),
                    "grid": [0, 0, 0],
                    "threads": 32 * meta["num_warps"],
                    "cluster": meta.get("num_ctas", 1),
                    "shared": meta["shared"],
                    "flags": [False, False],
                }
            ]
        )
    read[unit.variant.kind.file] = file_hash(root / unit.variant.kind.file)
    shapes = {shape: {"error": "", "workspace": 0, "calls": calls} for shape in unit.task["shapes"]}
    return {"compiler": "recorded", "kernels": kernels, "shapes": shapes, "read": read}


def _source_hash(unit: _Unit, suite: Suite, read: Mapping[str, str]) -> str:
    """Hash of the comment-stripped source and the config; the same on every machine."""
    texts = []
    for file, content in sorted(read.items()):
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            content = ast.dump(ast.parse(Path(suite.root, file).read_text(encoding="utf-8", errors="replace")))
        texts.append(_hash([Path(file).name if file.startswith(("../", os.sep)) else file, content]))
    task = {k: v for k, v in unit.task.items() if k not in ("root", "shapes")}
    return _hash([unit.variant.name, task, texts])


def _artifact(unit: _Unit, seconds: float | None) -> Artifact:
    name, arch, folder = unit.variant.name, unit.arch, unit.folder
    traced = _traced(folder) or {"error": f"{folder}: its files are damaged"}
    if "hang" in traced:
        return Artifact(name, arch, "failed", Hang(traced["hang"], unit.task["callable"]), seconds=seconds)
    if "error" in traced:
        return Artifact(name, arch, "failed", failed(traced["error"]), seconds=seconds)
    if not traced["kernels"]:  # it refuses every shape
        cause = PlanRefused("; ".join({shape["error"] for shape in traced["shapes"].values()}))
        return Artifact(name, arch, "unsupported", cause, seconds=seconds)
    return Artifact(
        variant=name,
        arch=arch,
        status="ok",
        source_hash=traced["source_hash"],
        code=traced["code"],
        flags=(traced["compiler"], *(f"{k}={v}" for k, v in unit.variant.config.items())),
        cubins={kernel: str(folder / file) for kernel, file in traced["kernels"].items()},
        calls={
            shape: _hash([call[0] if len(call) == 1 else call for call in _unnamed(launches["calls"])])
            for shape, launches in traced["shapes"].items()
        },
        log=str(folder / LOG),
        seconds=seconds,
        cached=seconds is None,
        cxx=traced["compiler"],
    )


def _unnamed(calls: Iterable[Iterable[Mapping[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The calls without kernel names, so that renaming a kernel changes nothing."""
    return [[{k: v for k, v in one.items() if k != "kernel"} for one in call] for call in calls]


def _dims(sizes: int | list[int]) -> Dim3:
    x, y, z = (sizes, 1, 1) if isinstance(sizes, int) else sizes
    return x, y, z


def _plan(artifact: Artifact, shape: str, traced: Mapping[str, Any]) -> Plan:
    launches = tuple(
        # Where clusters have one number, the grid counts them.
        Launch(c["kernel"], (x * m, y, z), _dims(c["threads"]), _dims(c["cluster"]), c["shared"], *c["flags"])
        for call in traced["calls"]
        for c in call
        for x, y, z in [c["grid"]]
        for m in [c["cluster"] if isinstance(c["cluster"], int) else 1]
    )
    return Plan(
        artifact.variant,
        shape,
        () if traced["error"] else launches,
        traced["workspace"],
        PlanRefused(traced["error"]) if traced["error"] else None,
        (artifact.arch,),
    )
