"""``flashcore capture -- CMD…``: any command under ncu, as a run record."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore.cli import options, progress, terminal
from flashcore.errors import Exit, UsageError
from flashcore.explain.readings import Readings
from flashcore.features.reports import activity, kernels
from flashcore.features.reports import captured as captures
from flashcore.features.reports.capture import OUTPUT, CaptureSettings, Stopped, capture
from flashcore.machine import toolchain
from flashcore.machine.ncu import find_ncu
from flashcore.records import store
from flashcore.records.slugs import checked, slug

if TYPE_CHECKING:
    from flashcore.features.reports.capture import Captured
    from flashcore.model.progress import Say

#: The exit code of a command that did not end in time, as in timeout(1).
NO_END = 124

EXAMPLES = (
    ("flashcore capture -- python train.py", "the costly kernels of a program"),
    ("flashcore capture --top 3 --nvtx step -- ./app", "three kernels within an NVTX range"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("command_line", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command, with its arguments")
    add(
        "--top",
        type=int,
        default=8,
        metavar="K",
        help="kernels to measure, each at a launch configuration, "
        "by the time of all their launches (default: %(default)s)",
    )
    add("--kernel", metavar="REGEX", help="only kernels whose demangled names match")
    add("--nvtx", metavar="RANGE", help="only launches in that NVTX range, as ncu's --nvtx-include takes it")
    add("--launch-skip", dest="skip", type=int, default=0, metavar="N", help="skip the first N launches")
    add("--launch-count", dest="count", type=int, metavar="N", help="look at N launches (default: all)")
    add("--source", action="store_true", help="also collect source counters and the sources")
    add("--settle", action="store_true", help="run it once without ncu before, so that autotuners choose freely")
    add("--keep-dropped", action="store_true", help="also measure what an autotuner tried and dropped")
    add("--stop-early", action="store_true", help="end the command once the chosen launches are measured")
    add(
        "--time-limit",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds for each run of the command (default: %(default)g)",
    )
    add("--clock-control", choices=("none", "base"), default="none", help="of ncu (default: %(default)s)")
    add(
        "--cache-control",
        choices=("all", "none"),
        default="all",
        help="of ncu; all flushes the caches before each pass (default: %(default)s)",
    )
    add("--ncu", metavar="PATH", help="Nsight Compute's command line (default: the one on PATH)")
    add(
        "--ncu-option",
        dest="options",
        action="append",
        default=[],
        metavar="OPTION",
        help="passed to ncu unchanged; repeatable",
    )
    add("--name", metavar="NAME", help="of the record's suite (default: the program's)")
    add("--propagate", action="store_true", help="exit with the command's own exit code")
    options.add_profiles(parser)
    options.add_quiet(parser)


def run(arguments: argparse.Namespace) -> int:
    command = arguments.command_line[1:] if arguments.command_line[:1] == ["--"] else arguments.command_line
    if not command:
        raise UsageError("expected a command behind --, found none\n  hint: flashcore capture -- python train.py")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: expected a program to run, found none\n  hint: name it with its full path")
    named = checked(arguments.name) if arguments.name else _name(command)
    with progress.shown(arguments.quiet) as say:
        chosen = _chosen(arguments, say)
        run_id = store.new_id()
        folder = store.begin(Path(arguments.profiles), run_id)
        with _Echo(folder / ("plain" if chosen.settle else "survey") / OUTPUT):
            captured = capture(command, folder, chosen)
    version = toolchain.tool_version(Path(chosen.ncu))
    made = captures.record(run_id, named, options.recorded_command(command), captured, version)
    store.write(made, folder)
    store.keep(folder, ())
    ended = (f"{stage.stage}: {stage.reason}" for stage in made.stages if stage.reason)
    print(kernels.text(Readings(made)), *made.suite.notes, *ended, sep="\n")
    print(f"run:    {store.complete(folder)}\nreport: flashcore report {run_id}")
    return _exit(captured, propagate=arguments.propagate)


def _chosen(arguments: argparse.Namespace, say: Say) -> CaptureSettings:
    if arguments.top < 1 or arguments.skip < 0 or (arguments.count is not None and arguments.count < 1):
        raise UsageError("expected --top and --launch-count of at least 1, and --launch-skip of at least 0")
    options.require_positive(arguments, "time_limit")
    try:
        re.compile(arguments.kernel or "")
    except re.error as error:
        likely = re.escape(arguments.kernel).replace(r"\*", ".*")
        raise UsageError(
            f"--kernel {arguments.kernel}: expected a regular expression, found {error}\n  hint: --kernel '{likely}'"
        ) from None
    given = {**vars(arguments), "ncu": find_ncu(arguments.ncu), "progress": say, "recorder": activity.recorder()}
    return CaptureSettings(
        **{field.name: given[field.name] for field in fields(CaptureSettings) if field.name in given}
    )


def _name(command: list[str]) -> str:
    """A short name for the command: its script, else its program."""
    script = next((word for word in command[1:] if not word.startswith("-") and os.path.isfile(word)), command[0])
    return slug(Path(script).stem)


class _Echo:
    """Shows the command's output during its first run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        at, last = 0, False
        while not last:
            last = self._over.wait(0.1)
            try:
                with self._file.open("rb") as stream:
                    stream.seek(at)
                    text = stream.read()
            except OSError:
                continue
            at += len(text)
            output = text.decode(errors="replace")
            # The user's program draws on the terminal as it likes.
            sys.stdout.write(output if os.environ.get("GITHUB_ACTIONS") else terminal.Trusted(output))
            sys.stdout.flush()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _exit(captured: Captured, *, propagate: bool) -> int:
    """0 if all chosen kernels were measured, else 3; with ``propagate``, the exit code of the command's first run."""
    code = captured.runs[0].code
    if propagate:
        if code is None:
            return Exit.OK if isinstance(captured.runs[0].cause, Stopped) else NO_END
        return 128 - code if code < 0 else code
    return Exit.UNMEASURED if captured.missed else Exit.OK
