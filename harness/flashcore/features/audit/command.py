"""``flashcore audit``: lists the kernels in compiled files, and checks their budgets."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from glob import glob
from pathlib import Path

from flashcore.cli import gate, options, output
from flashcore.cli.baseline import save
from flashcore.cli.grid import cell, grid
from flashcore.errors import Exit, ManifestError, UsageError, worst
from flashcore.features.audit import base, kernels, limits, rows, sass, sources
from flashcore.features.audit.inventory import Inventory, inventory
from flashcore.features.audit.record import NAME, gpus_of, record_of
from flashcore.gate import baseline, formats
from flashcore.model.cause import cause_text
from flashcore.model.record import Record
from flashcore.model.text import count
from flashcore.pipeline.judging import Rules, judge_record
from flashcore.records import store
from flashcore.records.slugs import checked

_COLUMNS = {
    "registers": "regs",
    "spill_store_bytes": "spill st B",
    "spill_load_bytes": "spill ld B",
    "stack_bytes": "stack B",
    "static_smem": "smem B",
    "code_bytes": "code B",
    "occupancy_low": "occ %",
    "occupancy_high": "to %",
    "sass_tensor": "tensor",
    "sass_local_loop": "local in loops",
}
_WIDEST = 100
FLAGS = "-O3 -std=c++17"  # nvcc's, for CUDA sources
_PROJECT = Path(limits.FILE)

EXAMPLES = (
    ("flashcore audit kernel.cubin", "its kernels"),
    ("flashcore audit kernel.cubin --max spill_store_bytes=0", "exit with 1 if one spills"),
    ("flashcore audit kernel.cu --arch sm_90a", "compiled by nvcc"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "sources, wheels, libraries, objects, fatbins, cubins, folders, patterns (default: those of flashcore.toml)"
    parser.add_argument("files", nargs="*" if _PROJECT.is_file() else "+", metavar="FILE", help=text)
    for name, extreme in (("maximum", "most"), ("minimum", "least")):
        text = f"the {extreme} that a static fact of any kernel may be, such as registers=128; repeatable"
        parser.add_argument(
            f"--{name[:3]}", dest=name, action="append", default=[], type=limits.limit, metavar="FACT=NUMBER", help=text
        )
    text = "kernels without limits; repeatable"
    parser.add_argument("--except", dest="exceptions", action="append", default=[], metavar="GLOB", help=text)
    output.add_formats(parser, [*gate.formats(), "csv"])
    text = "fail where a kernel is worse than in this file (default: that of flashcore.toml)"
    parser.add_argument("--baseline", metavar="FILE", help=text)
    text = "write a baseline, or take improvements and new kernels over into it"
    parser.add_argument("--save-baseline", metavar="FILE", help=text)
    parser.add_argument("--kernel", default="*", metavar="GLOB", help="show only kernels whose names match")
    parser.add_argument("--sass", action="store_true", help="disassemble these kernels (minutes for large libraries)")
    text = "compile CUDA sources and PTX for this arch; repeatable (default for sources: this GPU's)"
    parser.add_argument("--arch", dest="archs", action="append", default=[], metavar="ARCH", help=text)
    text = "nvcc's flags for CUDA sources (default: %(default)s)"
    parser.add_argument("--flags", default=FLAGS, metavar="FLAGS", help=text)
    parser.add_argument("--top", type=int, default=20, metavar="N", help="rows that are shown (default: %(default)s)")
    parser.add_argument(
        "--each", action="store_true", help="a row per kernel: do not group instantiations of a template"
    )
    parser.add_argument("--block", type=int, metavar="N", help="threads per block that occupancy is for")
    parser.add_argument("--for", dest="gpus", default="", metavar="GPU,…", help="say which of these GPUs run the code")
    parser.add_argument(
        "--name", default=NAME, metavar="NAME", help="name of the record's suite (default: %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the result as a run in --profiles")
    options.add_profiles(parser)
    options.add_base(parser)


def run(arguments: argparse.Namespace) -> int:
    options.require_top(arguments)
    options.require_positive(arguments, "block")
    revision = options.base(arguments)
    gpus = gpus_of(filter(None, arguments.gpus.split(",")))
    renderers = {**formats.FORMATS, **rows.FORMATS}
    outputs = output.parse(arguments.format, [*gate.formats(), "csv"])
    form, decisions = limits.read(_PROJECT)
    path = arguments.baseline or (None if arguments.save_baseline else form.baseline)
    old = baseline.read(Path(path)) if path else None
    lines = old.values if old else ()
    limited = {*form.maximum, *form.minimum, *dict(arguments.maximum + arguments.minimum)}
    limited.update(one.fact for one in (*form.budget, *lines))
    every = decisions or not limited.isdisjoint(sass.NAMES)
    selected = ["*"] if every else [arguments.kernel] * arguments.sass
    commands: list[list[str]] = []
    files = arguments.files or form.files
    if not files:
        raise UsageError(f"expected a FILE, or files below [audit] in {_PROJECT}; found neither")
    content = _inventory(files, arguments.archs, arguments.flags, commands, selected, decisions)
    for line in lines:  # a missing file is a gap
        content.files.setdefault(line.variant, f"{line.variant}: missing")
        content.codes.setdefault((line.variant, line.arch), [])
    record = record_of(
        store.new_id(),
        content,
        name=checked(arguments.name),
        command=options.recorded_command(["flashcore", *sys.argv[1:]]),
        block=arguments.block,
        gpus=gpus,
    )
    kernels = {kernel.name for kernel in content.kernels}
    suite, mistakes = limits.limited(record.suite, form, arguments, kernels) if content.files else (record.suite, [])
    if mistakes:
        raise ManifestError("flashcore audit", mistakes)
    more, before = base.compared(revision, arguments, record.suite, suite, kernels) if revision else ([], None)
    rules = Rules(
        compare=bool(path), baseline=path, more=more, base=(revision, before) if revision and before else None
    )
    record = replace(record, suite=suite)
    if shown := ("table", None) in outputs:
        print(table(record, arguments.kernel, arguments.top, arguments.each))
        print("\n".join([*_remarks(record, content), *map(shlex.join, commands)]))
    code = Exit.OK if content.kernels else Exit.UNMEASURED
    if suite.budgets or path or more or arguments.format:
        judged = judge_record(rules, record)
        gate.show(judged, outputs, renderers=renderers)
        code = judged.judgement.exit_code
    if arguments.save_baseline:
        file = Path(arguments.save_baseline)
        code = worst([code, save(record, baseline.read(file), file, ratchet=False)])
    if arguments.keep:
        folder = store.begin(Path(arguments.profiles), record.id)
        store.write(record, folder)
        print(store.complete(folder), file=None if shown else sys.stderr)
    return code


def audit(patterns: Iterable[str], archs: Sequence[str] = ()) -> Record:
    """The record of compiled files, without limits; CUDA sources and PTX are compiled for the archs.

    Args:
        patterns: paths of wheels, libraries, objects, fatbins, cubins or sources, or globs of them.
        archs: such as ``sm_90a``; for sources, by default this GPU's.

    Raises:
        UsageError: a file does not exist, or does not compile.
    """
    return record_of("", _inventory(patterns, archs, FLAGS, []), name=NAME, command="")


def _inventory(
    patterns: Iterable[str],
    archs: Sequence[str],
    flags: str,
    commands: list[list[str]],
    selected: Sequence[str] = (),
    decisions: sass.Decisions | None = None,
) -> Inventory:
    """The kernels of the files; CUDA sources are compiled, by the ``commands`` that this adds."""
    begin = time.monotonic()
    paths = [path for pattern in patterns for path in _matching(pattern)]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(os.cpu_count()) as compilers:
        compiled = [i for i, path in enumerate(paths) if path.suffix == sources.SUFFIX and path.is_file()]
        commands += (sources.command(paths[i], archs, flags) for i in compiled)
        folders = [Path(tempfile.mkdtemp(dir=temporary)) for _ in compiled]
        for i, made in zip(compiled, compilers.map(sources.compiled, commands, folders), strict=True):
            paths[i] = made
        content = inventory(paths, selected, archs, decisions)
    content.seconds = time.monotonic() - begin
    return content


def _matching(pattern: str) -> list[Path]:
    """The paths that match, or the path of this name; not what is in a folder that matches too."""
    paths = dict.fromkeys(map(Path, sorted(glob(pattern, recursive=True)) or [pattern]))
    return [path for path in paths if paths.keys().isdisjoint(path.parents)]


def table(record: Record, names: str, top: int, each: bool) -> str:
    """The kernels with the most spills, then the largest. The worst instantiation represents its template."""
    groups = kernels.groups(record, names, each=each)
    columns = {name: title for name, title in _COLUMNS.items() if record.facts.named(name)}
    cells = []
    for group in groups[:top]:
        name = (group.worst.kernel or "")[:_WIDEST] + (f"  ×{len(group.spills)}" if len(group.spills) > 1 else "")
        numbers = (cell(group.facts.get(column), 0) for column in columns)
        cells.append([group.worst.variant, group.worst.arch or "", *numbers, name])
    more = len(groups) - len(cells)
    rest = [f"… and {count(more, 'more row')}: --top {len(groups)}"] if more else []
    return "\n".join([grid(("file", "arch", *columns.values(), "kernel"), cells)] * bool(cells) + rest)


def _remarks(record: Record, content: Inventory) -> Iterator[str]:
    archs = ", ".join(record.suite.archs) or "no arch"
    kernels, files = len(content.kernels), len({kernel.variant for kernel in content.kernels})
    yield f"{count(kernels, 'kernel')} in {count(files, 'file')} for {archs}, {content.seconds:.1f} s"
    if shown := record.facts.named("sass_instructions"):
        yield f"{len(shown)} of the kernels disassembled in that time"
    yield from record.suite.notes
    for why, n in Counter(cause_text(k.content.missing) for k in content.kernels if k.content.missing).items():
        yield f"unmeasured in {count(n, 'kernel')}: {why}"
    for one in content.unread:
        yield f"unreadable: {content.files[one.variant]} {one.place} {one.arch}: {cause_text(one.cause)}"
