"""PTX is compiled for the requested archs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.features.audit.inventory import inventory
from flashcore.machine import toolchain
from flashcore.readers import cubin
from tests.support.fatbins import CUBINS, KERNELS


@pytest.fixture
def ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that makes the recorded cubin of sm_80 of any PTX, and prints its options."""
    tool = tmp_path / "ptxas"
    (tmp_path / "made").write_bytes(CUBINS["sm_80"])
    tool.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\ngrep -q .target "$2" && cp {tmp_path}/made "$4"\n')
    tool.chmod(0o755)
    monkeypatch.setattr(toolchain, "optional_tool", lambda name: tool if name == "ptxas" else None)
    return tool


def test_ptx_is_compiled_for_each_arch(file: Path, ptxas: Path) -> None:
    content = inventory([file], archs=["sm_86", "sm_89"])
    assert not content.later and not content.unread
    for arch in ("sm_86", "sm_89"):
        assert {k.name for k in content.kernels if k.arch == arch} == KERNELS
    assert ptxas.with_name("calls").read_text().split() == ["-arch=sm_86", "-arch=sm_89"]
    expected = {k.name: k for k in cubin.parse(CUBINS["sm_80"], "sm_80", "").kernels}
    assert all(k.content == expected[k.content.name] for k in content.kernels if k.arch == "sm_86")


def test_without_an_arch_ptx_is_counted(file: Path, ptxas: Path) -> None:
    assert inventory([file]).later == {("pkg", "ptx", "sm_90"): 1}
    assert not ptxas.with_name("calls").exists()


ERRORS = """ptxas info    : error_handler is no error
ptxas /tmp/x/code.ptx, line 10; error   : PTX .version 7.8 does not support .target sm_100a
ptxas fatal   : Ptx assembly aborted due to errors
"""


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (f"printf '{ERRORS}' >&2; exit 255", "ptxas: line 10; error   : PTX .version 7.8 does not support"),
        ("echo 'ptxas fatal   : Value' >&2; exit 1", "ptxas: fatal   : Value"),
        ("kill -9 $$", "ptxas: -9"),
        (None, "no ptxas on this machine"),
    ],
)
def test_ptx_that_does_not_compile_is_listed(
    script: str | None,
    message: str,
    file: Path,
    ptxas: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ptxas.write_text(f"#!/bin/sh\n{script}\n")
    if script is None:
        monkeypatch.setattr(toolchain, "optional_tool", lambda _: None)
    assert main(["audit", str(file), "--arch", "sm_86"]) == Exit.UNMEASURED
    assert f" sm_86: {message}" in capsys.readouterr().out


def test_a_compiler_has_five_minutes(file: Path, ptxas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = toolchain.ask
    monkeypatch.setattr(toolchain, "ask", lambda command, timeout: ask(command, timeout / 3000))
    ptxas.write_text("#!/bin/sh\nexec sleep 10\n")
    (unread,) = inventory([file], archs=["sm_86"]).unread
    assert "more than 300 s" in str(unread.cause)
