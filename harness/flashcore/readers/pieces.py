"""Finds a piece of a CUDA or Python source: a function, or the statement at a comment or at quoted code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from flashcore.model.suite import Decision

# Of C also directives, with their comments; the middle of 1'000 is no character.
_C = r"""(?P<comment>//(?:[^\n\\]|\\.)*|/\*.*?\*/)|^[ \t]*\#(?:/\*.*?\*/|[^\n\\]|\\.)*
    |(?P<string>R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*')"""
_PYTHON = r"""(?P<comment>\#[^\n]*)
    |(?P<string>\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
_STATEMENT_GOES_ON = re.compile(r"\s*(?:[,;)]|else\b)")
_CODE = re.compile(r"\S")


def pieces(text: str, decision: Decision, *, python: bool) -> list[tuple[int, int]]:
    """The first and last line of each piece that a decision may name."""
    tokens = re.compile(_PYTHON if python else _C, re.VERBOSE | re.DOTALL | re.MULTILINE)

    def masked(kept: str = "") -> str:
        """The text with blanks for directives, comments and strings, except those kept."""
        return tokens.sub(lambda m: m[0] if m.lastgroup == kept else re.sub(r"[^\n]", " ", m[0]), text)

    code = masked()
    statements = [*(_python(text) if python else _c(code))]
    if decision.function:
        spans = [s for s in statements if s[2] == decision.function]
    else:
        if decision.mark:
            mark = re.compile(rf"[/*#\s]*{_words(decision.mark)}[/*\s]*")  # all of the comment
            comments = (m.start() for m in tokens.finditer(text) if m["comment"] and mark.fullmatch(m[0]))
            # The first code of its line, or after it.
            matches = [_CODE.search(code, code.rfind("\n", 0, at) + 1) for at in comments]
        else:
            matches = [*re.finditer(_words(decision.quote), masked("string"))]
        around = ([s for s in statements if s[0] <= m.start() <= s[1]] for m in matches if m)
        spans = [max(each) for each in around if each]  # the innermost
    return [*dict.fromkeys((text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1) for start, end, _ in spans)]


def _words(text: str) -> str:
    """A pattern of the same words and characters, whatever the white space between them."""
    return r"\s*".join(rf"\b{w}\b" if re.match(r"\w", w) else re.escape(w) for w in re.findall(r"\w+|[^\w\s]", text))


def _python(text: str) -> Iterator[tuple[int, int, str]]:
    """The start and end of each statement's lines, and the name that it defines."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError):
        return
    starts = [0, *(m.end() for m in re.finditer(r"\n|\Z", text))]
    for node in nodes:
        if isinstance(node, ast.stmt):
            yield starts[node.lineno - 1], starts[node.end_lineno or 0] - 1, getattr(node, "name", "")


def _c(code: str) -> Iterator[tuple[int, int, str]]:
    """The start and end of each statement, and the function that it defines."""
    start, outer = 0, list[tuple[str, int]]()
    for match in re.finditer(r"[][(){};]", code):
        char, at = match[0], match.start()
        if char in "([{":
            outer.append((char, start))
        elif char != ";" and outer:
            _, start = outer.pop()
        in_block = not outer or outer[-1][0] == "{"
        if (char == ";" and in_block) or (char == "}" and not _STATEMENT_GOES_ON.match(code, at + 1)):
            statement = code[start:at].lstrip()
            yield at - len(statement), at, _defined(*statement.partition("{"))
        elif char != "{":
            continue
        start = at + 1


def _defined(head: str, block: str, _: str) -> str:
    """The function that a statement defines, from its text before a block."""
    while (shorter := re.sub(r"\([^()]*\)", "@", head)) != head:
        head = shorter
    match = re.search(r"(\w+)\s*@[\w\s:&*<>,-]*$", head)
    return match[1] if match and block else ""
