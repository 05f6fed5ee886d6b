"""Where a command's words go."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.cli import output
from flashcore.errors import FlashcoreError, UsageError

KNOWN = ("table", "json", "sarif", "junit", "github")


@pytest.mark.parametrize("words", [["yaml"], ["json="], ["json", "sarif"], ["json=x", "sarif=x"], ["=x"]])
def test_a_format_that_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="expected"):
        output.parse(words, KNOWN)


def test_the_table_stays_on_the_terminal_when_all_else_goes_to_files() -> None:
    assert output.parse([], KNOWN) == [("table", None)]
    assert output.parse(["sarif=a.sarif"], KNOWN) == [("sarif", "a.sarif"), ("table", None)]
    assert output.parse(["github", "junit=x"], KNOWN) == [("github", None), ("junit", "x")]


def test_what_cannot_be_encoded_is_replaced_and_what_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output.write("half \ud800\n", None)
    assert capsys.readouterr().out == "half ?\n"
    file = tmp_path / "new" / "file"
    output.write("one\n", str(file))
    output.write("two\n", str(file), append=True)
    assert file.read_text() == "one\ntwo\n"
    with pytest.raises(FlashcoreError, match="cannot write"):
        output.write("", str(file / "below"))
