"""An object whose device and host code are compiled at the same time is nvcc's own, and else nvcc makes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.measure.build import build
from flashcore.measure.machine import toolchain
from flashcore.model.record import Artifact
from flashcore.suites import load
from tests.conftest import no_disassembler

Copy = Callable[[], Path]
MADE = ("variant.cubin", "variant.o", "plan.so")


@pytest.fixture(autouse=True)
def _without_sass() -> Iterator[None]:
    with no_disassembler():
        yield


@pytest.fixture
def suite(compiler: toolchain.Nvcc, copy: Copy) -> Path:
    """A toy suite with a header for each side, a warning, and a variable whose device name has the module's id."""
    root = copy()
    for side in ("device", "host"):
        (root / "include" / f"{side}.cuh").write_text(f"// of {side} code\n")
    source = root / "two_steps.cu"
    source.write_text(
        '#ifdef __CUDA_ARCH__\n#include "device.cuh"\n#else\n#include "host.cuh"\n#endif\n'
        "static __device__ int counted;\n__global__ void counts() { int unused = 1; counted += 1; }\n"
        + source.read_text()
    )
    return root


def built(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, processors: int, *, again: bool = False
) -> tuple[Artifact, list[str]]:
    """``two_steps`` as a machine with so many processors builds it, and the build's messages."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(processors))
    loaded, messages = load.load(root), list[str]()
    options = build.Options(archs=("sm_90a",))
    if not again:
        shutil.rmtree(folder, ignore_errors=True)  # line tables name it
    (artifact,) = build.build(
        loaded, folder, options, variants=[loaded.variants["two_steps"]], with_operator=False, say=messages.append
    )
    return artifact, messages


def made(artifact: Artifact) -> list[bytes]:
    assert artifact.cubin, artifact.message
    return [Path(artifact.cubin).with_name(name).read_bytes() for name in MADE]


def warnings(artifact: Artifact) -> list[str]:
    """The compilers' output, without ptxas's time."""
    return [x for x in Path(artifact.log or "").read_text().splitlines() if x and "Compile time" not in x]


def test_the_object_is_that_of_nvcc_to_the_byte(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, of_nvcc = built(suite, tmp_path / "build", monkeypatch, 1)
    expected, expected_warnings = made(whole), warnings(whole)
    split, messages = built(suite, tmp_path / "build", monkeypatch, 2)
    assert sum(" object" in m for m in messages) == 1 and not any("device" in m for m in of_nvcc)
    assert made(split) == expected and b"counted" in expected[0]
    assert warnings(split) == expected_warnings and any('"unused" was declared' in x for x in expected_warnings)
    # Its folder's name is the hash of all that was read, on either side.
    assert replace(split, seconds=whole.seconds) == whole
    for side in ("device", "host"):
        (suite / "include" / f"{side}.cuh").write_text("// another\n")
        again, _ = built(suite, tmp_path / "build", monkeypatch, 2)
        assert again.cubin != split.cubin
        split = again


#: Of the source: what is replaced, by what, and whether the host's code is then the same.
EDITS = {
    "device code": ("counted += 1;", "counted += 2;\n  __syncthreads();", True),
    "a variable's value": ("static __device__ int counted;", "static __device__ int counted = 5;", True),
    "a kernel's arguments": ("void counts()", "void counts(int n)", False),
    "host code": ("int unused = 1;", "int unused = 1; }\nint twice(int n) { return 2 * n;", False),
    "code that reads its line": (
        "int unused = 1;",
        "int unused = 1; }\n int line(int n = __builtin_LINE()) { return n;",
        False,
    ),
}


#: Those without which each of the others is tried: the same host code, another, and another line only.
QUICK = ("device code", "code that reads its line")


@pytest.mark.parametrize("what", [w if w in QUICK else pytest.param(w, marks=pytest.mark.slow) for w in EDITS])
def test_an_edit_of_device_code_compiles_no_host_code(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    folder, source = tmp_path / "build", suite / "two_steps.cu"
    before, after, same_host = EDITS[what]
    text = source.read_text().replace("int unused = 1; ", "" if same_host else "int unused = 1; ")
    assert before in text
    source.write_text(text)
    built(suite, folder, monkeypatch, 2)
    (assembly,) = folder.glob("*/*.s")
    first = assembly.stat().st_ino
    source.write_text(text.replace(before, after))
    split = made(built(suite, folder, monkeypatch, 2, again=True)[0])
    assert (assembly.stat().st_ino == first) == same_host
    if what == "code that reads its line":
        source.write_text("\n" + source.read_text())
        split = made(built(suite, folder, monkeypatch, 2, again=True)[0])
    assert split == made(built(suite, folder, monkeypatch, 1)[0])


def test_an_assembly_that_was_edited_is_compiled_again(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, source = tmp_path / "build", suite / "two_steps.cu"
    source.write_text(source.read_text().replace("int unused = 1; ", ""))
    built(suite, folder, monkeypatch, 2)
    (assembly,) = folder.glob("*/*.s")
    with assembly.open("a") as file:
        file.write('\t.section .rodata\n\t.string "planted"\n')
    source.write_text(source.read_text().replace("counted += 1;", "counted += 2;"))
    split = made(built(suite, folder, monkeypatch, 2, again=True)[0])
    assert not any(b"planted" in part for part in split) and "planted" not in assembly.read_text()
    assert split == made(built(suite, folder, monkeypatch, 1)[0])


def test_other_archs_share_its_launch_plan(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    loaded, messages = load.load(suite), list[str]()
    plain = [loaded.variants["plain"]]
    artifacts = build.build(
        loaded, tmp_path / "build", build.Options(), variants=plain, with_operator=False, say=messages.append
    )
    assert len(artifacts) == 2 and len({a.plan_library for a in artifacts}) == 1
    assert sum(" host" in m for m in messages) == 1


#: Of nvcc's steps, a change that the object would not survive.
OTHER = {
    "another step": "s/^#[$] fatbinary/#$ another_step --of nvcc\\n&/",
    "another module's id": '/cicc" /s#--orig_src_path_name "[^"]*"#--orig_src_path_name "/another.cu"#',
    "a step that fails": "s/^#[$] ptxas/& --no-such-flag/",
    "no steps": "s/^#[$]//",
}


@pytest.mark.parametrize(
    "ways",
    [("another step", "a step that fails"), pytest.param(("another module's id", "no steps"), marks=pytest.mark.slow)],
)
def test_else_nvcc_compiles_it(
    compiler: toolchain.Nvcc, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: tuple[str, ...]
) -> None:
    expected = made(built(suite, tmp_path / "build", monkeypatch, 1)[0])
    for number, how in enumerate(ways):
        edit, wrapper = OTHER[how], tmp_path / f"nvcc{number}"
        wrapper.write_text(
            f'#!/bin/sh\ncase "$*" in *two_steps.cu*--dryrun) "{compiler.path}" "$@" 2>&1 | sed \'{edit}\' >&2;;\n'
            f'*) exec "{compiler.path}" "$@";; esac\n'
        )
        wrapper.chmod(0o755)
        monkeypatch.setenv("NVCC", str(wrapper))
        artifact, messages = built(suite, tmp_path / "build", monkeypatch, 2)
        assert made(artifact) == expected, how
        assert any(" device" in m for m in messages) == (how not in ("another step", "no steps")), how


def test_what_does_not_compile_says_what_nvcc_says(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (suite / "two_steps.cu").open("a") as source:
        source.write("\nint no_semicolon\n")
    whole, split = (built(suite, tmp_path / "build", monkeypatch, n)[0] for n in (1, 2))
    assert split.status == "failed" and split.cause == whole.cause and "two_steps.cu" in split.message
