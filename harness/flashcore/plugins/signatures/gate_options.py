"""``flashcore gate --require-signed``, and a note on the signature of each run that the gate uses."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.errors import RecordError, UsageError
from flashcore.measure.machine import git
from flashcore.plugins.signatures.command import SIGNATURE, keygen
from flashcore.records.store import SIGNERS, SUMS
from flashcore.suites.find import suite_folder

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = f"refuse recorded runs that no key in the suite's {SIGNERS} signed"
    parser.add_argument("--require-signed", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> None:
    base = vars(arguments).get("base")  # an option of the plugin `base`
    where = f"{SIGNERS} of {base or 'the working tree, which a change may edit'}"

    def check(runs: Sequence[Traversable]) -> Iterator[str]:
        signers = _signers(arguments.suite, base)
        for run in runs:
            text, trusted = _signed(run, signers)
            if arguments.require_signed and not trusted:
                raise RecordError(
                    f"run {run.name}: expected a signature by a key in {where}, found {text or 'none'}\n"
                    "  hint: flashcore sign RUN --key FILE"
                )
            if text:
                yield f"run {run.name}: {text} ({where})"

    arguments.checks.append(check)


def _signers(suite: str | None, base: str | None) -> str:
    """The trusted keys of the suite, in the base revision if there is one. Records cannot name them."""
    with suppress(UsageError, FileNotFoundError):  # RUN without one suite here; a suite without the file
        folder = Path(suite_folder(suite))
        return (
            git.run(folder, "show", f"{base}:./{SIGNERS}").stdout
            if base
            else (folder / SIGNERS).read_text("utf-8", "replace")
        )
    return ""


def _signed(run: Traversable, signers: str) -> tuple[str, bool]:
    """The run's signature in words, empty without one, and whether ``signers`` has its key."""
    if not ((run / SIGNATURE).is_file() and (run / SUMS).is_file()):
        return "", False
    hashes = (run / SUMS).read_bytes().decode(errors="replace")
    with tempfile.TemporaryDirectory(prefix="flashcore-signature-") as folder:
        signature, trusted = Path(folder, SIGNATURE), Path(folder, SIGNERS)
        signature.write_bytes((run / SIGNATURE).read_bytes())
        trusted.write_text(signers, "utf-8")
        files = ("-s", str(signature), "-f", str(trusted))
        for name in keygen("", "find-principals", *files).stdout.splitlines():
            if not keygen(hashes, "verify", "-I", name, *files).returncode:
                return f"signed by {name}", True
        valid = keygen(hashes, "check-novalidate", *files)
    if valid.returncode:
        return "a signature of other files", False
    return f"signed with {valid.stdout.split()[-1]}, which is not trusted", False
