"""The failures that a user can meet, each with the exit code it leads to.

An error states the expectation, the actual value and a hint. Any other exception is a defect of the harness: it shows
its traceback and exits 4, so that it is not mistaken for a regression.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        "follow the message's hint, then run again; report a traceback",
    )
    INTERRUPTED = 130, "interrupted", "continue with `--resume`: what was measured is kept"

    def __new__(cls, code: int, meaning: str, action: str) -> Exit:
        """A code with its texts."""
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning, made.action = meaning, action
        return made


def worst(codes: Iterable[Exit]) -> Exit:
    """The worst code: failure, wrong usage, incapable machine, unmeasured fact, success."""
    return max(codes, key=(Exit.OK, Exit.UNMEASURED, Exit.INCAPABLE, Exit.USAGE, Exit.FAILED).index)


class FlashcoreError(Exception):
    """Base of all errors that are reported without a traceback."""

    exit_code: Exit = Exit.USAGE


class UsageError(FlashcoreError):
    """Wrong command line, or an input that does not exist."""


class ManifestError(FlashcoreError):
    """A suite's manifest is wrong. Holds every mistake found, not only the first.

    Args:
        path: the manifest.
        mistakes: one line each: key, what was expected, what was found.
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
        mend: the way to fix it, in one line.
    """

    exit_code = Exit.INCAPABLE

    def __init__(self, what: str, mend: str) -> None:
        self.what = what
        self.mend = mend
        super().__init__(f"{what}\n  hint: {mend}")
