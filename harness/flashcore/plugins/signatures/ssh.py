"""Runs ``ssh-keygen -Y`` in the namespace ``flashcore``."""

from __future__ import annotations

import shutil
import subprocess

from flashcore.errors import CapabilityError
from flashcore.records.store import SUMS

#: In a run's folder: the signature of its hashes, which cover its files.
SIGNATURE = f"{SUMS}.sig"


def keygen(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs it with the text on standard input.

    Raises:
        CapabilityError: there is no ssh-keygen.
    """
    program = shutil.which("ssh-keygen")
    if program is None:
        raise CapabilityError("no ssh-keygen found", "install OpenSSH (Debian: apt-get install openssh-client)")
    command = [program, "-Y", *words, "-n", "flashcore"]
    return subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False)
