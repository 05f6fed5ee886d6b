"""``flashcore prune`` also removes builds of git revisions and comparisons that did not end."""

from __future__ import annotations

import argparse
from pathlib import Path

from flashcore.plugins.against import against, checkout
from flashcore.plugins.prune import command as prune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds none: the folders are in the build folder."""


def run(arguments: argparse.Namespace) -> int:
    return prune.remove(arguments, folders(Path(arguments.build)))


def folders(build: Path) -> list[Path]:
    """The folders in the build folder that this plugin compiles into."""
    return [*build.glob(f"{checkout.BUILD}/*"), build / against.FOLDER]
