"""The contract: what the command line does, seen from outside.

``sessions/AREA.txt`` has the command lines with their exit codes, :mod:`tests.contract.session` tells their form;
``expected/AREA.json`` has the projections of their results. What changes on purpose is recorded again::

    FLASHCORE_CONTRACT=write .venv/bin/python -m pytest -n 0 tests/contract -k AREA

Then read the difference. Commands and options are renamed in ``sessions``. Sessions read the packed runs of ``runs``,
which ``make_runs.py`` writes again when the schema of records changes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.conftest import EXPECTED, compare
from tests.contract.session import SESSIONS, Session, results, sessions

AREAS = sorted(file.stem for file in SESSIONS.glob("*.txt"))
ALL = [session for area in AREAS for session in sessions(area)]


@pytest.mark.parametrize("session", [pytest.param(s, id=f"{s.area}-{s.name}") for s in ALL])
def test_a_session_is_as_agreed(
    session: Session, parts: dict[str, str], work: Path, request: pytest.FixtureRequest
) -> None:
    needs = [need.partition("=") for need in session.needs if need != "standins"]
    if missing := [name for name, _, start in needs if name not in parts or not parts[name].startswith(start)]:
        pytest.skip(f"tool: the session needs {', '.join(missing)}")
    if "nvcc" in {name for name, _, _ in needs}:
        (work / "build").symlink_to(request.getfixturevalue("built"))
        request.getfixturevalue("forked")
    if "standins" in session.needs:
        request.getfixturevalue("standins")
    projected, wrong = results(session, work)
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
    compare(session.area, session.name, json.loads(json.dumps(projected)))


@pytest.mark.parametrize("area", AREAS)
def test_each_expectation_has_its_session(area: str) -> None:
    expected = json.loads((EXPECTED / f"{area}.json").read_text(encoding="utf-8"))
    assert sorted(expected) == sorted(session.name for session in sessions(area))
