"""An operator schema in ``suite.toml``: what it may say, and what it says."""

from __future__ import annotations

import re

from flashcore.model.suite import Argument

#: torch's dtype names → enumerators of ``torch::headeronly::ScalarType``.
SCALAR_TYPES = {
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
    "int8": "Char",
    "uint8": "Byte",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
}
#: Names of arguments and dimensions become members of C++ structs.
CPP_WORDS = frozenset({
    "alignas", "alignof", "and", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "class", "compl", "const", "constexpr", "continue", "decltype", "default", "delete", "do", "double", "else",
    "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int",
    "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected",
    "public", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this",
    "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "while", "xor",
})  # fmt: skip
_ARGUMENT = re.compile(r"(?P<type>Tensor|int|float)(?P<alias>\((?P<letter>[a-z])!\))? (?P<name>[a-z][a-z0-9_]*)")


def parse_schema(schema: str) -> list[Argument]:
    """Arguments of an operator schema such as ``(Tensor q, Tensor(a!) out, float scale) -> ()``.

    Raises:
        ValueError: says what was expected.
    """
    form = re.fullmatch(r"\((?P<arguments>.*)\) -> \(\)", schema.strip())
    if form is None:
        raise ValueError("the form (Tensor q, …, Tensor(a!) out) -> (), outputs as Tensor(a!)")
    arguments = []
    for part in form["arguments"].split(","):
        match = _ARGUMENT.fullmatch(part.strip())
        if match is None or (match["alias"] and match["type"] != "Tensor"):
            raise ValueError(f"'Tensor', 'Tensor(a!)', 'int' or 'float' and a name in {part.strip()!r}")
        kind = {"Tensor": "tensor", "int": "int", "float": "float"}[match["type"]]
        arguments.append(Argument(match["name"], kind, bool(match["alias"])))  # type: ignore[arg-type]
    letters = re.findall(r"\(([a-z])!\)", schema)
    if len(set(letters)) != len(letters):
        raise ValueError("another letter for each output")
    if not any(a.mutable for a in arguments):
        raise ValueError("at least one output, written Tensor(a!)")
    if arguments[0].kind != "tensor" or arguments[0].mutable:
        raise ValueError("an input tensor as first argument")
    names = [a.name for a in arguments]
    if len(set(names)) != len(names):
        raise ValueError("each argument's name once")
    if taken := sorted(CPP_WORDS.intersection(names)):
        raise ValueError(f"names that C++ has no use for, unlike {', '.join(taken)}")
    return arguments
