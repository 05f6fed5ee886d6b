"""``flashcore sign``: signs the hashes of a recorded run's files."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import CapabilityError, Exit, UsageError
from flashcore.model.files import write_atomically
from flashcore.records import lookup, store

#: The file in a run's folder that signs its hashes, and thus its files.
SIGNATURE = f"{store.SUMS}.sig"

EXAMPLES = (
    ("flashcore sign --key ~/.ssh/id_ed25519", "the newest run"),
    ("flashcore sign 20260103 --key ~/.ssh/id_ed25519", "another run"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_profiles(parser)
    text = "private SSH key, or the public key of one that ssh-agent has"
    parser.add_argument("--key", required=True, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> int:
    folder = lookup.find(Path(arguments.profiles), arguments.recorded)
    store.read(folder)
    if not isinstance(folder, Path):
        raise UsageError(f"{folder}: expected a run's folder, found a packed run\n  hint: unpack it")
    write_signature(folder / SIGNATURE, (folder / store.SUMS).read_text(), arguments.key)
    print(f"{folder / SIGNATURE}: signed with {arguments.key}")
    return Exit.OK


def write_signature(path: Path, text: str, key: str) -> None:
    """Writes the signature of ``text`` with an SSH key.

    Raises:
        UsageError: the key cannot sign.
    """
    done = keygen(text, "sign", "-f", key)
    if done.returncode:
        message = done.stderr.strip() or "no reason given"
        raise UsageError(f"--key {key}: expected an SSH key that can sign, found: {message}")
    write_atomically(path, done.stdout.encode())


def keygen(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs ``ssh-keygen -Y`` in the namespace ``flashcore``, with ``text`` on standard input.

    Raises:
        CapabilityError: ssh-keygen is not installed.
    """
    program = shutil.which("ssh-keygen")
    if program is None:
        raise CapabilityError("no ssh-keygen found", "install OpenSSH (Debian: apt-get install openssh-client)")
    command = [program, "-Y", *words, "-n", "flashcore"]
    return subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False)
