"""A host over ssh: a real sshd on 127.0.0.1 with keys of its own, and the toy suite without a GPU."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashcore.measure.settings import Settings


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


def keygen(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text()


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    ssh = shutil.which("ssh")
    if not sshd or not ssh:
        pytest.skip("tool: openssh-server, which has sshd")
    place, cache = tmp_path / "box", tmp_path / "cache"
    (place / "bin").mkdir(parents=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd of root needs it
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host_key = keygen(place / "host_key")
    (place / "authorized").write_text(keygen(place / "key"))
    (place / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (place / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {place}/host_key\nAuthorizedKeysFile {place}/authorized\n"
        f"StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nSetEnv XDG_CACHE_HOME={cache}\n"
    )
    (place / "config").write_text(
        f"Host box\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n IdentityFile {place}/key\n"
        f" UserKnownHostsFile {place}/known_hosts\n"
    )
    (place / "bin" / "ssh").write_text(f'#!/bin/sh\necho $$ > {place}/link\nexec {ssh} -F {place}/config "$@"\n')
    (place / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with subprocess.Popen([sshd, "-D", "-e", "-f", place / "sshd_config"], stderr=subprocess.DEVNULL) as daemon:
        until(lambda: daemon.poll() is not None or answers(port))
        yield Box(f"host=box:{sys.executable}", place / "link", cache)
        daemon.terminate()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answers(port: int) -> bool:
    with socket.socket() as requested:
        return requested.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def settings(box: Box, copy: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """One variant of a copy of the toy suite for one arch, recorded on the box."""
    work = tmp_path / "a; touch made"
    work.mkdir()
    copy().rename(work / "suite")
    monkeypatch.chdir(work)
    monkeypatch.setenv("CUDA_ARCH", "sm_90a")
    return Settings("suite", variants=("plain",), executor=box.executor)
