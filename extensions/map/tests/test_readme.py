"""The guide of the extension: its commands are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from flashcore.cli import main as cli

GUIDE = Path(__file__).parents[1] / "README.md"


def test_the_commands_shown_are_understood() -> None:
    commands = re.findall(r"(?m)^\$ flashcore (.*?)(?: +[#>].*)?$", GUIDE.read_text(encoding="utf-8"))
    assert "map --points 200" in commands and len(commands) >= 6
    for command in commands:
        words = shlex.split(command)
        cli.parser(words).parse_args(words)
