"""One (variant, arch) to compile, and the names of the files in its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flashcore.build.libraries import Libraries
from flashcore.model.suite import Variant

LOG = "variant.log"
CUBIN = "variant.cubin"
SASS = "variant.sass"
OBJECT = "variant.o"
PLAN = "plan.so"
OPERATOR = "operator.so"
MAKE_RULE = "variant.d"  # the files that the compiler read, as a make rule
HOST_TEXT = "host.ii"  # preprocessed host code, which depends on the arch through __CUDA_ARCH_LIST__
LINKED = "linked.so"  # shows that the libraries have all that a variant uses


@dataclass(frozen=True, slots=True)
class Unit:
    """One (variant, arch) to compile, in a separate folder that is renamed when complete."""

    variant: Variant
    arch: str
    folder: Path
    question: str
    flags: tuple[str, ...]
    wanted: tuple[str, ...]  # names of the files to make
    libraries: Libraries = field(default_factory=Libraries)

    @property
    def name(self) -> str:
        return f"{self.variant.name}-{self.arch}"

    @property
    def is_host(self) -> bool:
        """Whether host code is compiled too."""
        return PLAN in self.wanted

    def file(self, name: str) -> Path:
        """One of its files."""
        return self.folder.resolve() / name
