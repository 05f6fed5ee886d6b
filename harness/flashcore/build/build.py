"""Compiles a suite's variants: a cubin for each arch, and a torch operator for the host's arch.

One ninja graph contains all variants (:mod:`flashcore.build.ninja_graph` lists its targets). With ``ninja -k
0``, one variant's failure does not stop the others. Compiled files are in a folder named by a hash of all inputs
(:mod:`flashcore.build.cache_key`), so an up-to-date build starts no process. They are made in a temporary
folder and moved when complete.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.build import cached_objects, libraries, ninja, nvcc_command
from flashcore.build.builder import Builder
from flashcore.build.ninja_graph import BINDING, Programs, graph, has_content
from flashcore.build.unit import CUBIN, OPERATOR, PLAN, Unit
from flashcore.build.workplace import made_in
from flashcore.errors import CapabilityError, FlashcoreError, ManifestError, UsageError
from flashcore.machine import toolchain
from flashcore.model import cache
from flashcore.model.cause import Cause
from flashcore.model.causes import UNSUPPORTED_ARCH, CompileFailed, CompilerStopped, LibraryMissing
from flashcore.model.files import file_hash, writing
from flashcore.model.progress import Say, silent
from flashcore.model.record import Artifact
from flashcore.model.suite import Cuda, Suite, Variant
from flashcore.readers.compiler_log import failed
from flashcore.suites.load import select_archs


@dataclass(frozen=True, slots=True)
class Options:
    """What to build, and how.

    Args:
        debug: ``-G``: never timed, never gated.
        verbose: show the commands and the compiler's output.
        archs: empty: all of the suite's.
        operator: whether to make the torch operator, which is also omitted if torch is not installed.
        plans_only: cubins and launch plans, without the operator, the disassembly and static facts.
        reuse: another build folder whose compiled files may be used.
    """

    debug: bool = False
    verbose: bool = False
    archs: tuple[str, ...] = ()
    operator: bool = True
    plans_only: bool = False
    reuse: str = ""

    @staticmethod
    def from_environment(suite: Suite, archs: Sequence[str] = ()) -> Options:
        """From ``DEBUG``, ``VERBOSE`` (0 or 1) and, unless ``archs`` are given, ``CUDA_ARCH`` (like ``8.9``,
        comma-separated). ``MAX_JOBS``, which ninja gets, is only validated.

        Raises:
            UsageError: a variable has another value, or the suite has no such arch.
        """

        def flag(name: str) -> bool:
            value = os.environ.get(name, "0") or "0"
            if value not in ("0", "1"):
                raise UsageError(f"{name}={value}: expected 0 or 1")
            return value == "1"

        if not re.fullmatch("[0-9]*", jobs := os.environ.get("MAX_JOBS", "")):
            raise UsageError(f"MAX_JOBS={jobs}: expected the number of compilers to run at once")
        from_variable = [*filter(None, re.split(r"[,; ]+", os.environ.get("CUDA_ARCH", "")))]
        chosen = select_archs(suite, archs) or select_archs(suite, from_variable, given="CUDA_ARCH=")
        return Options(flag("DEBUG"), flag("VERBOSE"), chosen)


def build(
    suite: Suite,
    folder: Path,
    options: Options,
    *,
    variants: Iterable[Variant],
    gpu_arch: str | None = None,
    say: Say = silent,
) -> list[Artifact]:
    """Builds the variants and returns each one's outcome on each arch.

    Args:
        folder: the build folder (``build/``).
        gpu_arch: the arch of the machine's GPU, for which the operator is built; ``None``: the last arch that a variant
            supports. Its launch plan also serves every arch with the same preprocessed host code; for the others, host
            code is compiled too.

    Raises:
        CapabilityError: no nvcc, g++ or ninja.
        FlashcoreError: the build folder cannot be written.
    """
    variants = [v for v in variants if isinstance(v.kind, Cuda)]
    if not variants:
        return []
    nvcc_command.refuse_unsafe((suite.root, f"-I{folder.resolve()}", f"-I{nvcc_command.HARNESS_INCLUDE}"))
    torch_root = toolchain.torch_root() if options.operator and not options.plans_only else None
    builder, *others = (Builder(suite, Path(f), torch_root) for f in (folder, options.reuse) if f)
    units, artifacts = _units(builder, options, variants, gpu_arch)
    made = {(a.variant, a.arch): a for a in artifacts}
    hosts = {u.variant.name: (u.variant.name, u.arch) for u in units if u.is_host}
    while units:  # a second time for archs whose host code differs from the host arch's
        missing = []
        for unit in units:
            for name in (n for b in (builder, *others) for n in b.names(unit)):
                if contents := cached_objects.read(name, unit.wanted):
                    artifacts.append(cached_objects.artifact(unit, name, contents))
                    break
            else:
                missing.append(unit)
        if missing:
            artifacts += _compile(builder, missing, options, say)
        made = {(a.variant, a.arch): a for a in artifacts}
        texts = {key: cached_objects.listed(Path(a.cubin).parent)["text"] for key, a in made.items() if a.cubin}
        keys = [(u, (u.variant.name, u.arch)) for u in units if not u.is_host]
        unlike = [u for u, key in keys if key in texts and texts[key] != texts.get(hosts.get(u.variant.name, key))]
        if units := [replace(u, wanted=(CUBIN, PLAN)) for u in unlike]:
            builder = Builder(suite, folder, torch_root)  # the sources may have changed meanwhile
    for key, artifact in made.items():
        if artifact.cubin and not artifact.plan_library:
            host = made[hosts.get(artifact.variant, key)]
            made[key] = replace(artifact, plan_library=host.plan_library, host=host.host, cxx=host.cxx)
    order = {name: i for i, name in enumerate(suite.variants)}
    return sorted(made.values(), key=lambda a: (order[a.variant], suite.archs.index(a.arch)))


def in_use(suite: Suite, folder: Path) -> set[Path]:
    """The build folders of the suite's current CUDA variants, for every arch, with and without debug code.

    Raises:
        CapabilityError: no nvcc, whose version is part of a folder's name.
    """
    if not suite.uses_nvcc:
        return set()
    builder = Builder(suite, folder, toolchain.torch_root())
    folders = {builder.problem_folder(problem) for problem in suite.problems.values()}
    for options in (Options(), Options(debug=True)):
        units, _ = _units(builder, options, suite.variants.values(), None)
        folders.update(name for unit in units for name in builder.names(unit))
    return folders


def commands(
    suite: Suite, folder: Path, options: Options, variants: Iterable[Variant], gpu_arch: str | None = None
) -> Iterator[tuple[str, str]]:
    """Each variant's and arch's name, and the command of nvcc that a build runs for it in the suite's folder.

    Raises:
        CapabilityError: no nvcc.
    """
    if not (variants := [v for v in variants if isinstance(v.kind, Cuda)]):
        return
    builder = Builder(suite, folder, toolchain.torch_root())
    for unit in _units(builder, options, variants, gpu_arch)[0]:
        problem = builder.write_problem(suite.problems[unit.variant.problem])
        yield unit.name, shlex.join(nvcc_command.command(suite, unit, builder.nvcc.path, problem))


def _units(
    builder: Builder, options: Options, variants: Iterable[Variant], gpu_arch: str | None
) -> tuple[list[Unit], list[Artifact]]:
    """The units to build, and the artifacts of unsupported archs."""
    suite = builder.suite
    artifacts: list[Artifact] = []
    units: list[Unit] = []
    generated = {name: builder.problem_files(problem) for name, problem in suite.problems.items()}
    archs = options.archs or suite.archs
    for variant in variants:
        supported = [a for a in archs if a in variant.where.archs]
        host = gpu_arch if gpu_arch in supported else (supported[-1] if supported else None)
        for arch in archs:
            if arch not in supported:
                cause = UNSUPPORTED_ARCH(variant.where.archs, variant.where.unsupported.get(arch, ""))
                artifacts.append(Artifact(variant.name, arch, "unsupported", cause))
                continue
            flags = nvcc_command.compile_flags(suite, variant, arch, options.debug)
            try:
                linked_libraries = libraries.find(variant, Path(suite.root), builder.nvcc)
            except CapabilityError as error:
                artifacts.append(Artifact(variant.name, arch, "failed", LibraryMissing(error.what, error.hint)))
                continue
            nvcc_command.refuse_unsafe((*flags, *linked_libraries.flags, variant.kind.file))
            operator = (OPERATOR,) if builder.torch_root is not None else ()
            wanted = (CUBIN, PLAN, *operator) if arch == host else (CUBIN,)
            source, linked = nvcc_command.source_of(suite, variant), builder.linked(variant, linked_libraries)
            question = builder.inputs.question(source, flags, generated[variant.problem], *linked)
            units.append(Unit(variant, arch, builder.root, question, flags, wanted, linked_libraries))
    return units, artifacts


def _compile(builder: Builder, units: Sequence[Unit], options: Options, say: Say) -> list[Artifact]:
    """Compiles the units; those that the machine interrupted (no memory or space) once more, with fewer jobs."""
    jobs = os.environ.get("MAX_JOBS", "")
    artifacts = _compiled(builder, units, options, say, jobs)
    causes = {f"{a.variant}-{a.arch}": a.cause for a in artifacts if isinstance(a.cause, CompilerStopped)}
    if not causes:
        return artifacts
    first = next(iter(causes.values())).message.partition("\n")[0]
    say(f"compilations interrupted: {len(causes)}; retrying with fewer jobs. The first: {first}")
    if not jobs or jobs.isdecimal():
        jobs = str(max(1, int(jobs or len(os.sched_getaffinity(0))) // 4))
    stopped = [unit for unit in units if unit.name in causes]
    made = [a for a in artifacts if f"{a.variant}-{a.arch}" not in causes]
    builder = Builder(builder.suite, builder.root.parent, builder.torch_root)  # the sources may have changed
    return made + _compiled(builder, stopped, options, say, jobs)


def _compiled(builder: Builder, units: Sequence[Unit], options: Options, say: Say, jobs: str) -> list[Artifact]:
    """Compiles the units in a temporary folder and moves each complete one to its final name, while others compile."""
    started = time.monotonic()
    suite = builder.suite
    artifacts: list[Artifact] = []
    with made_in(builder.root) as workplace:
        units = [replace(u, folder=workplace / u.name) for u in units]
        rest = [*units]
        with writing(builder.root):
            for unit in units:
                unit.folder.mkdir(0o755)
        problems = {u.variant.problem for u in units}
        bindings = {name: builder.write_problem(p) for name, p in suite.problems.items() if name in problems}
        disassembler = None if options.plans_only else toolchain.optional_tool("nvdisasm")
        programs = Programs(builder.nvcc, toolchain.find_cxx(), disassembler, builder.torch_root)

        def end(unit: Unit, cause: Cause | None = None) -> None:
            seconds = round(time.monotonic() - started, 3)
            artifact: Artifact | None = None
            try:
                if cause is None:
                    final, contents, reason = cached_objects.move(builder, unit, bindings[unit.variant.problem])
                    if reason:
                        say(f"{unit.name}: recompiled in every build, since its sources have {reason}")
                    artifact = cached_objects.artifact(unit, final, contents, seconds)
            except ManifestError as error:
                cause = CompileFailed(str(error))
            except FlashcoreError as error:
                cause = CompilerStopped(str(error))
            lost = Artifact(unit.variant.name, unit.arch, "failed", cause, flags=unit.flags, seconds=seconds)
            artifacts.append(artifact or lost)

        def end_complete() -> None:
            for unit in [u for u in rest if all(has_content(u.folder / n) for n in u.wanted)]:
                rest.remove(unit)
                end(unit)

        def tell(text: str) -> None:
            say(text)
            end_complete()

        output = ninja.run(graph(suite, units, bindings, programs), builder.nvcc, jobs, tell, verbose=options.verbose)
        end_complete()
        for folder in bindings.values():
            if digest := file_hash(compiled := workplace / folder.name):
                cache.keep(folder, BINDING, digest, True)
                compiled.replace(folder / BINDING)
        for unit in rest:
            end(unit, _why(unit, next(n for n in unit.wanted if not has_content(unit.folder / n)), output))
    return artifacts


def _why(unit: Unit, missing: str, output: ninja.Output) -> Cause:
    """The tools' explanation for a missing file."""
    if message := output.of(unit.folder.resolve()):
        return failed(message)
    # Without a message about this unit, the compiler did not process it.
    reason = output.of()[: ninja.MOST_CHARACTERS] or "the tools gave no reason (VERBOSE=1 shows more)"
    return CompilerStopped(f"{missing}: not made\n{reason}")
