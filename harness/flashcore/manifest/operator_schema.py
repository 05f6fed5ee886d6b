"""The element types that an operator schema in ``suite.toml`` may name."""

from __future__ import annotations

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
