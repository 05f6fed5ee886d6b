"""Gluon's kernels are launched, compiled and recorded as Triton's."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from flashcore.plugins.languages.launches import Call
from flashcore.plugins.languages.traced import Traced


def recorded(*arguments: Any, **options: Any) -> AbstractContextManager[list[Call]]:
    from flashcore.plugins.languages.triton import language  # a plugin of its own, which may be absent

    return language.recorded(*arguments, **options)


LANGUAGE = Traced(
    "gluon", "triton", "flashcore.plugins.languages.triton.language", variables="TRITON_", recorder=recorded
)
