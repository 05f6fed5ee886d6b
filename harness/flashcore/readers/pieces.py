"""Finds a piece of a CUDA or Python source: a function, or the statement at a comment or at quoted code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from flashcore.model.suite import Decision

_C = (r"//(?:[^\n\\]|\\.)*|/\*.*?\*/", r'R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'')
_PYTHON = (r"#[^\n]*", r'""".*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
#: What may stand between a function's parameters and its body.
_HEAD = re.compile(r"[\w\s:&*<>,]*|\s*->[\w\s:&*<>,]*")
_CLOSING = {")": "(", "]": "[", "}": "{"}


def pieces(text: str, decision: Decision, *, python: bool) -> list[tuple[int, int]]:
    """The first and last line of each piece that a decision may name."""
    source = _Source(text, *(_PYTHON if python else _C))
    places = source.places(decision)
    if python:
        return [*dict.fromkeys(_python(text, decision.function, map(source.line, places)))]
    spans = source.functions(decision.function) if decision.function else map(source.statement, places)
    return [*dict.fromkeys((source.line(start), source.line(end)) for start, end in spans)]


def _python(text: str, function: str, lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The functions of a name and the statements at these lines."""
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    except (SyntaxError, ValueError):
        return
    spans = [(node.lineno, node.end_lineno or 0, getattr(node, "name", "")) for node in nodes]
    yield from ((first, last) for first, last, name in spans if function and name == function)
    for line in lines:
        yield from [(first, last) for first, last, _ in sorted(spans) if first <= line <= last][-1:]


def _words(text: str) -> str:
    """A pattern of the same text, whatever its white space."""
    parts = re.findall(r"\w+|[^\w\s]", text)
    pattern = ""
    for before, part in zip(["", *parts], parts, strict=False):
        both = before[-1:].isidentifier() or before[-1:].isdigit()
        pattern += r"\s+" if both and (part[0].isalnum() or part[0] == "_") else r"\s*" if before else ""
        pattern += re.escape(part)
    return rf"(?<!\w){pattern}(?!\w)" if parts and re.match(r"\w", parts[0]) else pattern


class _Source:
    """A text, and the same without comments, and without strings and directives: all of one length."""

    def __init__(self, text: str, comment: str, string: str) -> None:
        self.text = text
        tokens = re.compile(f"(?P<comment>{comment})|(?P<string>{string})", re.DOTALL)
        self.comments = [m.span() for m in tokens.finditer(text) if m["comment"]]
        self.uncommented = tokens.sub(lambda m: _blank(m[0]) if m["comment"] else m[0], text)
        code = tokens.sub(lambda m: _blank(m[0]), text)
        self._directives = [m.span() for m in _DIRECTIVE.finditer(code)]
        self.code = _DIRECTIVE.sub(lambda m: _blank(m[0]), code)

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def functions(self, name: str) -> Iterator[tuple[int, int]]:
        """The definitions of a function."""
        for match in re.finditer(rf"\b{re.escape(name)}\s*\(", self.code):
            close = self._end(match.end(), ")")
            body = self.code.find("{", close)
            if body >= 0 and _HEAD.fullmatch(self.code, close + 1, body):
                yield self._start(match.start()), self._end(body + 1, "}")

    def places(self, decision: Decision) -> list[int]:
        """Where quoted code is, or the code at a comment; not in macros, whose lines no instruction has."""
        if decision.mark:
            mark = re.compile(rf"[/*#\s]*{_words(decision.mark)}[/*\s]*")  # all of the comment
            spans = [span for span in self.comments if mark.fullmatch(self.text, *span)]
        else:
            spans = [m.span() for m in re.finditer(_words(decision.quote) or "$^", self.uncommented)]
        outside = (span for span in spans if not any(start <= span[0] < end for start, end in self._directives))
        return [self._marked(*span) if decision.mark else span[0] for span in outside]

    def _marked(self, start: int, end: int) -> int:
        """The first code of a comment's line, or else after it."""
        line = self.code.rfind("\n", 0, start) + 1
        before = re.compile(r"\S").search(self.code, line, start)
        after = before or re.compile(r"\S").search(self.code, end)
        return after.start() if after else start

    def _end(self, at: int, close: str) -> int:
        """Where the bracket closes that was opened before ``at``; the end of the text if nowhere."""
        depth = 1
        for match in re.compile(rf"[{re.escape(close + _CLOSING[close])}]").finditer(self.code, at):
            depth += 1 if match[0] != close else -1
            if not depth:
                return match.start()
        return len(self.code) - 1

    def _start(self, at: int) -> int:
        """Where the C statement begins that has ``at``."""
        start, stack = 0, list[str]()
        for match in re.compile(r"[][(){};]").finditer(self.code, 0, at):
            if (char := match[0]) in "([{":
                stack.append(char)
            elif char != ";" and stack:
                stack.pop()
            if char in "{}" or (char == ";" and stack[-1:] not in (["("], ["["])):
                start = match.end()
        return start + len(self.code[start:]) - len(self.code[start:].lstrip())

    def statement(self, at: int) -> tuple[int, int]:
        start, depth = self._start(at), 0
        for match in re.compile(r"[][(){};]").finditer(self.code, start):
            if (char := match[0]) in "([{":
                depth += 1
            elif char != ";":
                depth -= 1
            goes_on = char == "}" and re.match(r"\s*([,;)]|else\b)", self.code[match.end() :])
            if depth < 0:
                return start, max(start, match.start() - 1)
            if not depth and char in ";}" and not goes_on:
                return start, match.start()
        return start, len(self.code) - 1


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
