"""Compiled files for the tests of the audit: fatbins of recorded cubins, as nvcc writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fatbins import both, library


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A library with five kernels for each of two archs, and a PTX text."""
    path = tmp_path / "pkg.so"
    path.write_bytes(library(both()))
    return path
