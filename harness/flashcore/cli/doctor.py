"""``flashcore doctor``: what this machine supports, and how to install what is missing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from flashcore.cli import output, terminal
from flashcore.errors import CapabilityError, Exit, FlashcoreError
from flashcore.machine import ncu, toolchain
from flashcore.machine.capabilities import lacking
from flashcore.machine.gpu import Gpu
from flashcore.pipeline import plugins
from flashcore.stages.sanitize import sanitize

EXAMPLES = (
    ("flashcore doctor", "what works here"),
    ("flashcore doctor --format json", "the same for programs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    parts = examine()
    can = abilities([p.name for p in parts if p.found])
    if arguments.format == "json":
        print(as_json(parts, can))
    else:
        print(terminal.painted("\n".join(p.text for p in parts)))
        print(f"this machine can: {'; '.join(can) or 'nothing yet'}")
    return Exit.OK if can and can[0] != "report" else Exit.INCAPABLE


class Component(NamedTuple):
    """Something that stages need: its version and place, or why it is missing and how to fix that."""

    name: str
    found: bool
    detail: str
    needed_for: str
    fix: str = ""

    @property
    def text(self) -> str:
        start = f"ok       {self.name}" if self.found else f"missing  {self.name} ({self.needed_for})"
        return f"{start}: {self.detail}" + (f"\n  hint: {self.fix}" if self.fix else "")


def examine() -> list[Component]:
    """Checks for everything that a stage needs, and lists the extensions."""

    def nvcc() -> str:
        compiler = toolchain.find_nvcc()
        return f"{compiler.version} at {compiler.path}, runtime {compiler.cudart_static.name}"

    def gpu() -> str:
        one = Gpu.find()
        if one is None:
            raise lacking("gpu")
        capability = ".".join(map(str, one.capability))
        return f"{one.name}, compute capability {capability}, {one.sms} SMs, driver {one.driver}"

    def tool(program: Path) -> str:
        return f"{toolchain.tool_version(program) or 'of an unknown version'} at {program}"

    def sanitizer() -> str:
        return tool(sanitize.find_sanitizer())

    def package(name: str) -> str:
        version = toolchain.version_of(name)
        if version is None:
            raise lacking(name)
        return version

    checks: dict[tuple[str, str], Callable[[], str]] = {
        ("nvcc", "build"): nvcc,
        ("host compiler", "build"): lambda: str(toolchain.find_cxx()),
        ("ninja", "build"): lambda: str(toolchain.find_tool("ninja")),
        ("triton", "build of Triton kernels"): lambda: package("triton"),
        ("nvdisasm", "SASS counts"): lambda: str(toolchain.find_tool("nvdisasm")),
        ("torch", "operators, check, bench, profile"): lambda: f"{package('torch')} at {toolchain.torch_root()}",
        ("GPU", "check, bench, profile"): gpu,
        ("ncu", "profile"): lambda: tool(ncu.find_ncu()),
        ("compute-sanitizer", "sanitize"): sanitizer,
    }
    packages = {
        "nvtx": "profile",
        "numpy": "bench, report",
        "nvidia-ml-py": "clocks and throttling in bench",
        "jinja2": "report",
        "ncu-report": "import of .ncu-rep files",
    }
    for name, needed_for in packages.items():
        checks[name, needed_for] = lambda name=name: package(name)  # type: ignore[misc]
    parts = []
    for (name, needed_for), check in checks.items():
        try:
            parts.append(Component(name, True, check(), needed_for))
        except CapabilityError as error:
            parts.append(Component(name, False, error.what, needed_for, error.hint))
        except FlashcoreError as error:
            parts.append(Component(name, False, str(error), needed_for))
    for extension in plugins.extensions():
        dist = extension.dist
        detail = f"{dist.name} {dist.version}" if dist else extension.value
        parts.append(Component(f"extension {extension.name}", True, detail, "what it adds"))
    return parts


def as_json(parts: Sequence[Component], can: Sequence[str]) -> str:
    """``parts`` (``name``; ``found``: whether it is installed; ``detail``: its version or why it is missing;
    ``needed_for``; ``fix``: how to fix it) and ``can``: what the machine can do."""
    return output.document(parts=[part._asdict() for part in parts], can=can)


def abilities(parts: Collection[str]) -> list[str]:
    """The stages that a machine with these parts can run; all but the report require a build."""

    def has(*names: str) -> bool:
        return all(name in parts for name in names)

    can = []
    if has("nvcc", "host compiler", "ninja"):
        can.append("build, static gate")
        if has("torch", "GPU"):
            can.append("check, bench")
            if has("ncu", "nvtx"):
                can.append("profile (if counters may be read)")
    return [*can, "report"] if has("jinja2", "numpy") else can
