"""A pytest fixture for extensions, loaded by ``pytest_plugins = ["flashcore.features.audit.fixture"]``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import pytest


@pytest.fixture
def flashcore_audit(pytestconfig: pytest.Config) -> Callable[..., None]:
    """Fails the test if a compiled file exceeds a limit: ``flashcore_audit("build/**/*.so", max={"registers": 128})``.

    Keywords are options of ``flashcore audit``, with ``except_`` for ``--except``. Patterns are relative to pytest's
    root folder, whose ``flashcore.toml`` also applies."""

    def audit(*files: str, **options: Mapping[str, float] | Sequence[str] | str) -> None:
        from flashcore.cli.main import main  # as slow as the rest of pytest's start

        words = ["--format=table"]  # without a limit nothing passes
        for name, values in options.items():
            if isinstance(values, Mapping):
                values = [f"{fact}={limit}" for fact, limit in values.items()]
            each = [values] if isinstance(values, str) else values
            words += [f"--{name.rstrip('_').replace('_', '-')}={value}" for value in each]
        with contextlib.chdir(pytestconfig.rootpath):
            code = main(["audit", *words, *files])
        if code:
            pytest.fail(f"flashcore audit exits {code}", pytrace=False)

    return audit
