"""The verdict: JSON that anyone may read, whoever wrote the candidate; its signature."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from flashcore.errors import UsageError
from flashcore.model import plugin
from flashcore.model.files import write_atomically, writing

FORMAT = 1
SUFFIX = ".verdict.json"
Status = Literal["accepted", "rejected", "unmeasured"]


@dataclass(frozen=True, slots=True)
class OnShape:
    """The judgement on one shape. ``right``: kind of input → complaints; ``times``: mode → us with its interval."""

    shape: str
    params: Mapping[str, Any]
    drawn: bool
    seeds: Mapping[str, list[int]]
    right: Mapping[str, list[str]]
    times: Mapping[str, Mapping[str, float]]
    floor: Mapping[str, Any]
    calls_compared: int = 0
    calls_judged: int = 0

    def joined(self, other: OnShape) -> OnShape:
        """The results of two stages on the shape."""
        return replace(
            other,
            seeds={
                kind: [*self.seeds.get(kind, ()), *other.seeds.get(kind, ())] for kind in {**self.seeds, **other.seeds}
            },
            right={**self.right, **other.right},
            calls_judged=self.calls_judged + other.calls_judged,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was judged, on what, and the outcome. ``untrusted``: texts that the candidate chose."""

    candidate: str  # the hash
    suite: str
    suite_hash: str
    status: Status
    reasons: tuple[str, ...]
    untrusted: Mapping[str, str]
    device: Mapping[str, Any] = field(default_factory=dict)
    shapes: tuple[OnShape, ...] = ()
    kernels: tuple[Mapping[str, Any], ...] = ()
    made_by: str = ""
    time: str = ""

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, sort_keys=True, allow_nan=False) + "\n"


def write(verdict: Verdict, folder: Path, key: str | None) -> Path:
    """Writes a verdict, and signs it with an SSH key.

    Raises:
        UsageError: the key cannot sign.
        WriteError: the folder cannot be written.
    """
    path = folder / f"{verdict.candidate[:16]}{SUFFIX}"
    text = verdict.to_json()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        path.with_suffix(".json.sig").unlink(missing_ok=True)
    if key:
        done = plugin.resolve("flashcore.plugins.signatures.command:keygen")(text, "sign", "-f", key)
        if done.returncode:
            raise UsageError(f"--key {key}: expected an SSH key that can sign, found: {done.stderr.strip()}")
        write_atomically(path.with_suffix(".json.sig"), done.stdout.encode())
    return path
