"""CUPTI's stand-in, and the library that a capture injects."""

from __future__ import annotations

import subprocess

import pytest

from flashcore.features.reports import activity
from flashcore.features.reports.activity import ActivityRecorder
from flashcore.machine import toolchain
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> ActivityRecorder:
    headers = activity.include_folders()
    if not headers:
        pytest.skip("headers: no cupti.h and cuda.h on this machine")
    folder = tmp_path_factory.mktemp("cupti")
    standin = folder / "libcupti_standin.so"
    source = ROOT / "tests" / "standins" / "cupti.c"
    includes = [f"-I{header}" for header in headers]
    subprocess.run([toolchain.find_cxx(), "-xc", "-shared", "-fPIC", *includes, source, "-o", standin], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        return ActivityRecorder(activity.compiled(headers), standin)
