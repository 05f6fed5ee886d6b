"""A compiler's message: a rejected source with its first place, or a compiler that the machine stopped."""

from __future__ import annotations

import pytest

from flashcore.model.causes import CompileFailed, CompilerStopped
from flashcore.readers.compiler_log import compile_failed, failed


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("a.cu(7): error: no\nb.cu(9): error: no", ("a.cu", 7)),
        ("note\nx/a.cpp:12:5: error: no", None),
        ("x/a.cpp:12: fatal error: no such file", ("x/a.cpp", 12)),
        ("a.cu(7): warning: no", None),
        (" a.cu(7): error: quoted", None),
    ],
)
def test_the_first_error_has_its_place(message: str, place: tuple[str, int] | None) -> None:
    assert compile_failed(message) == (CompileFailed(message, *place) if place else CompileFailed(message))


@pytest.mark.parametrize(
    ("message", "stopped"),
    [
        ("", True),
        ("Killed", True),
        ("g++: fatal error: Killed signal terminated program cc1plus", True),
        ("nvcc fatal: No space left on device", True),
        ("<built-in>: fatal error: when writing output to /tmp/a.ii: No such file or directory", True),
        ("ptxas: Memory allocation failure", True),
        ("a.cu:5:10: fatal error: tile.cuh: Permission denied\ncompilation terminated.", True),
        ("a.cu:5:10: fatal error: tile.cuh: No such file or directory\ncompilation terminated.", False),
        ("PermissionError: [Errno 13] Permission denied: 'warps.json'\nTraceback", True),
        ("a.cu(7): error: identifier Killed is undefined\nKilled", False),
        ("    throw out of memory", False),
        ("nvcc fatal: unknown option", False),
    ],
)
def test_a_stopped_compiler_has_rejected_nothing(message: str, stopped: bool) -> None:
    assert isinstance(failed(message), CompilerStopped if stopped else CompileFailed)
