"""A compiler's message: a rejected source with its first place, or a compiler that the machine stopped."""

from __future__ import annotations

import pytest

from flashcore.model.causes import CompileFailed, CompilerStopped
from flashcore.readers.compiler_log import compile_failed, failed


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("a.cu(7): error: no\nb.cu(9): error: no", ("a.cu", 7)),
        ("note\nx/a.cpp:12:5: error: no", ("x/a.cpp", 12)),
        ("x/a.cpp:12: fatal error: no such file", ("x/a.cpp", 12)),
        ("a.cu(7): warning: no", None),
        (" a.cu(7): error: quoted", None),
    ],
)
def test_the_first_error_has_its_place(message: str, place: tuple[str, int] | None) -> None:
    cause = compile_failed(message)
    assert (cause.file, cause.line) == (place or ("", 0))


MISSING = """In file included from a.cuh:2,
                 from a.cu:1:
deep/b.h:10:10: fatal error: theirs.h: No such file or directory
   10 | #include <theirs.h>
      |          ^~~~~~~~~~
compilation terminated.
"""
UNDEFINED = """/usr/bin/ld: /tmp/x/variant.o: in function `__static_init__':
a.cudafe1.cpp:(.text+0x242): undefined reference to `helper(int)'
/usr/bin/ld: a.cudafe1.cpp:(.text+0x300): undefined reference to `other'
collect2: error: ld returned 1 exit status
"""
WARNED = """a.cu(2): warning #177-D: variable "n" was declared but never referenced
  int n;
      ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

a.cu(4): error: identifier "y" is undefined
  y = 3;
  ^

a.cu(9): error: expected a ";"
2 errors detected in the compilation of "a.cu".
"""


@pytest.mark.parametrize(
    ("message", "first", "more"),
    [
        (MISSING, "deep/b.h:10:10: fatal error: theirs.h: No such file or directory", "#include <theirs.h>"),
        (UNDEFINED, "undefined reference to `helper(int)'", "hint"),
        (WARNED, 'a.cu(4): error: identifier "y" is undefined', "y = 3;"),
        ("/usr/bin/ld: cannot find -lno\ncollect2: error: ld returned 1 exit status", "cannot find -lno", ""),
        ("ptxas info : 0 bytes\nptxas error   : Entry function 'k' uses too much shared data", "ptxas error", "data"),
        ("  template argument\n" * 5000 + WARNED, 'a.cu(4): error: identifier "y" is undefined', "y = 3;"),
        ("a.cu(9): error: not allowed. The flag '--relaxed' can be used.", "a.cu(9): error", "`flags`"),
        ("a.cu(9): error: a kernel launch requires separate compilation mode", "a.cu(9): error", "-rdc=true"),
        ("c.h:9:10: fatal error: impl/cuda_cmake_macros.h: No such file or directory", "c.h:9", "CUDA build"),
        ("something of another tool", "something of another tool", ""),
    ],
)
def test_a_failures_reason_is_the_tools_first_error(message: str, first: str, more: str) -> None:
    reason = compile_failed(message).message
    assert reason.startswith(first) and more in reason
    for part in ("In file included", "warning", "other", "collect2", "expected a", "info"):
        assert part not in reason or part in first


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
