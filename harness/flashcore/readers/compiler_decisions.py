"""Judges budgets on compiler decisions by machine code with line information.

Line tables do not always tell apart the calls of one inlined function, and some instructions have the line of an
earlier one. So the instructions of a function that is inlined into a piece are those of all its calls in the kernel,
and in a piece nothing weaker may stand beside what must be there.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import mode

from flashcore.model.cause import Cause
from flashcore.model.causes import (
    CALLED_SEPARATELY,
    NO_CODE_OF_PIECE,
    NO_LINES,
    NO_PIECE,
    NOT_ON_ARCH,
    OTHER_LINES,
    SEVERAL_PIECES,
    Decided,
)
from flashcore.model.compiler_decisions import meanings
from flashcore.model.suite import Decision
from flashcore.readers.cubin import names_source
from flashcore.readers.phases import Sources
from flashcore.readers.sass import FileLine, Instruction
from flashcore.readers.spills import closing_branches


def decided(
    decision: Decision,
    code: Sequence[Instruction],
    arch: str,
    sources: Sources,
    separate: Sequence[str] = (),
) -> tuple[int | None, Cause | Decided]:
    """How many of a decision's names do not hold in a kernel and the code there, or why that is not known.

    Args:
        separate: the functions of its cubin that are compiled separately.
    """
    loops = closing_branches(code)
    listing = "\n".join(f"{i.opcode} {i.operands}{' loop' * (i in loops)}" for i in code)
    piece, scope = set[FileLine](), {*range(len(code))}
    if decision.place:
        result = _piece(decision, code, sources)
        if isinstance(result, Cause):
            return None, result
        piece, scope = result
    elif decision.must_not and separate and _matching(listing, meanings()["call"].sass):
        return None, CALLED_SEPARATELY(separate[0])
    missed: list[str] = []
    shown, blamed = set[int](), set[int]()
    for requirement in decision.requirements:
        number, _, name = requirement.rpartition(" ")
        *patterns, (low, high) = meanings()[name][:4]
        if not low <= int(re.sub(r"\D", "", arch)) <= high:
            return None, NOT_ON_ARCH(name, arch)
        hits, weaker, instead = (scope & _matching(listing, pattern) for pattern in patterns)
        weaker -= hits
        wrong = hits if number == "no" else weaker or (set() if hits else instead)
        shown |= hits | wrong
        if hits if number == "no" else len(hits) < int(number or 1) or (piece and weaker):
            missed.append(requirement)
            blamed |= wrong
    lines = [
        # Its line in the piece, else the innermost one in a file that is here, else the innermost one.
        min(code[n].lines, key=lambda line: (line not in piece, not sources.text(line.file)[1]))
        for n in sorted(blamed)
        if code[n].lines
    ]
    file, line = mode(lines or [min(piece, default=FileLine("", 0))])
    opcodes = Counter(code[n].opcode for n in shown)
    words = ", ".join(f"{opcode} ×{times}" for opcode, times in sorted(opcodes.items()))
    return len(missed), Decided(sources.text(file)[0], line, tuple(missed), words)


def _piece(decision: Decision, code: Sequence[Instruction], sources: Sources) -> tuple[set[FileLine], set[int]] | Cause:
    """The lines of a decision's piece, and the indices of its instructions."""
    places: dict[str, set[FileLine]] = {}
    files = sorted({line.file for i in code for line in i.lines})
    for file in files:
        name, lines = sources.text(file)
        path = sources.root / name
        if lines and sources.compiled and not names_source(sources.compiled, path.name, path.stat().st_size):
            return OTHER_LINES(name)
        # Triton 3.9 places a function's loads behind its last line: a piece would seem to have none.
        numbers = {line.number for i in code for line in i.lines if line.file == file}
        if lines and not all(n <= len(lines) and lines[n - 1].strip() for n in numbers):
            return OTHER_LINES(name)
        for first, last in pieces("\n".join(lines), decision, python=name.endswith(".py")):
            places.setdefault(f"{name}:{first}", set()).update(FileLine(file, n) for n in range(first, last + 1))
    if len(places) == 1:
        (piece,) = places.values()
        innermost = {i.lines[0] for i in code if not piece.isdisjoint(i.lines)}  # of all calls of what is inlined
        if scope := {n for n, i in enumerate(code) if not innermost.isdisjoint(i.lines[:1])}:
            return piece, scope
    if len(places) > 1:
        return SEVERAL_PIECES(decision.place, tuple(places))
    cause = NO_CODE_OF_PIECE(decision.place, *places) if places else NO_PIECE(decision.place)
    return cause if files else NO_LINES()


def _matching(listing: str, pattern: str) -> set[int]:
    """The indices of the lines in which a match ends."""
    marked = re.sub(f"^(?:{pattern or '(?!)'})", "\\g<0>\0", listing, flags=re.MULTILINE)
    return {n for n, line in enumerate(marked.split("\n")) if "\0" in line}


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
