"""A host over ssh: a stand-in that runs the command on this machine, and the toy suite without a GPU."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashcore.model.settings import Settings


@dataclass
class Box:
    """A host that is this machine, with another cache.

    Attributes:
        executor: with the Python of these tests there.
        link: a file with the process id of the newest ssh.
        cache: the user's cache there.
    """

    executor: str
    link: Path
    cache: Path

    @property
    def folder(self) -> Path:
        """The folder of the suite that was sent."""
        (folder,) = (self.cache / "flashcore" / "ssh").iterdir()
        return folder

    def is_linked_anew(self, before: str) -> bool:
        """True if ssh was started again since the link was ``before``."""
        return self.link.read_text() not in ("", before)


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    place, cache = tmp_path / "box", tmp_path / "cache"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "ssh").write_text(
        "#!/bin/sh\nfor word; do before=$host host=$line line=$word; done\n"
        '[ "$host" = box ] || { echo "ssh: no such host: $host" >&2; exit 255; }\n'
        f'case $line in *"exec tail"*|*"exec env"*) echo $$ > {place}/link;; esac\n'
        f'echo Welcome\nXDG_CACHE_HOME={cache} exec sh -c "$line"\n'
    )
    (place / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return Box(f"host=box:{sys.executable}", place / "link", cache)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def settings(box: Box, copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """One variant of a copy of the toy suite for one arch, recorded on the box."""
    work = tmp_path / "a; touch made"
    work.mkdir()
    copy().rename(work / "suite")
    monkeypatch.chdir(work)
    monkeypatch.setenv("CUDA_ARCH", "sm_90a")
    return Settings("suite", variants=("plain",), executor=box.executor)
