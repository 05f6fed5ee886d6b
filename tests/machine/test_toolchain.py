"""The compilers of this machine: where they are looked for, and what is remembered of them."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from flashcore.errors import CapabilityError, UsageError
from flashcore.machine import toolchain


def test_the_order_in_which_nvcc_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    for folder in (site / "nvidia" / "cu13" / "bin", tmp_path / "home" / "bin", tmp_path / "path"):
        folder.mkdir(parents=True)
        (folder / "nvcc").write_text("#!/bin/sh\necho 'release 13.0, V13.0.88'\n", encoding="utf-8")
        (folder / "nvcc").chmod(0o755)
    monkeypatch.delenv("NVCC", raising=False)
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    assert toolchain.find_nvcc().path == site / "nvidia" / "cu13" / "bin" / "nvcc"
    monkeypatch.setattr(sys, "path", [])
    assert toolchain.find_nvcc().path == tmp_path / "home" / "bin" / "nvcc"
    monkeypatch.delenv("CUDA_HOME")
    result = toolchain.find_nvcc()
    assert (result.path, result.release, result.version) == (tmp_path / "path" / "nvcc", "13.0", "13.0.88")
    monkeypatch.setenv("NVCC", str(tmp_path / "home" / "bin" / "nvcc"))
    assert toolchain.find_nvcc().path == tmp_path / "home" / "bin" / "nvcc"
    monkeypatch.setenv("NVCC", str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match=r"NVCC=.*nothing: expected a compiler's path"):
        toolchain.find_nvcc()


def test_the_environments_tool_comes_before_the_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of_environment, on_path = tmp_path / "env", tmp_path / "path"
    for folder in (of_environment, on_path):
        folder.mkdir()
        (tool := folder / "some_tool").write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(of_environment / "python"))
    monkeypatch.setenv("PATH", str(on_path))
    assert toolchain.optional_tool("some_tool") == of_environment / "some_tool"
    (of_environment / "some_tool").unlink()
    assert toolchain.optional_tool("some_tool") == on_path / "some_tool"
    (on_path / "some_tool").unlink()
    assert toolchain.optional_tool("some_tool") is None


def test_an_nvcc_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvcc").write_text("#!/bin/sh\necho gibberish; exit 1\n", encoding="utf-8")
    (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setenv("NVCC", str(tmp_path / "nvcc"))
    with pytest.raises(CapabilityError, match="expected a CUDA release, found 'gibberish'"):
        toolchain.find_nvcc()


def compiler(path: Path, version: str, counter: Path) -> None:
    """A script that answers as nvcc does, and counts how often it is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nopen({str(counter)!r}, 'a').write('x')\nprint('release 13.0, V{version}')\n",
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_script_that_may_call_any_compiler_is_asked_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter, path = tmp_path / "asked", tmp_path / "toolkit" / "bin" / "nvcc"
    compiler(path, "13.0.88", counter)
    (tmp_path / "toolkit" / "include").mkdir()
    (tmp_path / "toolkit" / "include" / "cuda_runtime.h").write_text("", encoding="utf-8")
    monkeypatch.setenv("NVCC", str(path))
    for times in (1, 2):
        toolchain._nvcc.cache_clear()
        assert toolchain.find_nvcc(tmp_path / "known").version == "13.0.88"
        assert counter.read_text() == times * "x"
    toolchain._nvcc.cache_clear()


def test_a_program_is_asked_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, path = tmp_path / "asked", tmp_path / "toolkit" / "bin" / "nvcc"
    compiler(path, "13.0.88", counter)
    (tmp_path / "toolkit" / "include").mkdir()
    (tmp_path / "toolkit" / "include" / "cuda_runtime.h").write_text("", encoding="utf-8")
    monkeypatch.setenv("NVCC", str(path))
    monkeypatch.setattr(toolchain, "_program", lambda p: p)  # as if it were no script
    for _ in range(3):
        toolchain._nvcc.cache_clear()
        assert toolchain.find_nvcc(tmp_path / "known").version == "13.0.88"
    assert counter.read_text() == "x"
    compiler(path, "13.1.99", counter)
    os.utime(path, ns=(1, 1))
    toolchain._nvcc.cache_clear()
    assert toolchain.find_nvcc(tmp_path / "known").version == "13.1.99"
    toolchain._nvcc.cache_clear()


def test_a_script_that_only_calls_a_program_is_followed(tmp_path: Path) -> None:
    program, script = Path(sys.executable).resolve(), tmp_path / "nvcc"
    for text, result in (
        (f'#!/bin/sh\nexec {program} "$@"\n', program),
        (f'#!/bin/sh\nexport X=1\nexec {program} "$@"\n', None),
        ('#!/bin/sh\nexec /nowhere/nvcc "$@"\n', None),
        (f'#!/bin/sh\nexec {script} "$@"\n', None),
    ):
        script.write_text(text, encoding="utf-8")
        assert toolchain._program(script) == result
    assert toolchain._program(program) == program


@pytest.mark.parametrize(
    ("output", "version"), [("Version 2025.3.1.0 (build 7)", "2025.3.1.0"), ("Version x", None), ("", None)]
)
def test_a_tools_version_is_what_it_prints(output: str, version: str | None, tmp_path: Path) -> None:
    (tool := tmp_path / "tool").write_text(f"#!/bin/sh\necho '{output}'\n")
    tool.chmod(0o755)
    assert toolchain.tool_version(tool) == version
