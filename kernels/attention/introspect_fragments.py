"""Asks this GPU which lane holds which element of a WMMA accumulator, and keeps its answer as a source file.

    python kernels/attention/introspect_fragments.py [--check] [--build-dir DIR]

The kernel (introspect.cu) is built for this GPU and called once; what it answers becomes
``include/attention/fragment_table.cuh`` (see ``rewritten`` in fragment.py). The kernels that use that table refuse to
run on a machine that has not answered so. ``--check`` compares and writes nothing: exit code 1 if they differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from flashcore.build.build import Options, build
from flashcore.errors import Exit, FlashcoreError
from flashcore.machine.gpu import Gpu
from flashcore.model.files import write_atomically
from flashcore.runner.kernel_call import operator, require_device, synchronize
from flashcore.runner.problem_file import load_problem
from flashcore.suites.load import load

HERE = Path(__file__).resolve().parent
VARIANT, SHAPE = "fragment_introspect", "fragment"


def main(words: list[str] | None = None) -> int:
    """Asks, compares and writes; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with what is there, and write nothing")
    parser.add_argument("--build-dir", default="build", metavar="DIR", help="compiled objects (default: build)")
    arguments = parser.parse_args(words)
    try:
        require_device("cuda")
        gpu = Gpu.find()
        assert gpu is not None
        return keep(ask(gpu, Path(arguments.build_dir)), gpu, check=arguments.check)
    except FlashcoreError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)


def ask(gpu: Gpu, folder: Path) -> dict[str, Any]:
    """The kernel's outputs, as nested lists by name.

    Args:
        folder: where what is compiled is kept.

    Raises:
        FlashcoreError: the kernel does not build for this GPU.
    """
    import torch

    suite = load(HERE)
    variant, shape = suite.variants[VARIANT], suite.shapes[SHAPE]
    arch = gpu.arch_of(suite.archs)
    options = Options(archs=(arch,) if arch else suite.archs)
    built = build(suite, folder, options, variants=[variant], gpu_arch=arch)[0]
    if arch is None or built.status != "ok" or built.library is None:
        raise FlashcoreError(f"{VARIANT}: expected it to build for {gpu.name}, found: {built.message or suite.archs}")
    given = load_problem(HERE, "fragment.py").make_inputs(dict(shape.params), 0, "cuda")
    outputs = {
        a.name: torch.full([int(shape.params[d]) for d in a.dims], -1, dtype=getattr(torch, a.dtype), device="cuda")
        for a in suite.problems[variant.problem].arguments
        if a.mutable
    }
    call = operator(suite.name, VARIANT, str(Path(built.library).resolve()))
    call(*(outputs.get(a.name, given.get(a.name)) for a in suite.problems[variant.problem].arguments))
    synchronize("cuda")
    return {name: tensor.tolist() for name, tensor in outputs.items()}


def keep(answer: dict[str, Any], gpu: Gpu, *, check: bool) -> Exit:
    """Says what is news in the answer, and unless ``check`` writes it.

    Raises:
        FlashcoreError: it cannot be an answer.
    """
    try:
        path, text, news = load_problem(HERE, "fragment.py").rewritten(
            answer, gpu.capability[0] * 10 + gpu.capability[1]
        )
    except ValueError as error:
        raise FlashcoreError(f"{VARIANT}: the answer of {gpu.name} is none: {error}") from error
    same = path.is_file() and path.read_text(encoding="utf-8") == text
    print(f"{gpu.name}: " + ("as committed" if same else "; ".join(news) or "another text"))
    if not same and not check:
        write_atomically(path, text.encode())
        print(f"wrote {path}")
    return Exit.FAILED if check and not same else Exit.OK


if __name__ == "__main__":
    sys.exit(main())
