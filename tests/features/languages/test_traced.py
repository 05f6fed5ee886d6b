"""A kernel language through its real compiler, without a GPU: a planted spill fails the gate, and so does an
impossible launch; an edit that changes no machine code passes; a mistake names the kernel's line."""

from __future__ import annotations

import pytest

from flashcore.features.languages.traced import Package, Traced
from tests.support.traced import (
    LANGUAGES,
    Compiled,
    compiled_in,
    test_a_build_of_another_machine_needs_no_compiler,
    test_a_mistake_in_a_kernel_names_its_line,
    test_a_planted_spill_fails_the_gate_and_names_the_line,
    test_an_edit_that_changes_no_machine_code_passes,
    test_an_impossible_launch_fails_the_gate,
    test_the_sound_kernel_passes_with_its_launch,
)

__all__ = [
    "test_a_build_of_another_machine_needs_no_compiler",
    "test_a_mistake_in_a_kernel_names_its_line",
    "test_a_planted_spill_fails_the_gate_and_names_the_line",
    "test_an_edit_that_changes_no_machine_code_passes",
    "test_an_impossible_launch_fails_the_gate",
    "test_the_sound_kernel_passes_with_its_launch",
]


@pytest.fixture(scope="module", params=LANGUAGES)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compiled_in(request.param, *LANGUAGES[request.param], tmp_path_factory.mktemp(request.param))


def test_a_language_without_a_recorder_is_launched_from_cubins() -> None:
    language = Traced("absent", Package("no-such-distribution"), "no.such.module", launcher="some.module:target")
    assert language.launcher == "some.module:target" and language.version is None
    assert "launched from their cubins" in language.run(lambda: None, {}, [])
