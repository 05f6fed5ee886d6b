"""Compiles the variants that are Python functions launching Triton kernels, and lists what they launch, without a GPU.

A child calls each function with stand-ins for its tensors (:mod:`flashcore.plugins.languages.triton.trace_child`).
The result lies in a
folder of the variant and arch, named by a hash of all inputs known beforehand, with the hashes of the files that were
read: while these are the same, nothing is started. Where the kernels were recorded on a GPU instead, they are copied
there.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flashcore.measure.build.workplace import made_in
from flashcore.measure.machine import python_process, toolchain
from flashcore.measure.machine.capabilities import lacking
from flashcore.model import cache
from flashcore.model.causes import Hang, PlanRefused, UnsupportedArch
from flashcore.model.files import file_hash, writing
from flashcore.model.record import Artifact, Launch, Plan
from flashcore.model.suite import AheadOfTime, Shape, Suite, Variant, manifest_keys
from flashcore.plugins.languages.triton import calls as triton_calls
from flashcore.readers import cubin
from flashcore.readers.compiler_log import failed

ANSWER, TRACED, LOG = "answer.json", "traced", "variant.log"
_FORMAT = 4  # of what is kept; raise it when that changes
LIMIT = 300  # seconds for one variant and arch; one that hangs is not waited for on its other archs


@dataclass(frozen=True, slots=True)
class _Unit:
    variant: Variant
    arch: str
    folder: Path
    task: dict[str, Any]


def build(suite: Suite, folder: Path, archs: Sequence[str], variants: Iterable[Variant]) -> list[Artifact]:
    """Compiles the variants that launch through Triton, for each arch.

    Raises:
        CapabilityError: there are such variants, and no Triton.
        WriteError: the build folder cannot be written.
    """
    artifacts: list[Artifact] = []
    units: list[_Unit] = []
    for variant in variants:
        for arch in archs:
            if arch in variant.where.archs:
                units.append(_unit(suite, folder / suite.name, variant, arch))
            else:
                cause = UnsupportedArch(variant.where.archs, variant.where.unsupported.get(arch, ""))
                artifacts.append(Artifact(variant.name, arch, "unsupported", cause))
    missing = [u for u in units if not _is_made(u, suite)]
    started = time.monotonic()
    if missing:
        _make(missing, folder / suite.name, suite)
    seconds = round(time.monotonic() - started, 3)
    return [*artifacts, *(_artifact(u, seconds if u in missing else None) for u in units)]


def in_use(suite: Suite, folder: Path, variants: Iterable[Variant]) -> set[Path]:
    """The folders of the variants as they are now."""
    return {_unit(suite, folder / suite.name, v, arch).folder for v in variants for arch in v.where.archs}


def _unit(suite: Suite, root: Path, variant: Variant, arch: str) -> _Unit:
    version = toolchain.version_of("triton")
    if version is None and isinstance(variant.kind, AheadOfTime):
        raise lacking("triton")
    task = {
        **manifest_keys(variant.kind),
        "config": dict(variant.config),
        "arch": arch,
        "arguments": [asdict(a) for a in suite.problems[variant.problem].arguments],
        "shapes": {s.name: dict(s.params) for s in suite.shapes.values() if variant.runs_on(s)},
    }
    given = {n: v for n, v in os.environ.items() if n.startswith("TRITON_") and n != "TRITON_CACHE_DIR"}
    key = _hash([_FORMAT, version, sys.version, given, task])[:16]
    task["root"] = str(Path(suite.root).resolve())
    return _Unit(variant, arch, root / f"{variant.name}-{arch}-{key}", task)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _is_made(unit: _Unit, suite: Suite) -> bool:
    """Whether a unit's folder is complete, and made from the present sources."""
    read = _traced(unit.folder).get("read", {})
    return bool(read) and all(file_hash(Path(suite.root, file)) == content for file, content in read.items())


def _traced(folder: Path) -> dict[str, Any]:
    """What a folder holds, or the ``error``; nothing if it is not complete, or not as it was made."""
    traced: dict[str, Any] = cache.recall(folder, TRACED, folder.name) or {}
    return traced if traced and traced["files"] == _files(folder) else {}


def _files(folder: Path) -> dict[str, str]:
    """The hashes of the kernels and of what ptxas said about them."""
    return {path.name: file_hash(path) for path in folder.iterdir() if path.suffix != ".json"}


def _make(units: Sequence[_Unit], root: Path, suite: Suite) -> None:
    """Makes the units' folders in a place of this build only, and moves complete ones to their final place."""
    with made_in(root) as place:
        folders = [(place / str(i)).resolve() for i in range(len(units))]
        tasks = []
        for unit, made in zip(units, folders, strict=True):
            made.mkdir()
            if isinstance(unit.variant.kind, AheadOfTime):
                tasks.append({**unit.task, "variant": unit.variant.name, "folder": str(made)})
            else:
                (made / ANSWER).write_text(json.dumps(_recorded(unit, made)), encoding="utf-8")
        output = _child(tasks, place) if tasks else ""
        for unit, made in zip(units, folders, strict=True):
            traced: dict[str, Any] = {"error": output[-4000:].strip() or "no reason was given"}
            with contextlib.suppress(OSError, ValueError):
                traced = json.loads((made / ANSWER).read_bytes())
            if "read" in traced:
                logs = [(made / file).with_suffix(".log") for file in traced["kernels"].values()]
                (made / LOG).write_text("".join(log.read_text("utf-8") for log in logs if log.is_file()), "utf-8")
                traced["closure"] = _closure(unit, suite, traced["read"])
            cache.keep(made, TRACED, unit.folder.name, {**traced, "files": _files(made)})
            if _is_made(unit, suite):
                continue  # another build was first
            with writing(unit.folder):
                shutil.rmtree(unit.folder, ignore_errors=True)
                made.rename(unit.folder)


def _child(tasks: list[dict[str, Any]], place: Path) -> str:
    """Compiles; returns the child's output."""
    jobs = int(os.environ.get("MAX_JOBS") or 0) or os.cpu_count() or 1
    return subprocess.run(
        python_process.command("flashcore.plugins.languages.triton.trace_child"),
        input=json.dumps({"jobs": jobs, "limit": LIMIT, "tasks": tasks}),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**python_process.environment(), "TRITON_CACHE_DIR": str((place / "cache").resolve())},
    ).stderr


def _recorded(unit: _Unit, made: Path) -> dict[str, Any]:
    """Kernels as a GPU left them: ``<name>.cubin`` with ``<name>.json`` (``num_warps``, ``shared``) and, where ptxas's
    words were kept, ``<name>.log``; in a folder for each arch. Grids and arguments are not known."""
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


def _closure(unit: _Unit, suite: Suite, read: Iterable[str]) -> str:
    """Of the Python text without comments, and the config; the same on every machine."""
    texts = []
    for file in sorted(read):
        text = Path(suite.root, file).read_text(encoding="utf-8", errors="replace")
        with contextlib.suppress(SyntaxError, ValueError):
            text = ast.dump(ast.parse(text))
        texts.append(_hash([Path(file).name if Path(file).is_absolute() else file, text]))
    task = {k: v for k, v in unit.task.items() if k not in ("root", "shapes")}
    return _hash([unit.variant.name, task, texts])


def _artifact(unit: _Unit, seconds: float | None) -> Artifact:
    name, arch, folder = unit.variant.name, unit.arch, unit.folder
    traced = _traced(folder) or {"error": f"{folder}: what was made is damaged"}
    if "hang" in traced:
        return Artifact(name, arch, "failed", Hang(traced["hang"], unit.task["callable"]), seconds=seconds)
    if "error" in traced:
        return Artifact(name, arch, "failed", failed(traced["error"]), seconds=seconds)
    return Artifact(
        variant=name,
        arch=arch,
        status="ok",
        closure=traced["closure"],
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


def calls(artifact: Artifact, shape: str) -> list[list[dict[str, Any]]]:
    """The launches of a variant on a shape, each as the configurations that it may have: of those
    :attr:`flashcore.plugins.languages.triton.calls.Call.identity`."""
    traced = _traced(Path(artifact.log or "").parent)
    return _unnamed(traced["shapes"][shape]["calls"]) if traced and shape in traced["shapes"] else []


def run(call: Callable[[], object], names: Mapping[int, str], expected: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Calls the variant; how its launches differ from the expected ones, empty if they do not."""
    with triton_calls.recorded(names, launch=True) as ran:
        call()
    return triton_calls.difference(expected, [one.identity for one in ran])


def _unnamed(calls: Iterable[Iterable[Mapping[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Without the kernels' names: what is renamed is still the same."""
    return [[{k: v for k, v in one.items() if k != "kernel"} for one in call] for call in calls]


def plans(artifact: Artifact, shapes: Iterable[Shape], *, possible: bool = False) -> list[Plan]:
    """The launch plan on each shape that was traced, for the artifact's own arch.

    Args:
        possible: also where only a GPU knows the plan: every configuration of what is tuned while it runs, and every
            kernel that was recorded, without grids.
    """
    traced = _traced(Path(artifact.log or "").parent) if artifact.cubins else {}
    by_shape: Mapping[str, Any] = traced.get("shapes", {})
    by_name = {s.name: by_shape[s.name] for s in shapes if s.name in by_shape}
    return [
        _plan(artifact, shape, traced)
        for shape, traced in by_name.items()
        if possible or all(len(call) == 1 and "arguments" in call[0] for call in traced["calls"])
    ]


def _plan(artifact: Artifact, shape: str, traced: Mapping[str, Any]) -> Plan:
    launches = tuple(
        # The grid counts programs, each a cluster of blocks.
        Launch(
            c["kernel"], (x * c["cluster"], y, z), (c["threads"], 1, 1), (c["cluster"], 1, 1), c["shared"], *c["flags"]
        )
        for call in traced["calls"]
        for c in call
        for x, y, z in [c["grid"]]
    )
    return Plan(
        artifact.variant,
        shape,
        () if traced["error"] else launches,
        traced["workspace"],
        PlanRefused(traced["error"]) if traced["error"] else None,
        (artifact.arch,),
    )
