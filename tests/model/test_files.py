"""Writing a file: only a regular file is replaced, links are followed, all else is written in place."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import WriteError
from flashcore.model.files import write_atomically
from tests.conftest import ROOT

WRITE = (
    "import sys; from pathlib import Path; from flashcore.model.files import write_atomically\n"
    "print('before'); write_atomically(Path(sys.argv[1]), b'data\\n'); print('after')\n"
)
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "harness")}


def test_a_regular_file_is_replaced_by_a_whole_one(tmp_path: Path) -> None:
    file, name = tmp_path / "file", tmp_path / "name"
    file.write_bytes(b"old")
    os.link(file, name)
    write_atomically(file, b"new")
    assert (file.read_bytes(), name.read_bytes()) == (b"new", b"old")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "name"]


def test_threads_write_the_same_file(tmp_path: Path) -> None:
    """As two builds in one process do: each file is one thread's."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: write_atomically(tmp_path / "x", bytes([i]) * 1000, durable=False), range(200)))
    assert len({*(tmp_path / "x").read_bytes()}) == 1 and [*tmp_path.iterdir()] == [tmp_path / "x"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, first, second = tmp_path / "there" / "target", tmp_path / "first", tmp_path / "second"
    if exists:
        target.write_bytes(b"old")
    first.symlink_to("there/target")
    second.symlink_to(first)
    write_atomically(second, b"new")
    assert first.is_symlink() and second.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        received: list[bytes] = []
        reader = threading.Thread(target=lambda to: to.append(pipe.read_bytes()), args=(received,), daemon=True)
        reader.start()
        write_atomically(path, b"x" * 100_000)
        reader.join(10)
        assert received == [b"x" * 100_000] and pipe.is_fifo() and link.is_symlink()


def device(folder: Path) -> Path:
    path = folder / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.write_bytes(b"")
    except OSError:
        pytest.skip("tool: a device can be made by root only")
    return path


def test_a_device_is_written_in_place(tmp_path: Path) -> None:
    path = device(tmp_path)
    write_atomically(path, b"data")
    assert path.is_char_device()


@pytest.mark.parametrize(
    "words",
    [
        ("facts", "-o"), ("report", "--format", "md", "-o"), ("gate", "--format", "json="), ("runs", "pack", "-o"),
        ("report", "-o"), ("report", "--single-file", "-o"),
    ],
)  # fmt: skip
def test_no_command_replaces_a_device(words: tuple[str, ...], tmp_path: Path) -> None:
    path = device(tmp_path)
    *command, last = words
    option = [f"{last}{path}"] if last.endswith("=") else [last, str(path)]
    main([*command, str(ROOT / "profiles" / "20261201T113945Z-7c3c.run.zip"), *option])
    assert path.is_char_device()


def test_a_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot write: Is a directory"):
        write_atomically(tmp_path, b"data")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(WriteError, match="cannot write"):
        write_atomically(loop, b"data")


def test_standard_output_keeps_all_that_is_written_to_it(tmp_path: Path) -> None:
    """As a pipe, and as a file, which a second opening would overwrite from its beginning."""
    link = tmp_path / "stdout"  # never the machine's link, which a defect would replace
    link.symlink_to("/proc/self/fd/1")
    words, expected = [sys.executable, "-c", WRITE, str(link)], "before\ndata\nafter\n"
    done = subprocess.run(words, env=ENV, capture_output=True, text=True, check=True)
    assert done.stdout == expected
    file = tmp_path / "file"
    with file.open("w") as stream:
        subprocess.run(words, env=ENV, stdout=stream, check=True)
    assert file.read_text() == expected
