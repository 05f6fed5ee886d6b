"""The worst exit code counts, and an error says what to do."""

from __future__ import annotations

import random

import pytest

from flashcore.errors import CapabilityError, Exit, FlashcoreError, ManifestError, UsageError, worst

RISING = [Exit.OK, Exit.UNMEASURED, Exit.INCAPABLE, Exit.USAGE, Exit.FAILED]


@pytest.mark.parametrize("count", range(1, len(RISING) + 1))
def test_the_worst_code_counts_in_any_order(count: int) -> None:
    codes = random.Random(count).sample(RISING[:count], count)
    assert worst(codes) is RISING[count - 1]


@pytest.mark.parametrize(("mistakes", "words"), [(["a"], "f: 1 mistake\n  a"), (["a", "b"], "f: 2 mistakes\n  a\n  b")])
def test_a_manifests_mistakes_are_counted_and_listed(mistakes: list[str], words: str) -> None:
    assert str(ManifestError("f", mistakes)) == words


def test_errors_have_the_exit_code_of_their_kind() -> None:
    assert FlashcoreError.exit_code is UsageError.exit_code is Exit.USAGE
    assert CapabilityError("no GPU", "use one").exit_code is Exit.INCAPABLE
    assert str(CapabilityError("no GPU", "use one")) == "no GPU\n  hint: use one"
