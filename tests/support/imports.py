"""Which modules a piece of code imports."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import ROOT

HEAVY = ("torch", "plotly", "jinja2", "numpy", "nvtx", "pandas", "rich")


def loaded(code: str) -> set[str]:
    """The heavy packages that a fresh process has imported after running the code."""
    report = f"\nimport json, sys; print(json.dumps([m for m in {(*HEAVY, 'pydantic')} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code + report], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))
