"""The command line: finds the command, runs it, and maps what goes wrong to an exit code.

A command is a module of this package with its name: ``HELP``, ``add_arguments(parser)`` and
``run(arguments)``, which gives the exit code. Only the command that is asked for is imported, and each imports what
is heavy where it uses it, so that ``flashcore --help`` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from flashcore import __version__
from flashcore.errors import Exit, FlashcoreError

COMMANDS = (
    "doctor", "list", "build", "check", "bench", "sanitize", "profile", "report", "facts", "gate", "baseline",
    "metrics", "diff", "bounds", "roofs", "init",
)  # fmt: skip
#: What running kernels and drawing reports need beyond a gate.
RUN_EXTRA = ("jinja2", "markupsafe", "numpy", "nvtx", "plotly", "torch")

_EXITS = """exit codes:
  0  fine
  1  a guardrail or a check failed
  2  wrong usage, manifest or input
  3  a required fact is unmeasured or stale
  4  the machine cannot do it (the message says how to mend it), or a defect of flashcore: never a regression
"""


class Command(Protocol):
    """What every command's module has."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds its options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Does it, and gives the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    arguments = parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except FlashcoreError as error:
        print(f"flashcore: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("flashcore: interrupted; what was measured is kept: go on with --resume", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`flashcore list | head`): not our failure, but nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (name := str(error.name).split(".")[0]) in RUN_EXTRA:
            print(
                f"flashcore: {arguments.command} needs the Python package {name}, found none\n"
                f"  to mend: pip install {name}, or install flashcore with its extra `run`, which has all of them",
                file=sys.stderr,
            )
            return int(Exit.INCAPABLE)
        import traceback

        # Python's own exit code for this is 1, which here says that a guardrail failed.
        traceback.print_exc()
        print("flashcore: this is a defect of flashcore; please report it", file=sys.stderr)
        return int(Exit.INCAPABLE)


def parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The command line as far as ``argv`` needs it: the whole, or the one command that it names."""
    form = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="flashcore",
        description="Build, check, time and profile every variant of a CUDA kernel family; gate what they promise.",
        epilog=_EXITS,
        formatter_class=form,
    )
    top.add_argument("--version", action="version", version=f"flashcore {__version__}")
    known = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = next((word for word in argv if not word.startswith("-")), None)
    for name in (named,) if named in COMMANDS else COMMANDS:
        command = cast(Command, importlib.import_module(f"flashcore.cli.{name}"))
        made = known.add_parser(name, help=command.HELP, description=command.HELP, epilog=_EXITS, formatter_class=form)
        made.set_defaults(run=command.run)
        if name == named:
            command.add_arguments(made)
    return top
