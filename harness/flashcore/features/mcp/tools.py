"""The tools: commands whose arguments are the options of their parsers, and whose answers are their JSON.

Paths are resolved, with the links below them, and must lie in one of the server's roots.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationInfo, create_model
from pydantic_core import PydanticCustomError

from flashcore.cli import main


class Tool(NamedTuple):
    """A command as a tool.

    Args:
        host_code: it builds a suite or imports its Python files, which may do anything that the user may.
        hidden: destinations of options with which a tool without ``host_code`` would do that too.
    """

    host_code: bool = False
    hidden: tuple[str, ...] = ()


#: Command → its tool.
TOOLS = {
    "doctor": Tool(),
    "list": Tool(),
    "check": Tool(host_code=True),
    "bench": Tool(host_code=True),
    "profile": Tool(host_code=True),
    "gate": Tool(host_code=True),
    "explain": Tool(hidden=("bounds", "device", "suite")),
    "compare": Tool(host_code=True),
    "audit": Tool(hidden=("archs", "flags")),
}
#: Destinations of options that no tool has: of the terminal, of other hosts and stores.
_HIDDEN = ("executor", "format", "quiet", "records", "schema")
#: Options that a command would otherwise look for above the first root.
_HERE = {"suite": ".", "profiles": "profiles", "build_dir": "build"}
_PATTERN, _SOURCE = set("*?["), ".cu"


def _in_roots(path: str, info: ValidationInfo) -> str:
    """The text, if it does not lead out of the roots as a path.

    Raises:
        PydanticCustomError: it does, or a link below it.
    """
    roots: Any = info.context
    place = os.path.realpath(roots[0] / path)
    names = (os.path.join(folder, name) for folder, *both in os.walk(place) for part in both for name in part)
    for name in itertools.chain((place,), filter(os.path.islink, names)):  # nothing outside is walked
        if not any(Path(os.path.realpath(name)).is_relative_to(root) for root in roots):
            expected = f"a path in {' or '.join(map(str, roots))}, also through its links, such as {name}"
            raise PydanticCustomError("outside_roots", "{expected}", {"expected": expected})
    return path


def _compiled(path: str) -> str:
    """A file that ``audit`` reads: one file, since a pattern may name sources, which it compiles, or links."""
    if _PATTERN & set(path) or path.endswith(_SOURCE):
        raise PydanticCustomError("not_compiled", "a compiled file or a folder, no source and no pattern")
    return path


_Text = Annotated[str, AfterValidator(_in_roots)]


def _options(tool: str) -> Iterator[tuple[str, argparse.Action]]:
    """The names of the arguments, and the parser's actions."""
    parser = argparse.ArgumentParser(add_help=False)
    main.add_options(parser, tool)
    for action in parser._actions:
        if action.dest not in (*_HIDDEN, *TOOLS[tool].hidden):
            yield (
                (action.option_strings[-1].lstrip("-").replace("-", "_") if action.option_strings else action.dest),
                action,
            )


@functools.cache
def form(tool: str) -> type[BaseModel]:
    """The arguments of a tool. Validating them takes the roots as context."""
    fields: dict[str, Any] = {}
    for name, action in _options(tool):
        many = action.nargs in ("*", "+") or isinstance(action.default, list)
        numbers: dict[Any, Any] = {int: int, float: FiniteFloat}
        kind = Literal[tuple(action.choices)] if action.choices else numbers.get(action.type, _Text)
        kind = bool if action.nargs == 0 else kind
        if (tool, name) == ("audit", "files"):
            kind = Annotated[kind, AfterValidator(_compiled)]
        default: Any = _HERE.get(name, [] if many else False if action.nargs == 0 else action.default)
        required = not action.option_strings and action.nargs in (None, "+") and name not in _HERE
        kind = list[kind] if many else kind if required or default is not None else kind | None  # type: ignore[valid-type]
        text = (action.help or "") % {**vars(action), "default": default}
        fields[name] = (
            kind,
            Field(... if required else default, description=text, min_length=1 if action.nargs == "+" else None),
        )
    return create_model(tool, __config__=ConfigDict(extra="forbid", validate_default=True), **fields)


def words(tool: str, given: BaseModel) -> list[str]:
    """The words of the command line."""
    line, names = [tool], list[str]()
    for name, action in _options(tool):
        value = getattr(given, name)
        each = value if isinstance(value, list) else [value] * (value not in (None, False) or value == 0)
        if not action.option_strings:
            names += each
        elif name == "suite" and getattr(given, "recorded", None):
            continue  # a run has its own
        elif value is True:
            line.append(action.option_strings[-1])
        elif value is not False and (value != action.default or name in _HERE):
            line += [f"{action.option_strings[-1]}={one}" for one in each]
    return [*line, "--format=json", *(["--", *names] if names else [])]
