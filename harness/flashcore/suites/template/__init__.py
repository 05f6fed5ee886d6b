"""Writes a new suite to fill in: ``flashcore init DIR``."""

from __future__ import annotations

from pathlib import Path

from flashcore.errors import UsageError
from flashcore.model.files import writing

FILES = ("suite.toml", "problem.py", "scale.cu")
SCHEMA = "suite.schema.json"  # suite.toml names it: editors complete by it


def write(folder: Path) -> list[Path]:
    """Writes a suite that builds, checks and gates as it is into a new or empty folder.

    Raises:
        UsageError: the folder holds something already.
        FlashcoreError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        content = "something in it" if folder.is_dir() else "a file"
        raise UsageError(f"{folder}: expected a new or empty folder, found {content}\n  hint: name another")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name in (*FILES, SCHEMA):
            source = f"{name}.txt" if name in FILES else f"../{name}"
            text = (Path(__file__).parent / source).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
            written.append(folder / name)
    return written
