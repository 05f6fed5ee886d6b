"""FlashAttention-4 of the package flash-attn-4, for the problem of `general.py`; without the package the import fails.

The package compiles when a kind of input is first called. Where its compiler is not installed, `make_fa4.py` can do so
ahead of time: the environment variable FA4_LIBRARY names its library, and only the package apache-tvm-ffi is needed.
On Hopper the kernel never splits the keys.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: int) -> Tensor:
    """The package's function, which takes ``[B, S, H, D]`` with any strides, or the kernel that it would choose."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    path = os.environ.get("FA4_LIBRARY")
    if path is None:
        from flash_attn.cute import flash_attn_func  # type: ignore[import-not-found]

        out: Tensor = flash_attn_func(q, k, v, softmax_scale=scale, causal=bool(causal))[0]
    else:
        out = q.new_empty(q.shape)
        # No log-sum-exp; after the scale: lengths, pages, window, sink, sparsity, score function's data, tile counts.
        kernel = _library(path)[kernel_name(q, k, causal)]
        kernel(q, k, v, out, None, scale, *[None] * 9, (None, None), None, None)
    return out.transpose(1, 2)


def kernel_name(q: Tensor, k: Tensor, causal: int) -> str:
    """What distinguishes compiled kernels: all else is an argument."""
    dtype = str(q.dtype).removeprefix("torch.")
    return f"fa4_{dtype}_d{q.shape[3]}_group{q.shape[2] // k.shape[2]}" + ("_causal" if causal else "")


@functools.cache
def _library(path: str) -> Any:
    import tvm_ffi  # type: ignore[import-not-found]

    return tvm_ffi.load_module(path)
