"""Programs and libraries of ours that the host's compiler makes, once per machine and source."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flashcore.errors import CapabilityError
from flashcore.measure.machine import toolchain


def compiled(source: Path, flags: Sequence[str], name: str) -> Path:
    """The program or library of the present source and the headers beside it, from the user's cache.

    Args:
        flags: libraries last.
        name: of the file, before the hash: ``activity``, ``launcher.so``.

    Raises:
        CapabilityError: there is no compiler, or it rejects the source.
        OSError: the cache cannot be written.
    """
    compiler = toolchain.find_cxx()
    command = [str(source), *flags]
    version = toolchain.ask([compiler, "--version"]).stdout
    texts = [path.read_text("utf-8") for path in (source, *sorted(source.parent.glob("*.hpp")))]
    key = hashlib.sha256("\0".join([version, *command, *texts]).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "flashcore")
    stem, dot, suffix = name.partition(".")
    made = folder / f"{stem}-{key}{dot}{suffix}"
    if not made.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            fresh = Path(place, made.name)
            done = toolchain.ask([compiler, "-o", fresh, *command])
            if done.returncode:
                raise CapabilityError(f"{compiler} cannot compile {source.name}: {done.stderr.strip()[-400:]}", "")
            fresh.replace(made)
    return made
