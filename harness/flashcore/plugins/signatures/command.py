"""``flashcore sign``: signs the hashes of a recorded run's files."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.cli import options
from flashcore.errors import Exit, UsageError
from flashcore.model.files import write_atomically
from flashcore.plugins.signatures.ssh import SIGNATURE, keygen
from flashcore.records import lookup, store

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
    done = keygen((folder / store.SUMS).read_text(), "sign", "-f", arguments.key)
    if done.returncode:
        message = done.stderr.strip() or "no reason given"
        raise UsageError(f"--key {arguments.key}: expected an SSH key that can sign, found: {message}")
    write_atomically(folder / SIGNATURE, done.stdout.encode())
    print(f"{folder / SIGNATURE}: signed with {arguments.key}")
    return Exit.OK
