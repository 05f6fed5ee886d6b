"""The kinds of variant and the keys that declare them."""

import pytest

from flashcore.model.suite import (
    AheadOfTime,
    CudaSource,
    ForeignLauncher,
    Kind,
    PythonCallable,
    RecordedCubins,
    kind_of,
    manifest_keys,
)


@pytest.mark.parametrize(
    ("kind", "file", "compiler"),
    [
        (CudaSource("a.cu"), "a.cu", "nvcc"),
        (ForeignLauncher("a.cu"), "a.cu", "nvcc"),
        (AheadOfTime("triton", "a.py:f"), "a.py", "triton"),
        (RecordedCubins("recorded", "a.py:f"), "a.py", ""),
        (PythonCallable("a.py:f"), "a.py", ""),
    ],
)
def test_a_kind_is_declared_by_the_keys_of_a_manifest(kind: Kind, file: str, compiler: str) -> None:
    assert (kind.file, kind.compiler) == (file, compiler)
    assert kind_of(manifest_keys(kind), ["triton"]) == kind
