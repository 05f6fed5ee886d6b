"""Gluon's kernels are launched, compiled and recorded as Triton's."""

from flashcore.features.languages.traced import Traced

_TRITON = "flashcore.features.languages.triton.language"
LANGUAGE = Traced(
    "gluon", "triton", _TRITON, variables="TRITON_", recorder=f"{_TRITON}:recorded", install="flashcore-harness[triton]"
)
