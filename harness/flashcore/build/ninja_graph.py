"""The ``build.ninja`` that compiles the variants: its targets and commands.

For each variant and arch:

    object (host arch only)  variant.o, variant.cubin   nvcc -c --keep, so that the analyzed device code is
                                                        exactly the loaded one
    cubin (other archs)      variant.cubin              nvcc -cubin
    sass                     variant.sass               nvdisasm, if installed
    libraries                operator.so                variant.o + the problem's binding, stable ABI
                             plan.so                    variant.o alone: the launch plan, without torch

Other archs whose preprocessed host code differs from the host arch's get an object and a plan.so too.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from flashcore.build import binding
from flashcore.build.libraries import Libraries
from flashcore.errors import UsageError
from flashcore.measure.machine import toolchain
from flashcore.model import cache
from flashcore.model.files import file_hash
from flashcore.model.suite import ForeignLauncher, Suite, Variant

HARNESS_INCLUDE = Path(__file__).parent / "include"
#: The symbols that a library exports. All others are local: the dynamic linker would merge equal symbols of several
#: libraries, such as a static variable in an inline function of a shared header.
EXPORTS = HARNESS_INCLUDE / "flashcore" / "exports.map"
LINK = "-shared -Wl,--gc-sections -Wl,--exclude-libs,ALL -Wl,-Bsymbolic"
#: __TIME__ would make every compilation different.
HOST_FLAGS = ("-Xcompiler", "-Werror=date-time")
LOG = "variant.log"
CUBIN = "variant.cubin"
SASS = "variant.sass"
PLAN = "plan.so"
RECORDER = "recorder.o"  # replaces the runtime, for variants with recorded plans
RECORDER_SOURCE = HARNESS_INCLUDE / "flashcore" / "recorder.cpp"
OPERATOR = "operator.so"
TORCH = "libtorch_cpu.so"  # the torch library that operators need, by its soname
OBJECT = "variant.o"
BINDING = "binding.o"
RULE = "variant.d"  # the files that the compiler read, as a make rule
HOST_TEXT = "host.ii"  # preprocessed host code, which depends on the arch through __CUDA_ARCH_LIST__
_LINES = "grep -av '^# [0-9]'"  # without line markers


@dataclass(frozen=True, slots=True)
class Unit:
    """One (variant, arch) to compile, in a separate folder that is renamed when complete."""

    variant: Variant
    arch: str
    folder: Path
    question: str
    flags: tuple[str, ...]
    wanted: tuple[str, ...]  # names of the files to make
    libraries: Libraries = field(default_factory=Libraries)

    @property
    def name(self) -> str:
        return f"{self.variant.name}-{self.arch}"

    @property
    def is_host(self) -> bool:
        """Whether host code is compiled too."""
        return PLAN in self.wanted


class Programs(NamedTuple):
    """What a graph runs, and torch's folder for operators; ``None``: no disassembly, no operators."""

    nvcc: toolchain.Nvcc
    cxx: Path
    disassembler: Path | None
    torch_root: Path | None


def graph(suite: Suite, units: Sequence[Unit], bindings: Mapping[str, Path], programs: Programs) -> str:
    """The ninja file. Each command writes to a temporary name next to its target and renames it; logs are kept."""
    q, (nvcc, cxx, disassembler, torch_root) = shlex.quote, programs
    top = os.path.realpath(suite.root)
    root = _escape(q(top))
    # A compiler's output is a file only after success, so that ninja gets it even on a full disk. The log is complete
    # before any product is moved into place, since another build may read it.
    logged = "2>&1); code=$$?; if [ $$code = 0 ]; then printf '%s\\n' \"$$output\" > $log.$$$$ && mv $log.$$$$ $log &&"
    # ptxas ends with 255 when it rejects its input; the shell's code of the last signal is 192.
    otherwise = (
        "else printf '%s\\n' \"$$output\"; "
        '[ $$code -le 128 ] || [ $$code -gt 192 ] || echo "ended by signal $$((code - 128))"; exit 1; fi'
    )
    lines = [
        "ninja_required_version = 1.5",
        f"builddir = {_path(units[0].folder.parent)}",  # ninja's log is removed with this folder
        "rule compile",
        # --keep keeps the preprocessed host code, which nvcc makes with -cubin too because of -MD, and the object's
        # cubin; other intermediates are removed. On a full disk a compiler's message may mislead: tee reports the disk.
        f"  command = cd {root} && output=$$(mkdir -p $dir/keep.$$$$ && $nvcc $flags $mode --keep --keep-dir "
        f"$dir/keep.$$$$ $source -o $out.$$$$ {logged} {{ {_LINES} $dir/keep.$$$$/*.cpp4.ii > $dir/{HOST_TEXT} "
        f"2>/dev/null || echo $what > $dir/{HOST_TEXT}; "
        f"$kept rm -rf $dir/keep.$$$$ && mv $out.$$$$ $out; }}; else room=$$(mktemp); head -c 99999 /dev/zero "
        f"| tee $dir/keep.$$$$/room > $$room; rm -rf $$room $dir/keep.$$$$; {otherwise[5:]}",
        "  description = $what",
        "rule binding",
        "  command = $cxx -std=c++17 -O1 -fPIC -fvisibility=hidden $includes -c $in -o $out.$$$$ && mv $out.$$$$ $out",
        "  description = $what",
        "rule link",
        f"  command = $cxx {LINK} -Wl,--version-script={_escape(q(str(EXPORTS)))} -o $out.$$$$ $in $libraries "
        "&& mv $out.$$$$ $out",
        "  description = $what",
        # A launch plan is read without a GPU and without the libraries of the variant: each function of theirs does
        # nothing and returns 0.
        "rule stubs",
        "  command = { [ $loose ] || $cxx -shared -Wl,-z,defs -o $out.so $in $shared $known; } && "
        "{ echo 'struct answer { long a, b; }; static struct answer none(void) { return (struct answer){0, 0}; }'; "
        "LC_ALL=C $cxx -shared -Wl,-z,defs,--no-demangle,--warn-unresolved-symbols -o $out.so $in $known 2>&1 "
        """| sed -n "s/.*undefined reference to \\`\\(\\w*\\)'.*/\\1/p" | sort -u | grep -v '^_*Py' """
        """| sed 's/.*/struct answer &(void) __attribute__((alias("none")));/'; } """
        "| $cxx -x c -w -fPIC -c -o $out - && rm -f $out.so",
        "  description = $what",
        "rule sass",
        # A disassembler that does not support the arch fails: SASS facts are then unmeasured, and the build continues.
        # The shell writes the file, since nvdisasm exits 0 after a partial write on a full disk.
        "  command = output=$$($nvdisasm -c -gi $in 2>/dev/null) && printf '%s\\n' \"$$output\" > $out.$$$$ "
        "&& mv $out.$$$$ $out || rm -f $out.$$$$",
        "  description = $what",
        f"nvcc = {_escape(q(str(nvcc.path)))}",
        f"cxx = {_escape(q(str(cxx)))}",
    ]
    if disassembler is not None:
        lines.append(f"nvdisasm = {_escape(q(str(disassembler)))}")
    recorder = units[0].folder.parent / RECORDER
    if any(u.is_host and isinstance(u.variant.kind, ForeignLauncher) for u in units):
        lines += [
            "rule recorder",
            f"  command = $nvcc -std=c++17 -O1 -Xcompiler -fPIC -I{q(str(HARNESS_INCLUDE))} -c $in -o $out",
            f"build {_path(recorder)}: recorder {_path(RECORDER_SOURCE)}",
        ]
    stub = units[0].folder.parent.resolve() / TORCH
    if torch_root is not None and any(u.is_host for u in units):
        # Operators link against an empty library of that name: the linker would read all of torch's symbols each time.
        lines += [
            "rule stub",
            f"  command = $cxx -shared -nostdlib -Wl,-soname,{TORCH} -o $out -x c++ /dev/null",
            f"build {_path(stub)}: stub",
        ]
    defaults: list[str] = []
    objects = {name: folder / BINDING for name, folder in bindings.items()}
    for name, folder in bindings.items():
        if torch_root is None or cache.recall(folder, BINDING, file_hash(folder / BINDING)):
            continue  # up to date
        objects[name] = units[0].folder.parent / f"{name}.o"
        includes = [
            f"-DTORCH_TARGET_VERSION={binding.TORCH_TARGET_VERSION}",
            f"-isystem {q(str(torch_root / 'include'))}",
            f"-I{q(str(folder.resolve()))}",
        ]
        lines += [
            f"build {_path(objects[name])}: binding {_path(folder / 'binding.cpp')}",
            f"  includes = {_escape(' '.join(includes))}",
            f"  what = binding of {name}",
        ]
    # --exclude-libs hides each library's static CUDA runtime.
    runtime = f"{q(str(nvcc.cudart_static))} -ldl -lrt -lpthread" if any(u.is_host for u in units) else ""
    # ninja starts what is ready in this order: the GPU's arch first, and a suite's last variants, which are usually the
    # longest and would end the build alone.
    order = sorted(units, key=lambda unit: unit.is_host)
    for unit in reversed(order):
        folder = unit.folder.resolve()
        source = (Path(suite.root) / unit.variant.kind.file).resolve()
        # Relative to the suite, so that __FILE__ is the same in a copy of the suite.
        relative = re.sub("^(?=[-@])", "./", os.path.relpath(source, top))
        problem = bindings[unit.variant.problem].resolve()
        headers = (f"-I{problem}", f"-I{HARNESS_INCLUDE}", *unit.libraries.flags)
        places = (*headers, "-MD", "-MT", OBJECT, "-MF", str(folder / RULE))
        # nvcc splits -D at commas, so those in a macro's value (template arguments) are escaped.
        escaped = [flag.replace(",", "\\,") if flag.startswith("-D") else flag for flag in unit.flags]
        flags = " ".join(map(q, (*escaped, *HOST_FLAGS, *places)))
        common = [
            f"  flags = {_escape(flags)}",
            f"  source = {_escape(q(relative))}",
            f"  log = {_escape(q(str(folder / LOG)))}",
            f"  dir = {_escape(q(str(folder)))}",
            f"  what = {unit.variant.name} {unit.arch}",
        ]
        if disassembler is not None:
            lines += [
                f"build {_path(folder / SASS)}: sass {_path(folder / CUBIN)}",
                f"  what = {unit.variant.name} {unit.arch} sass",
            ]
            defaults.append(_path(folder / SASS))
        if not unit.is_host:
            lines += [f"build {_path(folder / CUBIN)}: compile {_path(source)}", *common, "  mode = -cubin"]
            defaults.append(_path(folder / CUBIN))
            continue
        lines += [
            f"build {_path(folder / 'variant.o')} | {_path(folder / CUBIN)}: compile {_path(source)}",
            *common,
            "  mode = -c",
            f"  kept = mv {_escape(q(str(folder)))}/keep.$$$$/*.cubin {_escape(q(str(folder / CUBIN)))} &&",
        ]
        linked = unit.libraries
        stand_in, first = "", ""
        if isinstance(unit.variant.kind, ForeignLauncher):
            # The recorder's symbols take precedence over the runtime's, which provides the rest.
            stand_in, first = f" {_path(recorder)}", "-Wl,-z,muldefs "
        # A source without FLASHCORE_VARIANT, or without a library, fails here instead of when it is loaded.
        strict = "" if linked.loose else "-Wl,-z,defs "
        plan = f"{first}-Wl,--require-defined=flashcore_launch_plan {_files(linked.static, linked.of_torch)} {runtime}"
        if linked.shared or linked.loose:
            stubs = folder / "stubs.o"
            lines += [
                f"build {_path(stubs)}: stubs {_path(folder / OBJECT)}{stand_in}",
                f"  known = {_escape(plan)}",
                f"  shared = {_escape(_files(linked.shared))}",
                f"  loose = {linked.loose or ''}",
                f"  what = {unit.variant.name} stubs of libraries",
            ]
            stand_in += f" {_path(stubs)}"
        lines += [
            f"build {_path(folder / 'plan.so')}: link {_path(folder / 'variant.o')}{stand_in}",
            f"  libraries = {_escape(strict + plan)}",
            f"  what = {unit.variant.name} plan",
        ]
        defaults.append(_path(folder / "plan.so"))
        if OPERATOR in unit.wanted:
            needed = f"-Wl,--push-state,--no-as-needed {q(str(stub))} -Wl,--pop-state"
            files = _files(linked.static, linked.shared, linked.of_torch)
            lines += [
                f"build {_path(folder / 'operator.so')}: link {_path(folder / 'variant.o')} "
                f"{_path(objects[unit.variant.problem])} | {_path(stub)}",
                f"  libraries = {_escape(f'{needed} {files} {runtime}')}",
                f"  what = {unit.variant.name} operator",
            ]
            defaults.append(_path(folder / "operator.so"))
    lines.append(f"default {' '.join(defaults)}")
    return "\n".join(lines) + "\n"


def has_content(path: Path) -> bool:
    """Whether a file exists and is not empty, as it may be after a power failure."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _files(*groups: Sequence[Path]) -> str:
    """The linker's arguments for libraries; shared ones are found at the same place when they are loaded."""
    files = [file for group in groups for file in group]
    folders = dict.fromkeys(f"-Wl,-rpath,{file.parent}" for file in files if file.suffix != ".a")
    return shlex.join([*["-Wl,--as-needed"] * bool(folders), *map(str, files), *folders])


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _path(path: Path) -> str:
    text = str(path.resolve())
    if "|" in text:
        raise UsageError(
            f"{text}: expected a path without |, which ninja does not support\n"
            "  hint: rename the folder, or give another with --build-dir"
        )
    return re.sub(r"([$ :])", r"$\1", text)
