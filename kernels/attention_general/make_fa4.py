"""Compiles FlashAttention-4 ahead of time into one shared library for `fa4.py`: ``make_fa4.py LIBRARY``.

It needs the packages flash-attn-4 and nvidia-cutlass-dsl[cu13], torch, nvcc, and no GPU. The library is for sm_90a; it
holds a kernel for each type, D, causal or not, and number of query heads that share a key head.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Read when the package is imported.
os.environ.update(FLASH_ATTENTION_ARCH="sm_90", CUTE_DSL_ARCH="sm_90a", FLASH_ATTENTION_NUM_SMS="132")

import fa4  # type: ignore[import-not-found]
import nvidia_cutlass_dsl  # type: ignore[import-not-found]
import torch
import tvm_ffi  # type: ignore[import-not-found]
from flash_attn.cute import flash_attn_func, interface  # type: ignore[import-not-found]
from torch._subclasses.fake_tensor import FakeTensorMode

# The compiler's runtime library has 43 MB. Of these the kernels need a part that there is as a static library, and one
# function: it raises a CUDA error through a function that it is given.
RAISE = """
extern const char* cudaGetErrorString(int);
void CuteDSLRT_TVMFFISetRaisedCudaError(void (*raise)(const char*, const char**, int), int error) {
  const char* message = cudaGetErrorString(error);
  raise("RuntimeError", &message, 1);
}
"""


class _Export(dict[Any, Any]):
    """The package's cache of compiled kernels, which also writes each as an object file."""

    target = Path()

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(key, compiled)
        compiled.export_to_c(object_file_path=str(self.target), function_name=self.target.stem)


def main() -> None:
    cache = interface._flash_attn_fwd.compile_cache = _Export()
    with TemporaryDirectory() as name, FakeTensorMode():
        folder = Path(name)
        for dtype, depth, group, causal in itertools.product(
            (torch.float16, torch.bfloat16), (64, 128), (1, 2, 4, 8, 16), (0, 1)
        ):
            q = torch.empty((2, 256, 2 * group, depth), dtype=dtype, device="cuda")
            k, v = (torch.empty((2, 256, 2, depth), dtype=dtype, device="cuda") for _ in "kv")
            cache.target = folder / f"{fa4.kernel_name(q, k, causal)}.o"
            flash_attn_func(q, k, v, causal=bool(causal))
            print(cache.target.stem, flush=True)
        (folder / "raise.c").write_text(RAISE)
        runtime = Path(next(iter(nvidia_cutlass_dsl.__path__))) / "cu13/lib/libcuda_dialect_runtime_static.a"
        ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
        parts = [*sorted(folder.glob("*.o")), folder / "raise.c", runtime, ffi]
        subprocess.run(["nvcc", "-shared", "-cudart", "shared", "-o", sys.argv[1], *parts], check=True)


if __name__ == "__main__":
    main()
