"""``flashcore init``: writes a new suite to fill in."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from flashcore import suites
from flashcore.errors import Exit, UsageError
from flashcore.model.files import writing

HERE = Path(__file__).parent
#: The files of a new suite. ``suite.toml`` names the schema, which editors use for completion.
FILES = {name: HERE / f"{name}.txt" for name in ("suite.toml", "problem.py", "scale.cu")} | {
    "suite.schema.json": Path(suites.__file__).with_name("suite.schema.json")
}

EXAMPLES = (
    ("flashcore init my_suite", "in a new folder"),
    ("flashcore init kernels/scale", "where the other commands look for it"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR")


def run(arguments: argparse.Namespace) -> int:
    for path in write(Path(arguments.folder)):
        print(path)
    print(f"next: flashcore build --suite {arguments.folder}")
    return Exit.OK


def write(folder: Path) -> list[Path]:
    """Writes a suite that builds, checks and gates into a new or empty folder.

    Raises:
        UsageError: the folder is not empty.
        FlashcoreError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        content = "something in it" if folder.is_dir() else "a file"
        raise UsageError(f"{folder}: expected a new or empty folder, found {content}\n  hint: name another")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copyfile(source, folder / name)) for name, source in FILES.items()]
