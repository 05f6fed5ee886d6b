"""A missing part of the machine has one message, wherever it is detected."""

from __future__ import annotations

import pytest

from flashcore.errors import Exit
from flashcore.machine.capabilities import lacking, reported_in


@pytest.mark.parametrize(
    ("log", "what", "hint"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not", "no permission to read", "NVreg_RestrictProfilingToAdmin"),
        ("==ERROR== Failed: LibraryNotLoaded.", "does not support the driver", "Nsight Compute of the driver"),
        ("==ERROR== failed to connect to the CUDA driver", "cannot connect to the CUDA driver", "NVIDIA driver"),
        ("RuntimeError: No CUDA GPUs are available", "no CUDA GPU", "machine with an NVIDIA GPU"),
        ("==ERROR== Failed: concurrently collecting profiling data", "another tool", "nvidia-dcgm"),
    ],
)
def test_what_a_log_complains_of(log: str, what: str, hint: str) -> None:
    result = reported_in(f"==PROF== Connected\n  {log}\n==PROF== Disconnected")
    assert result is not None and result.exit_code == Exit.INCAPABLE
    assert what in result.what and result.what.endswith(log) and hint in result.hint


def test_a_log_that_complains_of_nothing() -> None:
    assert reported_in("==PROF== Connected\n==ERROR== The application returned an error code (11).") is None
    assert reported_in("concurrently collecting profiling data") is None, "a case's words are not ncu's"


def test_what_was_looked_for() -> None:
    assert str(lacking("ninja")) == "no ninja found\n  hint: pip install ninja"
    assert lacking("gpu", "torch 2.10").what == "no CUDA GPU that this process can use: torch 2.10"
    assert lacking("ninja", what="x: too old").what == "x: too old"
    assert str(lacking("nvtx")) == "the Python package nvtx is missing\n  hint: pip install 'flashcore-harness[run]'"
