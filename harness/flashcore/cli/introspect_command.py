"""What ``flashcore introspect`` does, between the command line and the stage."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from flashcore.errors import Exit, FlashcoreError, UsageError
from flashcore.model import files
from flashcore.pipeline import compile_ahead
from flashcore.pipeline import run as run_module
from flashcore.pipeline.gpu_stages import child_cases
from flashcore.pipeline.state import Settings
from flashcore.stages import introspect
from flashcore.worker.kernel_call import load_problem


def run(settings: Settings, say: Callable[[str], None], *, check: bool) -> Exit:
    """Asks this GPU what the suite's problems ask, and writes the answers into the suite's sources.

    Args:
        check: compare with what is there, and write nothing.

    Raises:
        UsageError: no problem of the suite has a question.
        CapabilityError: there is no GPU.
        FlashcoreError: a kernel that asks does not build, or its answer cannot be one.
    """
    line = run_module.start(settings, say)
    suite = line.suite
    asking = [n for n, p in suite.problems.items() if introspect.asks(load_problem(suite.root, p.file))]
    line.variants = [v for v in line.variants if v.problem in asking and not v.is_peer]
    if not line.variants:
        raise UsageError(
            f"{settings.suite}: expected a problem with `{introspect.HOOK}`, and a variant that asks it, found none"
        )
    run_module.require_gpu(settings)
    assert line.gpu is not None
    compile_ahead.compile_all(line)
    for artifact in line.artifacts:
        if artifact.arch == line.gpu_arch and artifact.status != "ok":
            raise FlashcoreError(f"{artifact.variant}: expected it to build for {artifact.arch}:\n{artifact.message}")
    pairs = [(v, s) for v in line.variants for s in line.shapes if s.problem == v.problem]
    with tempfile.TemporaryDirectory(prefix="flashcore-introspect-") as folder:
        cases = child_cases(line, pairs)
        answers = introspect.run(cases, Path(folder), line.gpu.capability, time_limit=settings.time_limit, progress=say)
    differ = False
    for answer in answers:
        same = answer.path.is_file() and answer.path.read_text(encoding="utf-8") == answer.text
        print(
            f"{answer.case} on {line.gpu.name}: "
            + ("as committed" if same else "; ".join(answer.news) or "another text")
        )
        if not same and not check:
            files.write_atomically(answer.path, answer.text.encode())
            print(f"wrote {answer.path}")
        differ = differ or not same
    if differ and check:
        print("to mend: flashcore introspect, on this machine; then look at what it changed")
    return Exit.FAILED if differ and check else Exit.OK
