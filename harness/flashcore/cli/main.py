"""The command line: finds the command, runs it, and maps errors to exit codes.

A command is a module of this package with its name, or one that a plugin adds. It has ``add_arguments(parser)``,
``run(arguments)``, which returns the exit code, and ``EXAMPLES``: (command line, description). Only the requested
command is imported, so that ``flashcore --help`` is fast.
"""

from __future__ import annotations

import argparse
import errno
import functools
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from flashcore import __version__
from flashcore.cli import terminal
from flashcore.errors import CapabilityError, Exit, FlashcoreError, MissingPackage, UsageError
from flashcore.model import plugin
from flashcore.model.text import did_you_mean, shortened
from flashcore.pipeline import plugins

#: The commands that the help shows, in its order; ``flashcore more`` lists the others.
SHOWN = [
    *("init", "build", "check", "bench", "profile", "gate"),
    *("audit", "import", "report", "explain", "compare", "watch", "more"),
]
#: Core commands → their lines in the help.
COMMANDS = {
    "build": "compile every variant; print registers, spills, occupancy",
    "check": "compare every variant's answers with fp64",
    "bench": "check, then time",
    "profile": "build, check, time, profile, report and gate in one command",
    "gate": "check the current sources, or recorded runs, against budgets",
    "report": "render recorded runs as HTML or Markdown",
    "explain": "what to change in the variants of a run, and what it can gain",
    "more": "list the other commands",
    "baseline": "write the static facts as the gate's committed baseline",
    "doctor": "what this machine supports, and how to add what is missing",
    "facts": "write every fact of a recorded run as CSV or JSON",
    "list": "list a suite's variants, shapes and budgets",
    "roofs": "measure this machine's roofs",
    "sanitize": "run every variant under compute-sanitizer",
}
COMES_WITH = {"markupsafe": "jinja2", "anyio": "mcp", "mcp_types": "mcp"}  # module → the package that depends on it

#: Errors of files and disks, as opposed to defects of flashcore.
_NAMES = "EACCES EDQUOT EFBIG EISDIR ELOOP ENAMETOOLONG ENOSPC ENOTDIR EPERM EROFS"
_FILE_ERRORS = {getattr(errno, name) for name in _NAMES.split()}

_EXITS = "\n".join(["exit codes:", *(f"  {code:<3}  {code.meaning}" for code in Exit)])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code, even if its output cannot be written."""
    if "_ARGCOMPLETE" in os.environ:
        _complete(os.environ.get("COMP_LINE", ""))
    terminal.harden()
    gc.set_threshold(100_000)  # facts and verdicts are never garbage: a quarter of the time to read a run
    words = sys.argv[1:] if argv is None else argv
    arguments = argparse.Namespace(command=None)
    try:
        top = parser(words)
        arguments = top.parse_args(words)
        if arguments.command is None:
            if sys.stdout.isatty():
                plugin.resolve("flashcore.cli.start:show")()
            else:
                top.print_help()
            # Not 0: a script with an empty command by mistake must not pass as a gate.
            return Exit.USAGE
        code = int(arguments.run(arguments))
    except KeyboardInterrupt:
        more = "; what was measured is kept: continue with --resume" if "resume" in arguments else ""
        print(f"flashcore: interrupted{more}", file=sys.stderr)
        code = Exit.INTERRUPTED
    except Exception as error:
        reason = reason_of(error, _requested(words) or "flashcore")
        if reason is None:
            # Python would exit with 1, which here means that a budget failed.
            traceback.print_exc()
            print("flashcore: this is a defect of flashcore; please report it", file=sys.stderr)
            return Exit.INCAPABLE
        print(f"flashcore: {reason}", file=sys.stderr)
        code = reason.exit_code
    if why := terminal.lost():
        print(f"flashcore: standard output: cannot write: {why}", file=sys.stderr)
        return code or int(Exit.INCAPABLE)
    return code


def _complete(line: str) -> NoReturn:
    """Completes ``line`` for the shell, through argcomplete; runs no command."""
    import argcomplete

    argcomplete.autocomplete(parser(line.split()[1:]), exclude=["--help", "-h"])
    sys.exit(Exit.OK)


def reason_of(error: Exception, command: str) -> FlashcoreError | None:
    """The error to show to the user; ``None`` for a defect of flashcore."""
    if isinstance(error, FlashcoreError):
        return error
    if isinstance(error, OSError) and error.errno in _FILE_ERRORS:
        hint = "give another file or folder, free disk space, or change its permissions"
        return UsageError(f"{str(error.filename)[:200]}: {error.strerror}\n  hint: {hint}")
    if isinstance(error, FileNotFoundError) and error.filename is None:  # only os.getcwd's names no file
        return UsageError("expected a current folder, found that it was removed\n  hint: cd to another one")
    if isinstance(error, UnicodeEncodeError):
        return UsageError(f"{shortened(error.object)}: expected a name in UTF-8")
    if isinstance(error, ModuleNotFoundError):
        module = str(error.name).split(".")[0]
        if module not in (*sys.stdlib_module_names, "flashcore"):
            return MissingPackage(command, COMES_WITH.get(module, module))
    return None


class _Once(argparse.Action):
    """Stores an option's value. Refuses a second one, which would silently replace the first."""

    _first: Any = None

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        if option and self._first is not None:
            parser.error(f"{option}: expected one value, found {self._first} and {values}")
        self._first = values
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Suggests corrections for misspelled commands, options and choices. Accepts no abbreviated options, which options
    of extensions could make ambiguous."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more | {"allow_abbrev": False})
        self.register("action", None, _Once)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [o for a in self._actions for o in a.option_strings]
            names = [(word, word.split("=")[0]) for word in unknown]
            hints = [f"{word}{did_you_mean(n, options)}" for word, n in names]
            self.error(f"unrecognized arguments: {' '.join(hints)}\n  hint: {plugin.WHERE}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        name = message.removeprefix("argument ").partition(":")[0]
        dash = "expected one argument" in message and f"\n  hint: a value that starts with a dash: {name}=VALUE"
        super().error(message + (dash or ""))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(value, map(str, action.choices or ()))
            if action.dest == "command":
                error.message += f"\n  hint: {plugin.WHERE}"
            raise


def parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for ``words``, with the options of the command in ``words`` only."""
    form: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    title = "Build, check, time and profile every variant of a CUDA kernel family; check them against budgets."
    usage = "flashcore [-h] [--version] COMMAND ..."
    modules = all_commands()
    commands = listed(name for name in SHOWN if name in modules)
    overview = f"{title}\n\n{commands}\n\nflashcore COMMAND --help describes a command's options."
    top = _Parser(prog="flashcore", usage=usage, description=overview, epilog=_EXITS, **form)
    top.add_argument("--version", action="version", version=f"flashcore {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS, prog="flashcore")
    requested = _requested(words)
    texts = helps()
    for name in (requested,) if requested in modules else modules:
        text = texts.get(name)
        subparser = subparsers.add_parser(name, description=text, help=text, **form)
        if name == requested:
            add_options(subparser, name)
    return top


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds a command's options, those of features and extensions too, and what runs it."""
    command = plugin.resolve(all_commands()[name])
    command.add_arguments(parser)
    if examples := getattr(command, "EXAMPLES", ()):
        wide = max(len(line) for line, _ in examples)
        parser.epilog = "\n".join(["examples:", *(f"  {line:<{wide}}  {does}" for line, does in examples)])
    extensions = [plugin.resolve(module) for extended, module in plugins.entries("options") if extended == name]
    for extension in extensions:
        extension.add_arguments(parser)
    parser.set_defaults(run=functools.partial(_extended, command.run, [e.run for e in extensions]))


def _requested(words: Sequence[str]) -> str | None:
    """The command in ``words``, whether or not there is one of that name."""
    return next((word for word in words if not word.startswith("-")), None)


def helps() -> dict[str, str]:
    """Command → its line in the help."""
    return COMMANDS | dict(plugins.entries("help"))


def listed(names: Iterable[str]) -> str:
    """These commands with their lines."""
    texts = helps()
    return "\n".join(f"  {name:<10} {texts.get(name, '')}".rstrip() for name in names)


def all_commands() -> dict[str, str]:
    """Command → module: core commands, then those of features and extensions.

    Raises:
        CapabilityError: an extension has a command of the core's name.
    """
    added = dict(plugins.entries("commands"))
    if taken := sorted(COMMANDS.keys() & added):
        hint = f"uninstall the extension, or install another version of it; {plugins.VARIABLE}= loads none"
        raise CapabilityError(f"{added[taken[0]]}: expected a command of its own, found {taken[0]}, which exists", hint)
    return {name: f"flashcore.cli.{name}" for name in COMMANDS} | added


def _extended(
    command: Callable[[argparse.Namespace], int],
    extensions: Sequence[Callable[[argparse.Namespace], int | None]],
    arguments: argparse.Namespace,
) -> int:
    """Runs the command, unless a plugin's extension handles these arguments."""
    for extension in extensions:
        if (code := extension(arguments)) is not None:
            return code
    return command(arguments)
