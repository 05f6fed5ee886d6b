"""Gluon's kernels are launched, compiled and recorded as Triton's."""

from __future__ import annotations

from flashcore.plugins.languages.traced import Traced
from flashcore.plugins.languages.triton import language as triton

LANGUAGE = Traced("gluon", "triton", triton.__name__, variables="TRITON_", recorder=triton.recorded)
