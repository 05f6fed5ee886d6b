"""What a profile needs of the build: a case's launch plan, and the phases, registers and names of its kernels."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from flashcore.build import static_facts
from flashcore.errors import UsageError
from flashcore.machine import toolchain
from flashcore.model.case import Case
from flashcore.model.catalogue import OTHER_PHASE
from flashcore.model.groups import grouped
from flashcore.model.suite import Cuda
from flashcore.readers import cubin, phases
from flashcore.readers.kernel_names import canonical
from flashcore.stages.context import Context
from flashcore.stages.profile.ncu_facts import CaseBuild


def marked(context: Context) -> Iterator[str]:
    """The variants whose sources mark phases, even incorrectly: :func:`codes` reports errors."""
    sources = phases.Sources(Path(context.suite.root))
    for variant in context.variants:
        if isinstance(variant.kind, Cuda):
            with contextlib.suppress(UsageError):
                if not any(sources.phases(variant.kind.file)):
                    continue
            yield variant.name


def codes(context: Context) -> Callable[[str], phases.Code | None]:
    """Returns a function of a variant: the phases of its code for this GPU, ``None`` if its sources mark none."""
    sources = phases.Sources(Path(context.suite.root))
    disassembler = toolchain.optional_tool("nvdisasm")
    built = {a.variant: a.cubin for a in context.built.artifacts if a.arch == context.gpu_arch and a.status == "ok"}

    @functools.cache
    def code_of(variant: str) -> phases.Code | None:
        kind, file = context.suite.variants[variant].kind, built.get(variant)
        if file is None or not isinstance(kind, Cuda):
            return None
        try:
            return phases.of_variant(kind.file, static_facts.listing(Path(file), disassembler), sources)
        except UsageError as error:  # wrong phase marks must not stop the profile
            context.say(f"profile: {variant} without its phases: {error}")
            return phases.Code((OTHER_PHASE,), why=str(error))

    return code_of


def builds(context: Context) -> Callable[[Case], CaseBuild]:
    """Returns a function of a case: its data from the build for this GPU, without the phases of its code."""
    plans, registers_of, names_of = context.plans, registers(context), names(context)
    linked = {v.name for v in context.variants if v.libraries or v.packages}

    def build_of(case: Case) -> CaseBuild:
        name = case.variant
        return CaseBuild(plans.get(case), None, registers_of.get(name, {}), name in linked, names_of.get(name, {}))

    return build_of


def registers(context: Context) -> dict[str, dict[str, int]]:
    """Variant → kernel → registers per thread in the code for this GPU."""
    facts = ((f.subject, f.value) for f in context.built.facts if f.name == "registers")
    of_gpu = grouped(
        (s.variant, (s.kernel, value))
        for s, value in facts
        if s.arch == context.gpu_arch and s.kernel and isinstance(value, int)
    )
    return {variant: dict(kernels) for variant, kernels in of_gpu.items()}


def names(context: Context) -> dict[str, dict[str, str]]:
    """Variant → a kernel's canonical name in the cubin for this GPU → its name in the plan, where a language gives it
    another."""
    by_variant: dict[str, dict[str, str]] = {}
    for artifact in context.built.artifacts:
        if artifact.arch != context.gpu_arch:
            continue
        for planned, file in artifact.cubins.items():
            function = planned.partition("<")[0]  # without what tells configurations apart
            for kernel in cubin.parse(Path(file).read_bytes(), artifact.arch, file).kernels:
                if (symbol := canonical(kernel.name)) != function:
                    by_variant.setdefault(artifact.variant, {})[symbol] = function
    return by_variant
