"""The limit on the code's size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import size


def test_comments_and_blank_lines_are_no_tokens(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text('def f(x):\n    """A docstring of many words."""\n\n    return x + 1  # of many words\n')
    assert size.tokens(file) == 11
    (tmp_path / "s.js").write_text("const a = b;")
    assert size.tokens(tmp_path / "s.js") == 5


def test_a_package_is_a_folder_a_module_or_a_feature(tmp_path: Path) -> None:
    for name in ("model/a.py", "model/b/c.py", "features/audit/d.py", "features/__init__.py", "api.py"):
        file = tmp_path / size.PACKAGE / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")
    (tmp_path / size.PACKAGE / "model" / "page.js").write_text("x")
    (tmp_path / "extensions" / "judge" / "src").mkdir(parents=True)
    (tmp_path / "extensions" / "judge" / "src" / "j.py").write_text("x = 1\n")
    (tmp_path / size.PACKAGE / "link").symlink_to(tmp_path / size.PACKAGE / "model")
    assert size.measured(tmp_path) == {
        "model": 6,
        "features/audit": 3,
        "features": 3,
        "api.py": 3,
        "harness": 15,
        "JavaScript": 1,
        "extensions/judge": 3,
    }


def test_what_exceeds_its_limit_is_told_and_writing_raises_none() -> None:
    sizes, limits = {"model": 11, "gate": 7, "new": 2, "extensions/judge": 9}, {"model": 10, "gate": 8, "gone": 3}
    over, new = size.problems(sizes, limits)
    assert over.startswith("model: expected at most 10 tokens, found 11: delete 1. ") and "size.toml" in over
    assert new.startswith("new: 2 tokens, expected a limit")
    assert size.lowered(sizes, limits) == {"model": 10, "gate": 7, "new": 2}


def test_a_test_run_fails_above_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "size.toml"
    monkeypatch.setattr(size, "LIMITS", file)
    monkeypatch.setattr(size, "measured", lambda: {"model": 11})
    file.write_text('"model" = 10\n')
    assert size.main([]) == 1 and size.main(["--write"]) == 1
    file.write_text('"model" = 12\n')
    assert size.main(["--write"]) == 0 and '"model" = 11' in file.read_text()
