"""The contract of a kernel language whose kernels are compiled ahead of time, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flashcore.model.record import Artifact, Plan
from flashcore.model.suite import Shape, Suite, Variant

#: A launch as plain data, without the kernel's name.
LaunchData = Mapping[str, Any]


class Language(Protocol):
    """An object of a plugin; see ``languages`` of :class:`flashcore.model.plugin.Plugin`."""

    #: The installed release; ``None`` without one.
    version: str | None
    #: The prefix of environment variables that change what is compiled.
    variables: str
    #: The reference of a function that launches kernels from their cubins, if the variant itself cannot; else empty.
    launcher: str

    def build(self, suite: Suite, folder: Path, archs: Sequence[str], variants: Iterable[Variant]) -> list[Artifact]:
        """Compiles the variants for each arch, each build in its subfolder of ``folder``.

        Raises:
            CapabilityError: the language is not installed.
        """

    def in_use(self, suite: Suite, folder: Path, variants: Iterable[Variant]) -> set[Path]:
        """The folders that :func:`build` uses for the variants' current sources."""

    def plans(self, artifact: Artifact, shapes: Iterable[Shape], *, possible: bool = False) -> list[Plan]:
        """The launch plan on each shape.

        Args:
            possible: include every candidate plan if only a GPU can decide between several.
        """

    def calls(self, artifact: Artifact, shape: str) -> Sequence[Sequence[LaunchData]]:
        """The launches on a shape, each as the sequence of its possible configurations."""

    def run(
        self, call: Callable[[], object], names: Mapping[int, str], expected: Sequence[Sequence[LaunchData]]
    ) -> str:
        """Calls the variant in a child process and compares its launches with the expected ones.

        Args:
            names: argument names by address.

        Returns:
            The differences in words; empty if there are none.
        """
