"""Options that several commands share.

An option that sets a field of :class:`~flashcore.model.settings.Settings` has the field's name as its destination,
such as ``gpus`` or ``check.repeats``, and the field's default.
"""

from __future__ import annotations

import argparse
import functools
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model.groups import with_tuples
from flashcore.model.record import Record
from flashcore.model.settings import Sanitize, Settings
from flashcore.model.suite import TIERS, Stage
from flashcore.pipeline import plugins
from flashcore.records import lookup, remote, store
from flashcore.suites.find import of_project, suite_folder

_DEFAULTS = Settings("")
#: Settings of single stages → the help of their options.
_OF_STAGES = {
    "check.repeats": "calls of a case that check compares bit by bit",
    "bench.samples": "minimum number of timing samples",
    "bench.first": "measure cases less that cannot be among the first N of their shape; 0: all fully",
}


def default(name: str) -> Any:
    """The default of a setting; a stage's setting is ``check.repeats``."""
    return attrgetter(name)(_DEFAULTS)


def settings(arguments: argparse.Namespace, **fixed: Any) -> Settings:
    """The user's settings for a run; ``fixed`` are set by the command."""
    values = vars(arguments)
    require_positive(arguments, "time_limit", "check.repeats", "bench.samples")
    chosen = with_tuples(values)
    if values.get("records"):  # report errors before compiling
        chosen["records"] = tuple(map(str, places(arguments)[1:]))
    chosen |= {"sanitize": Sanitize() if values.get("sanitize") else None}
    chosen |= {"command": recorded_command(["flashcore", *sys.argv[1:]])}
    if "suite" not in fixed:
        chosen["suite"] = suite_folder(arguments.suite)
    chosen |= fixed
    made = Settings(**{name: chosen[name] for name in Settings.__dataclass_fields__ if name in chosen})
    for name, value in values.items():
        stage, of_stage, setting = name.partition(".")
        if of_stage:
            made = replace(made, **{stage: replace(getattr(made, stage), **{setting: value})})
    return made.with_time_limit(values["time_limit"]) if "time_limit" in values else made


def require_positive(arguments: argparse.Namespace, *names: str) -> None:
    """Checks these options, where they are given.

    Raises:
        UsageError: one is not above 0.
    """
    for name in names:
        value = getattr(arguments, name, None)
        if value is not None and not value > 0:
            option = name.rpartition(".")[2].replace("_", "-")
            raise UsageError(f"--{option} {value:g}: expected a number above 0")


def require_top(arguments: argparse.Namespace) -> None:
    """Checks ``--top``, of which 0 is allowed.

    Raises:
        UsageError: it is below 0.
    """
    if arguments.top < 0:
        raise UsageError(f"--top {arguments.top}: expected 0 or more")


def recorded_command(words: Sequence[str]) -> str:
    """A command in its recorded form: absolute paths become relative to this folder, or ``.../NAME`` outside it."""
    return shlex.join(map(_without_machine_path, words))


def _without_machine_path(word: str) -> str:
    option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
    path, here = Path(value), Path.cwd()
    if not path.is_absolute():
        return word
    return option + equals + (str(path.relative_to(here)) if path.is_relative_to(here) else f".../{path.name}")


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the suite's folder."""
    parser.add_argument(
        "--suite", metavar="DIR", help="suite folder or its suite.toml (default: the one here or in kernels/)"
    )


def add_profiles(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the folder of runs."""
    text = "recorded runs (default: %(default)s)"
    parser.add_argument("--profiles", default=of_project(default("profiles")), metavar="DIR", help=text)


def add_places(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the folders of runs and builds."""
    add_profiles(parser)
    add_build(parser)


def add_build(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the folder of builds."""
    text = "compiled objects (default: %(default)s)"
    parser.add_argument("--build-dir", dest="build", default=of_project(default("build")), metavar="DIR", help=text)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Adds the option that selects shapes."""
    text = "only this shape; repeatable"
    parser.add_argument("--shape", dest="shapes", action="append", default=[], metavar="NAME", help=text)


def add_selection(parser: argparse.ArgumentParser, *, default: str = "all") -> None:
    """Adds the options that select variants, shapes and archs."""
    text = f"only variants whose names match (default: {default}); repeatable"
    parser.add_argument("--variant", dest="variants", action="append", default=[], metavar="GLOB", help=text)
    add_shapes(parser)
    text = "only this arch of the suite, like sm_90a or 9.0 (default: those in CUDA_ARCH, else all); repeatable"
    parser.add_argument("--arch", dest="archs", action="append", default=[], metavar="ARCH", help=text)


def selected(given: Any) -> dict[str, Any]:
    """The variants, shapes and archs that arguments or settings select."""
    return {name: tuple(getattr(given, name)) for name in ("variants", "shapes", "archs")}


def selecting(given: Any) -> list[str]:
    """The options that select the same in another command."""
    return [f"--{name[:-1]}={one}" for name, each in selected(given).items() for one in each]


def add_cases(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the suite, its variants, shapes and archs, and the folders of runs and builds."""
    add_suite(parser)
    add_places(parser)
    add_selection(parser)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Adds the option that hides progress."""
    parser.add_argument("-q", "--quiet", action="store_true", help="show only failures and results")


def add_measuring(parser: argparse.ArgumentParser, *stages: Stage) -> None:
    """Adds the options for running cases on a GPU, those of these stages too."""
    parser.add_argument("--resume", action="store_true", help="continue the newest unfinished run")
    parser.add_argument("--isolate", action="store_true", help="a separate process for each case; takes longer")
    add_gpus(parser)
    text = "time limit per case in seconds (default: %(default)g)"
    parser.add_argument("--time-limit", type=float, default=default("check.limits.time_limit"), metavar="S", help=text)
    for name, text in _OF_STAGES.items():
        stage, _, option = name.partition(".")
        if stage in stages:
            text = f"{text} (default: %(default)s)"
            parser.add_argument(f"--{option}", dest=name, type=int, default=default(name), metavar="N", help=text)


def add_gpus(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select GPUs."""
    text = "GPUs of one model that share the cases (default: %(default)s)"
    parser.add_argument("--gpus", default=default("gpus"), metavar="all|N|UUID,...", help=text)
    texts = dict(plugins.entries("help"))
    for name, _ in plugins.entries("executors"):
        if does := texts.get(f"--{name}"):
            add_executor(parser, name, does)


def add_executor(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Adds ``--NAME ADDRESS``, which chooses a plugin's executor."""
    named = functools.partial("{}={}".format, name)
    parser.add_argument(
        f"--{name}", dest="executor", default=argparse.SUPPRESS, type=named, metavar="ADDRESS", help=text
    )


def add_run(parser: argparse.ArgumentParser, *, default: str = "the newest") -> None:
    """Adds the argument for a recorded run."""
    text = f"a run's id, folder or packed file (default: {default})"
    parser.add_argument("recorded", nargs="?", metavar="RUN", help=text)


def add_records(parser: argparse.ArgumentParser) -> None:
    """Adds the option for runs recorded elsewhere."""
    text = (
        "runs recorded elsewhere, used as if they were in --profiles: a folder of runs, a file from "
        "`flashcore runs pack`, or the URL of a store, such as s3://bucket/runs; repeatable"
    )
    parser.add_argument("--records", action="append", default=[], metavar="DIR|FILE|URL", help=text)


def places(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """The folders and files that recorded runs are read from; those of stores elsewhere are copied first.

    Raises:
        UsageError, RecordError: see :func:`lookup.runs_at`.
        FlashcoreError: see :func:`remote.mirrored`.
    """
    profiles = Path(arguments.profiles)
    others = [remote.mirrored(x, profiles) if "://" in x else Path(x) for x in arguments.records]
    for place in others:
        lookup.runs_at(place)
    return (profiles, *others)


def recorded(arguments: argparse.Namespace) -> Record:
    """The run that the user names, or the newest that has what the arguments select."""
    chosen = (getattr(arguments, what, ()) for what in ("variants", "shapes"))
    return store.read(lookup.find(places(arguments), arguments.recorded, *chosen))


def add_reporting(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the report's folder and form."""
    parser.add_argument("-o", "--output", metavar="DIR", help="report folder (default: reports/<run>)")
    parser.add_argument("--single-file", action="store_true", help="one HTML file instead of a folder")


def add_base(parser: argparse.ArgumentParser) -> None:
    """Adds the options that compare the limits with those of a git revision."""
    text = "list what is looser than in this git revision, and fail"
    parser.add_argument("--base", metavar="REV", help=text)
    text = "with --base: what may be looser, such as budget:registers or baseline:NAME; repeatable"
    parser.add_argument("--allow", action="append", default=[], metavar="GLOB", help=text)


def base(arguments: argparse.Namespace) -> str | None:
    """The base revision; ``None`` if there is none to compare with.

    Raises:
        UsageError: ``--allow`` is given without ``--base``.
    """
    if arguments.base is None and arguments.allow:
        raise UsageError("--allow: expected together with --base REV, found it alone")
    revision: str | None = arguments.base
    return revision


def add_gating(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the highest tier that the gate requires."""
    text = f"highest required tier of {', '.join(TIERS)}: missing or stale facts exit 3 (default: %(default)s)"
    parser.add_argument("--require", choices=TIERS, default=TIERS[0], metavar="TIER", help=text)
