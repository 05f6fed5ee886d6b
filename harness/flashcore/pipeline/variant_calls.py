"""Compiles one variant, and describes its calls for the processes that run kernels."""

from __future__ import annotations

from dataclasses import replace

from flashcore.errors import FlashcoreError
from flashcore.model.record import Artifact
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.compiling import compile_all
from flashcore.stages.runnable_cases import child_cases


def variant_calls(settings: Settings, variant: str, arch: str) -> tuple[Artifact, list[KernelCall]]:
    """The build of a variant for an arch, without operator and static facts, and its call on each selected shape.

    Needs no GPU.

    Args:
        settings: the suite, the shapes, the build folder, and the launcher, if plans launch the kernels.

    Raises:
        FlashcoreError: the manifest is wrong, or the variant does not compile.
    """
    context = open_context(settings)
    selected = context.suite.variants[variant]
    suite = replace(context.suite, variants={variant: selected})  # others may need compilers that are missing
    options = replace(context.options, archs=(arch,), plans_only=True)
    context = replace(context, suite=suite, variants=(selected,), gpu_arch=arch, options=options)
    context = replace(context, built=compile_all(context))
    artifact = context.built.artifact(variant, arch)
    if artifact is None or artifact.status != "ok":
        raise FlashcoreError(f"it does not compile: {artifact.message if artifact else 'no build'}")
    return artifact, child_cases(context, [(selected, shape) for shape in context.shapes])
