"""Parses the operator schema in ``suite.toml``."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

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
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "bool": "Bool",
}
#: Words that cannot be names of arguments and dimensions: they become members of C++ structs.
CPP_WORDS = frozenset(Path(__file__).with_name("cpp_keywords.txt").read_text(encoding="utf-8").split())
#: Words that cannot be names of arguments: torch passes arguments by name to functions with parameters of these names,
#: when it compiles or checks an operator with outputs.
TORCH_WORDS = frozenset({"dispatch_key", "mode"})
_ARGUMENT = re.compile(
    r"(?P<type>Tensor|int|float|bool)(?P<alias>\([a-z]!\))?(?P<optional>\?)? (?P<name>[a-z][a-z0-9_]*)"
    r"(=(?P<default>\S+))?"
)


def _default(kind: str, text: str) -> int | float | bool:
    """The value of a default.

    Raises:
        ValueError: the text is not a value of that kind.
    """
    patterns = {"bool": r"True|False", "int": r"-?[0-9]+", "float": r"-?[0-9]+(\.[0-9]*)?(e-?[0-9]+)?"}
    if not re.fullmatch(patterns.get(kind, "(?!)"), text):
        raise ValueError(f"a default that fits {kind} (None, 1, 0.5 or True), not {text!r}")
    return text == "True" if kind == "bool" else int(text) if kind == "int" else float(text)


def parse_schema(schema: str, inout: Collection[str] = ()) -> list[Argument]:
    """The arguments of an operator schema such as ``(Tensor q, Tensor(a!) out, float scale) -> ()``.

    Args:
        inout: names of outputs that are also inputs; torch's syntax does not distinguish them.

    Raises:
        ValueError: the schema is wrong; the message is the expectation.
    """
    form = re.fullmatch(r"\((?P<arguments>.*)\) -> \(\)", schema.strip())
    if form is None:
        raise ValueError("the form (Tensor q, …, Tensor(a!) out) -> (), outputs as Tensor(a!)")
    arguments: list[Argument] = []
    has_default: list[bool] = []
    for part in form["arguments"].split(","):
        match = _ARGUMENT.fullmatch(part.strip())
        if match is None or ((match["alias"] or match["optional"]) and match["type"] != "Tensor"):
            types = "'Tensor', 'Tensor?', 'Tensor(a!)', 'int', 'float' or 'bool'"
            raise ValueError(f"{types} and a name in {part.strip()!r}")
        name, optional = match["name"], bool(match["optional"])
        if optional and match["alias"]:
            raise ValueError(f"only inputs to be optional, not {part.strip()!r}")
        none = optional and match["default"] == "None"
        default = _default(match["type"], match["default"]) if match["default"] and not none else None
        has_default.append(match["default"] is not None)
        kind, mutable = match["type"].lower(), bool(match["alias"])
        arguments.append(
            Argument(name, kind, mutable, default=default, inout=mutable and name in inout, optional=optional)  # type: ignore[arg-type]
        )
    if has_default != sorted(has_default):
        raise ValueError("arguments with a default after those without")
    letters = re.findall(r"\(([a-z])!\)", schema)
    if len(set(letters)) != len(letters):
        raise ValueError("a different letter for each output")
    if not any(a.mutable for a in arguments):
        raise ValueError("at least one output, written Tensor(a!)")
    first = arguments[0]
    if first.kind != "tensor" or (first.mutable and not first.inout) or first.optional:
        raise ValueError("an input tensor as first argument, not optional")
    names = [a.name for a in arguments]
    if len(set(names)) != len(names):
        raise ValueError("unique argument names")
    if reserved := sorted(CPP_WORDS.intersection(names)):
        raise ValueError(f"names that are not reserved in C++, unlike {', '.join(reserved)}")
    if reserved := sorted(TORCH_WORDS.intersection(names)):
        raise ValueError(
            f"names that torch.compile does not use itself, unlike {', '.join(reserved)} (rename to a_{reserved[0]})"
        )
    return arguments
