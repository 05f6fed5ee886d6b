"""A suite in Triton: a sound kernel, edits that change no machine code, one that tunes itself, and a planted spill."""

from __future__ import annotations

from pathlib import Path

from flashcore.machine import toolchain
from flashcore.model.suite import Suite
from flashcore.suites.load import load

VERSION = toolchain.version_of("triton") or ""

SOURCE = """import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row + offsets, mask=offsets < columns, other=float("-inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + offsets, weights / tl.sum(weights, 0), mask=offsets < columns)


def softmax(x, out, CAP):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=1, maxnreg=CAP)
"""

#: Name → what is put in the place of what, one after the other.
HARMLESS: dict[str, tuple[tuple[str, str], ...]] = {
    "text": (
        ("    row =", "    # the first element of this program's row\n    row ="),
        ("constexpr):\n", 'constexpr):\n    """A program a row."""\n'),
        ("\n\n\n", "\n\n\n\n\n"),
        ("(0) * columns", "( 0 )  *  columns"),
        ("@triton.jit\n", "def unused(x):\n    return x\n\n\n@triton.jit\n"),
    ),
    "names": (
        ("    row = tl.program_id(0) * columns\n    offsets = tl.arange(0, BLOCK)\n",
         "    offsets = tl.arange(0, BLOCK)\n    row = tl.program_id(0) * columns\n"),
        ("softmax_kernel", "rows_kernel"),
        ("columns, BLOCK: ", "width, BLOCK: "), ("0) * columns", "0) * width"),
        ("offsets < columns", "offsets < width"),
        ("values", "loaded"), ("weights", "w"),
        ("triton.language as tl", "triton.language as T"), ("tl.", "T."),
    ),
    "launcher": (
        ("](x, out, columns, BLOCK=block", "](out=out, x=x, BLOCK=block, columns=columns"),
        ("    block = triton.next_power_of_2(columns)\n", ""),
        ("BLOCK=block", "BLOCK=triton.next_power_of_2(columns)"),
        ("[(rows,)]", "[lambda meta: (rows, 1, 1)]"),
    ),
}  # fmt: skip

#: Tuned while it runs: one of its configurations spills.
TUNED = SOURCE.replace(
    "@triton.jit",
    """@triton.autotune(
    [triton.Config({"BLOCK": 1024}, num_warps=w, maxnreg=cap) for w, cap in ((1, 128), (1, 24), (4, 128))],
    key=["columns"],
)
@triton.jit""",
).replace(", BLOCK=block, num_warps=1, maxnreg=CAP", "")

MANIFEST = """
name = "planted"
title = "Planted"
triton = "RELEASE"
archs = ["sm_89"]
baseline = "sound"
[problem.rows]
file = "rows.py"
schema = "(Tensor x, Tensor(a!) out) -> ()"
dims = { x = ["R", "C"], out = ["R", "C"] }
dtypes = { "*" = "float32" }
[shape.rows]
params = { R = 64, C = 1024 }
[[budget]]
name = "spills"
fact = "spill_store_bytes"
max = 0
source = "test"
[[budget]]
name = "occupancy"
fact = "theoretical_occupancy"
min = 40
source = "test"
"""

VARIANT = """
[variant.{name}]
technique = "{name}"
callable = "{name}.py:softmax"
cubins = "triton"
config = {{ CAP = {cap} }}
roof = "fp32"
tolerance = "fp32"
tolerance_reason = "fp32"
"""


def written(folder: Path) -> Suite:
    """A suite with the sound kernel, each harmless edit of it, and the planted spill."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.py").write_text("TOLERANCES = {'fp32': ''}\n", encoding="utf-8")
    texts = {"sound": SOURCE, "spilling": SOURCE, "tuned": TUNED}
    for name, edits in HARMLESS.items():
        text = SOURCE
        for old, new in edits:
            assert old in text, (name, old)
            text = text.replace(old, new)
        texts[name] = text
    variants = ""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        variants += VARIANT.format(name=name, cap=24 if name == "spilling" else 128)
    release = ".".join(VERSION.split(".")[:2])
    (folder / "suite.toml").write_text(MANIFEST.replace("RELEASE", release) + variants, encoding="utf-8")
    return load(folder)
