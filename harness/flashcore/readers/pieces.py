"""Finds a piece of a CUDA or Python source: a function, or the statement at a comment or at quoted code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flashcore.model.suite import Decision

# Of C also directives, with their comments; the middle of 1'000 is no character.
_C = r"""(?xsm)(?P<comment>//(?:[^\n\\]|\\.)*|/\*.*?\*/)|^[ \t]*\#(?:/\*.*?\*/|[^\n\\]|\\.)*
    |(?P<string>R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*')"""
_PYTHON = r"""(?xs)(?P<comment>\#[^\n]*)
    |(?P<string>\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
#: Text whose parentheses match; five may lie within each other.
_BALANCED = "[^(){}]*"
for _ in range(5):
    _BALANCED = rf"(?:[^(){{}}]|\({_BALANCED}\))*"
#: What ends a statement, its blocks, and parentheses, which may contain semicolons.
_C_MARKS = re.compile(rf"(?P<end>;|\}}(?!\s*(?:[,;)]|else\b)))|[{{}}]|\({_BALANCED}\)")


def pieces(text: str, decision: Decision, *, python: bool) -> list[tuple[int, int]]:
    """The first and last line of each piece that a decision may name."""
    tokens = re.compile(_PYTHON if python else _C)

    def masked(kept: str = "") -> str:
        """The text with blanks for directives, comments and strings, except those kept."""
        return tokens.sub(lambda m: m[0] if m.lastgroup == kept else re.sub(r"[^\n]", " ", m[0]), text)

    code = masked()
    statements = [*(_python(text) if python else _c(code))]
    if decision.function:
        head = rf"{_BALANCED}\b{re.escape(decision.function)}\s*\({_BALANCED}\)[\w\s:&*<>,-]*\{{"
        spans = [s for s in statements if re.match(head, s[2])]
    else:
        if decision.mark:
            mark = rf"[/*#\s]*{_words(decision.mark)}[/*\s]*"
            matches = [
                re.compile(r"\S").search(code, code.rfind("\n", 0, m.start()) + 1)  # from the start of its line on
                for m in tokens.finditer(text)
                if m["comment"] and re.fullmatch(mark, m[0])
            ]
        else:
            matches = [*re.finditer(_words(decision.quote), masked("string"))]
        around = ([s for s in statements if m and s[0] <= m.start() <= s[1]] for m in matches)
        spans = [max(each) for each in around if each]  # the innermost
    return sorted({(text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1) for start, end, _ in spans})


def _words(text: str) -> str:
    """A pattern of the same words and characters, whatever the white space between them."""
    return r"\s*".join(re.sub(r"(\w+)", r"\\b\1\\b", re.escape(w)) for w in re.findall(r"\w+|[^\w\s]", text))


def _python(text: str) -> Iterator[tuple[int, int, str]]:
    """The start and end of each statement's lines, and what it would be in C if it defines a function."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError):
        return
    starts = [0, *(m.end() for m in re.finditer(r"\n|\Z", text))]
    for node in nodes:
        if isinstance(node, ast.stmt):
            yield starts[node.lineno - 1], starts[node.end_lineno or 0] - 1, f"{getattr(node, 'name', '')}(){{"


def _c(code: str) -> Iterator[tuple[int, int, str]]:
    """The start and end of each statement, and its text."""
    start, outer = 0, list[int]()
    for match in _C_MARKS.finditer(code):
        at = match.start()
        if code[at] == "}" and outer:
            start = outer.pop()
        if match["end"]:
            statement = code[start:at].lstrip()
            yield at - len(statement), at, statement
        if code[at] == "{":
            outer.append(start)
        elif not match["end"]:
            continue
        start = at + 1
