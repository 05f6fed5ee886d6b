"""Counts the code's tokens and compares them with the limits in ``size.toml``: ``make size``.

A token of Python is a name, operator, number or string, without comments and docstrings' contents: a string is one
token, however long. In other languages it is a word or a punctuation mark. Packages are the folders and modules of
``harness/flashcore``, and each feature; extensions are shown beside and have no limit. ``--write`` lowers the limits to
the present figures and adds packages that have none; it raises no limit.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = Path(__file__).with_name("size.toml")
PACKAGE = Path("harness/flashcore")
TOTAL = "harness"
#: Language → the names of its files. Those of Python are counted by package.
LANGUAGES = {
    "JavaScript": r".*\.js",
    "templates and styles": r".*\.(j2|html|css)",
    "TOML": r".*\.toml",
    "C++ and CUDA": r".*\.(cpp|hpp|h|cu|cuh)",
    "shell": r".*\.sh|Makefile|run|package|languages",
}
#: What has such files besides the package.
_PLACES = (PACKAGE, Path(".ci"), Path("Makefile"))
#: Folders of Python with one figure each.
_WHOLE = ("tests", "benchmarks", "tools")
EXTENSIONS = Path("extensions")
_COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)


def tokens(file: Path) -> int:
    """The tokens of a file, by its language."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return sum(token.type in _COUNTED for token in tokenize.generate_tokens(io.StringIO(text).readline))
    return len(re.findall(r"\w+|[^\w\s]", text))


def measured(root: Path = ROOT) -> dict[str, int]:
    """The tokens of each package, of the whole harness, and of each other language."""
    sizes: Counter[str] = Counter()
    for file in _files(root / PACKAGE, r".*\.py"):
        parts = file.relative_to(root / PACKAGE).parts
        sizes["/".join(parts[: 2 if parts[0] == "features" and len(parts) > 2 else 1])] += (size := tokens(file))
        sizes[TOTAL] += size
    for folder in _WHOLE:
        sizes[folder] += sum(map(tokens, _files(root / folder, r".*\.py")))
    for extension in sorted(p for p in (root / EXTENSIONS).glob("*/") if p.is_dir()):
        sizes[f"{EXTENSIONS}/{extension.name}"] = sum(map(tokens, _files(extension / "src", r".*\.py")))
    for language, names in LANGUAGES.items():
        sizes[language] += sum(tokens(file) for place in _PLACES for file in _files(root / place, names))
    return {name: size for name, size in sizes.items() if size}


def _files(place: Path, names: str) -> list[Path]:
    """The files below a folder, or the file itself, that are called so. No links, such as ``roofs_suite``."""
    files = [place] if place.is_file() else [p for p in place.rglob("*") if p.is_file()]
    return [p for p in files if re.fullmatch(names, p.name) and not p.is_symlink()]


def problems(sizes: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """What exceeds its limit or has none, and what to do."""
    lines = []
    for name, size in sizes.items():
        limit = limits.get(name)
        if name.startswith(f"{EXTENSIONS}/"):
            continue  # shown beside
        if limit is None:
            lines.append(f"{name}: {size:,} tokens, expected a limit in tools/size.toml: make size ARGS=--write")
        elif size > limit:
            lines.append(
                f"{name}: expected at most {limit:,} tokens, found {size:,}: delete {size - limit:,}. Code that moved "
                "here from another package: raise this line of tools/size.toml, and lower the other's by as much"
            )
    return lines


def lowered(sizes: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    """The limits, none above the present size; of what is gone, none."""
    return {
        name: min(size, limits.get(name, size)) for name, size in sizes.items() if not name.startswith(f"{EXTENSIONS}/")
    }


def main(words: list[str]) -> int:
    sizes, limits = measured(), tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    if words == ["--write"]:
        limits = lowered(sizes, limits)
        lines = [f'"{name}" = {limit}' for name, limit in sorted(limits.items())]
        LIMITS.write_text("\n".join(["# Most tokens of each package: tools/size.py", *lines, ""]), encoding="utf-8")
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{name:24} {size:>9,}  of {limits[name]:,}" if name in limits else f"{name:24} {size:>9,}")
    wrong = problems(sizes, limits)
    print(*wrong, sep="\n", file=sys.stderr, end="\n" * bool(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
