"""Runs git."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from flashcore.errors import CapabilityError


def run(folder: Path, *words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs git in a folder, unaffected by a git hook that this process may run in.

    Raises:
        CapabilityError: git is not installed.
    """
    program = shutil.which("git")
    if program is None:
        raise CapabilityError("no git found", "install git (Debian: apt-get install git)")
    # A hook's environment names its index and folder, which would redirect git.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    where = folder if folder.is_dir() else Path.cwd()
    return subprocess.run(
        [program, "-C", str(where), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, **(variables or {})},
    )
