"""The verdict: JSON that anyone may read, whoever wrote the candidate."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from flashcore import __version__
from flashcore.model.files import make_folder, write_atomically
from flashcore.model.text import visible

SUFFIX = ".verdict.json"
Status = Literal["accepted", "rejected", "unmeasured"]


def untrusted(text: object, most: int = 120) -> str:
    """A candidate's text in our text: on one line, without characters that are not seen, shortened."""
    line = " ".join(visible(str(text)[: 4 * most].encode(errors="replace").decode()).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


@dataclass(slots=True)
class Verdict:
    """What was judged, on what, and the outcome; filled in on the way to it.

    Args:
        candidate: the hash of its files.
        untrusted: texts that the candidate chose. ``claims``: what else it says, which is checked.
        rival: the suite's baseline, which was timed in turns with it, or what it was ``lacking``.
        shapes: of each check, then of each timing: the shape's name and ``params``, whether it was ``drawn``, ``seeds``
            and complaints (``right``) by kind of input, ``times`` and ``floor`` in us by mode, ``first_us`` of new
            processes' first calls, the ``gpu``'s state, and how many calls were judged, and compared by their bytes.
        seconds: how long a GPU was the candidate's.
    """

    candidate: str
    suite: str
    suite_hash: str
    untrusted: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)
    status: Status = "unmeasured"
    reasons: tuple[str, ...] = ()
    device: Mapping[str, Any] = field(default_factory=dict)
    rival: dict[str, str] = field(default_factory=dict)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    made_by: str = f"flashcore {__version__}"
    format: Literal[1] = 1
    time: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))

    def end(self, status: Status, *reasons: object) -> None:
        """Sets the outcome; its reasons may have the candidate's text."""
        self.status, self.reasons = status, tuple(untrusted(reason, 1000) for reason in reasons)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True, allow_nan=False) + "\n"


def file_name(verdict: Verdict) -> str:
    """The name of a verdict's file: on another GPU, of another suite, or with another outcome it is another verdict, so
    that none that is accepted takes the place of a rejection."""
    judged = f"{verdict.suite_hash} {verdict.device.get('uuid')} {verdict.status}"
    return f"{verdict.candidate}.{hashlib.sha256(judged.encode()).hexdigest()[:8]}{SUFFIX}"


def write(verdict: Verdict, folder: Path) -> Path:
    """Writes a verdict; returns its path.

    Raises:
        WriteError: the folder cannot be written.
    """
    path = folder / file_name(verdict)
    make_folder(folder)
    write_atomically(path, verdict.to_json().encode())
    return path
