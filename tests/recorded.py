"""Recorded output of real tools: the unpacked files of ``data/recorded.tar.xz``; and the contract's packed runs."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = ROOT / "tests" / "data" / "recorded.tar.xz"


def unpack(archive: Path, build: Path) -> Path:
    """The archive's files in a folder that its checksum names; unpacked once, whoever comes first."""
    folder = build / f"recorded-{hashlib.sha256(archive.read_bytes()).hexdigest()[:16]}"
    if not folder.is_dir():
        build.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=build) as made, tarfile.open(archive) as tar:
            tar.extractall(Path(made, "files"), filter="data")
            try:
                Path(made, "files").rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return folder


RECORDED = unpack(ARCHIVE, ROOT / "build")
RUNS_ARCHIVE = ROOT / "tests" / "contract" / "runs.tar"
RUNS = unpack(RUNS_ARCHIVE, ROOT / "build")
