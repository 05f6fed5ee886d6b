"""A cached build has the facts and plans of the present sources, whatever changed that the compiler does not list."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.build import build, launch_plan, static_facts
from flashcore.machine import toolchain
from flashcore.model.record import Facts
from tests.conftest import TOY, Built, compile_one, no_disassembler

KERNEL = """
#include <flashcore/problem.h>
extern "C" __global__ void copy_kernel(const float* x, float* out, float factor, long long count) {
  __shared__ volatile char tile[16 * (SIZE)];
  if (threadIdx.x < sizeof tile) tile[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x < count) out[threadIdx.x] = x[threadIdx.x] * factor * tile[threadIdx.x % sizeof tile];
}
static flashcore::Plan plan(const flashcore::Shape&) {
  flashcore::Plan p;
  p.add({.kernel = "copy_kernel", .grid = dim3(1), .block = dim3(THREADS)});
  return p;
}
static cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p,
                          void*, cudaStream_t stream) {
  return flashcore::run(p.launches[0], copy_kernel, stream, static_cast<const float*>(a.x),
                        static_cast<float*>(a.out), static_cast<float>(a.factor), s.N);
}
FLASHCORE_VARIANT(plan, launch)
"""
HAS = "#if {}\n#define SIZE 2\n#else\n#define SIZE 1\n#endif\n#define THREADS 32\n"
INCBIN = """
#define SIZE 1
#define THREADS number[0]
extern "C" __attribute__((visibility("hidden"))) const unsigned char number[];
#ifndef __CUDA_ARCH__
asm(".pushsection .rodata\\nnumber: .incbin \\"number.bin\\"\\n.popsection");
#endif
"""
#: Variant → how its source begins.
VARIANTS = {
    "computed_probe": "#define TEXT(x) #x\n" + HAS.format("__has_include(TEXT(more.h))"),
    "probe_behind_a_link": HAS.format("__has_include(<linked/late.h>)"),
    "embedded_file": INCBIN,
    "place": "#define SIZE sizeof(__FILE__)\n#define THREADS 32\n",
    "options": "#ifndef SIZE\n#define SIZE 1\n#endif\n#define THREADS 32\n",
    "linked_file": "",
    "linked/folder": "",
}


def answers(built: Built) -> dict[str, tuple[float | None, int]]:
    """Variant → bytes of shared memory in its cubin, and threads of its plan."""
    plans = {p.variant: p for p in launch_plan.plans(built.suite, built.artifacts, [built.suite.shapes["small"]])}
    assert {a.variant: a.message for a in built.artifacts if a.status != "ok"} == {}
    with no_disassembler():
        smem = {a.variant: Facts(static_facts.facts(a)).named("static_smem")[0].number for a in built.artifacts}
    return {name: (smem[name], plan.launches[0].block[0]) for name, plan in plans.items()}


class Twice:
    """The variants before a change, and after it from the same build folder."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder = folder / "suite", folder
        shutil.copytree(TOY, self.root, ignore=shutil.ignore_patterns("__pycache__"))
        manifest = (self.root / "suite.toml").read_text(encoding="utf-8")
        variant = manifest[manifest.index("[variant.plain]") : manifest.index("[variant.wide]")]
        head = manifest[: manifest.index("[variant.plain]")].replace('"plain"', '"place"')
        for name, start in VARIANTS.items():
            head += variant.replace("plain", name.replace("/", "_")).replace("scale.cu", f"{name}.cu")
            if start:
                (self.root / f"{name}.cu").write_text(start + KERNEL, encoding="utf-8")
        for size, place in enumerate(("one", "other"), 1):
            (self.root / place).mkdir()
            text = f"#define SIZE {size}\n#define THREADS 32\n{KERNEL}"
            (self.root / place / "folder.cu").write_text(text, encoding="utf-8")
        self.link("one")
        (self.root / "suite.toml").write_text(head, encoding="utf-8")
        (folder / "elsewhere").mkdir()
        (self.root / "include" / "linked").symlink_to(folder / "elsewhere", target_is_directory=True)
        (self.root / "number.bin").write_bytes(b"\x20")
        (self.root / "more.opt").write_text("-DSIZE=1", encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            self.before = answers(self._all(patch))
            self.change()
            self.after = answers(self._all(patch))

    def _all(self, patch: pytest.MonkeyPatch) -> Built:
        built = compile_one(self.root, self.folder / "build", "[!o]*")
        patch.setenv("NVCC_APPEND_FLAGS", "--options-file more.opt")
        built.artifacts += compile_one(self.root, self.folder / "build", "options").artifacts
        patch.undo()
        return built

    def link(self, place: str) -> None:
        for name, target in (("linked", place), ("linked_file.cu", f"{place}/folder.cu")):
            (self.root / name).unlink(missing_ok=True)
            (self.root / name).symlink_to(target)

    def change(self) -> None:
        """Changes what each variant depends on."""
        self.link("other")
        (self.root / "include" / "more.h").touch()
        (self.folder / "elsewhere" / "late.h").touch()
        (self.root / "number.bin").write_bytes(b"\x40")
        (self.root / "more.opt").write_text("-DSIZE=2", encoding="utf-8")
        self.root = self.root.rename(self.folder / "a suite in another place")


@pytest.fixture(scope="module")
def twice(compiler: toolchain.Nvcc, tmp_path_factory: pytest.TempPathFactory) -> Twice:
    return Twice(tmp_path_factory.mktemp("twice"))


@pytest.mark.parametrize(
    ("variant", "before", "after"),
    [
        ("computed_probe", (16, 32), (32, 32)),
        ("probe_behind_a_link", (16, 32), (32, 32)),
        ("embedded_file", (16, 32), (16, 64)),
        ("place", (16 * len("place.cu "), 32), (16 * len("place.cu "), 32)),
        ("options", (16, 32), (32, 32)),
        ("linked_file", (16, 32), (32, 32)),
        ("linked_folder", (16, 32), (32, 32)),
    ],
)
def test_a_cached_build_says_what_a_fresh_one_would(
    twice: Twice, variant: str, before: tuple[int, int], after: tuple[int, int]
) -> None:
    assert (twice.before[variant], twice.after[variant]) == (before, after)


@pytest.mark.parametrize("word", ["__TIME__", "__DATE__", "__TIMESTAMP__"])
def test_a_kernel_that_knows_the_time_is_refused(compiler: toolchain.Nvcc, tmp_path: Path, word: str) -> None:
    root = shutil.copytree(TOY, tmp_path / "suite")
    source = root / "two_steps.cu"
    text, old = source.read_text(encoding="utf-8"), "copy[i] * factor;"
    assert old in text
    new = f"copy[i] * factor\n#ifdef __CUDA_ARCH__\n+ {word}[7]\n#endif\n;"
    source.write_text(text.replace(old, new), encoding="utf-8")
    artifact = compile_one(root, tmp_path / "build", "two_steps").of("two_steps")
    assert artifact.status == "failed" and f'macro "{word}"' in artifact.message


# --- what is no answer of this build ------------------------------------------------------------


def spoil(path: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes by as many others."""
    data = path.read_bytes()
    assert old in data and len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def renamed(folder: Path) -> None:
    """The folder of one variant under the name of another."""
    other = next(p for p in folder.parent.glob("plain-sm_90a-*") if p.is_dir())
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


SPOILED: dict[str, Callable[[Path], object]] = {
    "an edited cubin": lambda folder: spoil(folder / "variant.cubin", b"copy_kernel", b"cope_kernel"),
    "an edited log": lambda folder: spoil(folder / "variant.log", b"registers", b"registerz"),
    "an edited library": lambda folder: spoil(folder / "plan.so", b"copy_kernel", b"cope_kernel"),
    "an edited list of contents": lambda folder: spoil(folder / "contents.json", b'"host":"', b'"hose":"'),
    "an edited object": lambda folder: spoil(folder / "variant.o", b"copy_kernel", b"cope_kernel"),
    "an added listing": lambda folder: (folder / "variant.sass").write_text("edited"),
    "another variant's folder": renamed,
    "a folder that others may write": lambda folder: folder.chmod(0o777),
    "a manifest that others may write": lambda folder: (folder / "contents.json").chmod(0o666),
    "a list of files that others may write": lambda folder: next(folder.parent.glob("two_steps-*.json")).chmod(0o666),
}


@pytest.fixture
def place(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a build folder, used where nothing can be compiled."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("a process was started")

    folder = Path(shutil.copytree(compiled, tmp_path / "build"))
    compile_one(TOY, folder, "two_steps")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    return folder


def unit(folder: Path) -> Path:
    return next(p for p in folder.glob("toy/two_steps-sm_90a-*") if p.is_dir())


@pytest.mark.parametrize("how", SPOILED)
def test_a_folder_that_is_not_as_it_was_made_is_compiled_again(place: Path, how: str) -> None:
    assert compile_one(TOY, place, "two_steps").of("two_steps").cached
    SPOILED[how](unit(place))
    with pytest.raises(RuntimeError, match="a process was started"):
        compile_one(TOY, place, "two_steps")


@pytest.mark.parametrize(
    ("owner", "reader", "used"), [(1000, 1000, True), (0, 1000, True), (1000, 0, False), (1000, 1001, False)]
)
def test_only_what_this_user_or_root_made_is_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, owner: int, reader: int, used: bool
) -> None:
    if os.geteuid():
        pytest.skip("tool: only root gives files to others")
    for path in (place, *place.rglob("*")):
        os.chown(path, owner, owner)
    monkeypatch.setattr(os, "geteuid", lambda: reader)
    if used:
        assert compile_one(TOY, place, "two_steps").of("two_steps").cached
    else:
        with pytest.raises(RuntimeError, match="a process was started"):
            compile_one(TOY, place, "two_steps")


def test_an_edited_static_fact_is_noticed(place: Path) -> None:
    with no_disassembler():
        artifact = compile_one(TOY, place, "two_steps").of("two_steps")
        right = static_facts.facts(artifact)
        (kept,) = unit(place).glob("static.json")
        edited = re.sub('("static_smem": ?)1024', r"\g<1>512", kept.read_text(encoding="utf-8"))
        assert edited != kept.read_text(encoding="utf-8") and json.loads(edited)
        kept.write_text(edited, encoding="utf-8")
        assert static_facts.facts(artifact) == right


def test_an_edited_generated_header_is_written_again(compiled: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(compiled, tmp_path / "build"))
    (header,) = folder.glob("toy/*-binding-*/flashcore/problem.h")
    right = header.read_text(encoding="utf-8")
    header.write_text(right + "#error edited\n", encoding="utf-8")
    shutil.rmtree(unit(folder))
    assert compile_one(TOY, folder, "two_steps").of("two_steps").status == "ok"
    assert header.read_text(encoding="utf-8") == right


@pytest.mark.parametrize(
    "edited",
    [pytest.param("*-binding-*/binding.o", marks=pytest.mark.slow), "two_steps-sm_90a-*/variant.sass"],
)
def test_what_a_build_made_is_used_only_as_it_was_made(toy: Built, tmp_path: Path, edited: str) -> None:
    if toy.of("two_steps").library is None:
        pytest.skip("package: torch is not installed")
    folder = Path(shutil.copytree(toy.folder, tmp_path / "build"))
    paths = [*folder.glob(f"toy/{edited}")]  # other tests may have built it with other flags
    for path in paths:
        path.write_bytes(b"edited")
    if "binding" in edited:
        for made in filter(Path.is_dir, folder.glob("toy/two_steps-sm_90a-*")):
            shutil.rmtree(made)
    variants = [toy.suite.variants["two_steps"]]
    (artifact,) = build.build(toy.suite, folder, build.Options(archs=("sm_90a",)), variants=variants)
    used = [path for path in paths if path.is_file()]
    if "binding" not in edited:
        used = [Path(artifact.cubin or "").with_name("variant.sass")]
    assert artifact.status == "ok" and paths and any(path.read_bytes() != b"edited" for path in used)


@pytest.mark.parametrize("mask", [0, 0o077])
def test_any_umask_builds_what_is_found_again(compiler: toolchain.Nvcc, tmp_path: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        built = [compile_one(TOY, tmp_path / "build", "two_steps").of("two_steps").cached for _ in range(2)]
    finally:
        os.umask(old)
    assert built == [False, True]
