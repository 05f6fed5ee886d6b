"""``flashcore mcp``: an MCP server on standard input and output."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.errors import Exit, UsageError

#: Bytes of JSON: at least those of a case in brief.
_LEAST, _USUAL = 4000, 16_000

EXAMPLES = (
    ("flashcore mcp --root .", "read suites, runs and compiled files below this folder"),
    ("flashcore mcp --root . --allow-host-code", "build, check, time and profile the suites there, too"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder that tools may use; the first is the working folder; repeatable (default: this folder)"
    parser.add_argument("--root", dest="roots", action="append", default=[], metavar="DIR", help=text)
    text = "allow tools that run the host code of suites on this machine: check, bench, profile"
    parser.add_argument("--allow-host-code", action="store_true", help=text)
    text = "most bytes of an answer, whose lists are cut (default: %(default)s)"
    parser.add_argument("--answer-bytes", type=int, default=_USUAL, metavar="N", help=text)


def run(arguments: argparse.Namespace) -> int:
    roots = [Path(root) for root in arguments.roots or ["."]]
    if wrong := [root for root in roots if not root.is_dir()]:
        raise UsageError(f"--root {wrong[0]}: expected a folder, found none")
    if arguments.answer_bytes < _LEAST:
        raise UsageError(f"--answer-bytes: expected at least {_LEAST}, found {arguments.answer_bytes}")
    from flashcore.features.mcp import server

    resolved = [root.resolve() for root in roots]
    server.serve(server.server(resolved, arguments.answer_bytes, host_code=arguments.allow_host_code))
    return Exit.OK
