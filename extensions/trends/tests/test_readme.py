"""The guide of the extension: its commands are understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from flashcore.cli import main as cli

GUIDE = Path(__file__).parents[1] / "README.md"


def test_the_commands_shown_are_understood() -> None:
    shown = re.findall(r"(?m)^\$ (flashcore .*?)(?: +#.*)?$", GUIDE.read_text(encoding="utf-8"))
    words = [shlex.split(part) for line in shown for part in line.split(" && ")]
    commands = [arguments for program, *arguments in words if program == "flashcore"]
    assert ["trends", "-o", "reports"] in commands and len(commands) >= 4
    for arguments in commands:
        cli.parser(arguments).parse_args(arguments)
