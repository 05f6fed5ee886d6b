"""Gluon's kernels are launched, compiled and recorded as Triton's."""

from flashcore.features.languages.traced import Traced
from flashcore.features.languages.triton import language as triton

LANGUAGE = Traced("gluon", triton.PACKAGE, triton.__name__, variables="TRITON_", recorder=f"{triton.__name__}:recorded")
