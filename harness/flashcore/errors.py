"""The failures that a user can meet, each with the exit code it leads to.

An error states the expectation, the actual value and a hint. Any other exception is a defect of the harness: it shows
its traceback and exits 4, so that it is not mistaken for a regression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command: what each means, and what to do."""

    meaning: str
    action: str

    OK = 0, "fine", "nothing"
    FAILED = (
        1,
        "a budget or a check failed, or the compiler rejects a source",
        "read the verdicts: the sources are wrong",
    )
    USAGE = 2, "wrong usage, manifest or input", "correct what the message names"
    UNMEASURED = 3, "a required fact is unmeasured or stale", "measure it, or require a lower tier (`--require`)"
    INCAPABLE = (
        4,
        "the machine cannot do it, or a defect of flashcore: never a regression",
        "follow the hint and run again; report a traceback as a bug",
    )
    INTERRUPTED = 130, "interrupted", "continue with `--resume`: measurements are kept"

    def __new__(cls, code: int, meaning: str, action: str) -> Exit:
        """A code with its texts."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning, member.action = meaning, action
        return member


def worst(codes: Iterable[Exit]) -> Exit:
    """The worst code: failure, wrong usage, incapable machine, unmeasured fact, success."""
    return max(codes, key=(Exit.OK, Exit.UNMEASURED, Exit.INCAPABLE, Exit.USAGE, Exit.FAILED).index)


class FlashcoreError(Exception):
    """Base of all errors that are reported without a traceback."""

    exit_code: Exit = Exit.USAGE


class UsageError(FlashcoreError):
    """Wrong command line, or an input that does not exist."""


class ManifestError(FlashcoreError):
    """A suite's manifest is wrong. Lists every mistake, not only the first.

    Args:
        path: the manifest.
        mistakes: one line each: the key, the expected and the actual value.
    """

    def __init__(self, path: str, mistakes: list[str]) -> None:
        self.path = path
        self.mistakes = mistakes
        count = f"{len(mistakes)} mistake{'s' if len(mistakes) != 1 else ''}"
        super().__init__("\n".join([f"{path}: {count}", *(f"  {m}" for m in mistakes)]))


class RecordError(FlashcoreError):
    """A run record cannot be read, or has another schema version."""


class WriteError(FlashcoreError):
    """A file cannot be written."""


class CapabilityError(FlashcoreError):
    """The machine lacks something (nvcc, GPU, ncu, permission).

    Args:
        what: what is missing.
        hint: how to fix it, in one line.
    """

    exit_code = Exit.INCAPABLE

    def __init__(self, what: str, hint: str) -> None:
        self.what = what
        self.hint = hint
        super().__init__(f"{what}\n  hint: {hint}")


class MissingPackage(CapabilityError):
    """A Python package that ``who`` needs is not installed. The hint installs the smallest extra that has it; ``more``
    is another way."""

    def __init__(self, who: str, package: str, more: str = "") -> None:
        super().__init__(
            f"{who} needs the Python package {package}, which is not installed",
            f"pip install {installable(package)}{more}",
        )


def installable(package: str) -> str:
    """The extra of the fewest packages that has this one, as pip takes it; the package, if none has."""
    from importlib import metadata

    extras: dict[str, list[str]] = {}
    with suppress(metadata.PackageNotFoundError):  # run from a checkout
        for line in metadata.requires("flashcore-harness") or ():
            if listed := re.match(r"""([\w.-]+).*extra == ['"](\w+)""", line):
                extras.setdefault(listed[2], []).append(listed[1])
    having = {len(packages): extra for extra, packages in extras.items() if package in packages}
    return f"'flashcore-harness[{having[min(having)]}]'" if having else package
