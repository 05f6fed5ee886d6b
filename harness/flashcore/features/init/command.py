"""``flashcore init``: writes a new suite to fill in."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from flashcore import suites
from flashcore.errors import Exit, UsageError
from flashcore.features.init.source import suite_files
from flashcore.model.files import writing
from flashcore.suites.load import load

HERE = Path(__file__).parent
#: The files of a new suite. ``suite.toml`` names the schema, which editors use for completion.
SCHEMA = "suite.schema.json"
FILES = {name: HERE / f"{name}.txt" for name in ("suite.toml", "problem.py", "scale.cu")} | {
    SCHEMA: Path(suites.__file__).with_name("suite.schema.json")
}

EXAMPLES = (
    ("flashcore init my_suite", "in a new folder"),
    ("flashcore init kernels/scale", "where the other commands look for it"),
    ("flashcore init --from kernel.cu", "around the kernels of a file"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="default with --from: the file's name")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="a CUDA file, which is not changed")
    text = "the kernel or launcher of the file to call, with template arguments (default: what can be called)"
    parser.add_argument("--launcher", default="", metavar="NAME", help=text)


def run(arguments: argparse.Namespace) -> int:
    source: Path | None = arguments.source
    if not arguments.folder and not source:
        raise UsageError("expected a folder for the suite, or --from with a CUDA file, found neither")
    if arguments.launcher and not source:
        raise UsageError("--launcher: expected with --from")
    folder = Path(arguments.folder or source.stem)  # type: ignore[union-attr]
    written = write(folder, source, arguments.launcher)
    load(folder)
    print(*written, sep="\n")
    for path in written:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if "// TODO" in line:
                print(f"{path}:{number}: {line.strip()}")
    print(f"next: flashcore build --suite {shlex.quote(str(folder))}")
    return Exit.OK


def write(folder: Path, source: Path | None = None, launcher: str = "") -> list[Path]:
    """Writes a suite that builds into a new or empty folder.

    Args:
        source: an existing CUDA file to write it around; ``None``: an example, which also checks and gates.
        launcher: its function to call; see :func:`flashcore.features.init.source.suite_files`.

    Raises:
        UsageError: the folder is not empty, or the file has no such function.
        FlashcoreError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        content = "something in it" if folder.is_dir() else "a file"
        raise UsageError(f"{folder}: expected a new or empty folder, found {content}\n  hint: name another")
    files = {name: file.read_text(encoding="utf-8") for name, file in FILES.items()}
    if source:
        files = suite_files(source, folder, launcher) | {SCHEMA: files[SCHEMA]}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]
