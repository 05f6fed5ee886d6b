"""Why something failed, was skipped or could not be measured, and how a value was measured.

A cause that programs ask for is a class, with its fields. Every other cause is a :class:`Reason`: the code of a
:class:`Template`, and its data. Programs decide by class or code, never by text. Records store a cause as
``{"cause": code, …data}``, so a code never changes. Plugins declare classes and templates in the same way.

A text's form is a format string over the data, in which nested causes are their texts and lists have commas. A part in
brackets is left out if one of its values is empty; ``{name:?}`` asks for a value without showing it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, dataclass_transform

from flashcore.model import plugin

#: Every class and template by its code.
CODES: dict[str, type[Detail] | Template] = {}

_OPTIONAL, _FIELD = re.compile(r"\[([^]]*)\]"), re.compile(r"\{(\w+)(:\?\})?")


@dataclass_transform(frozen_default=True)
class Detail:
    """A typed statement about an outcome.

    Its ``code`` is the class's name in snake case, unless the class sets another.

    Subclasses are frozen dataclasses that inherit these methods: generating them for each class would slow down the
    start of every command.
    """

    code: ClassVar[str]
    form: ClassVar[str] = ""
    __match_args__: ClassVar[tuple[str, ...]] = ()  # the fields of a subclass, set by `dataclass`

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        if abstract:
            return
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        _register(cls.code, cls)

    def __init__(self, *values: Any, **keywords: Any) -> None:
        fields, kind = self.__match_args__, type(self)
        arguments = _arguments(kind.__name__, fields, values, keywords)
        missing = [name for name in fields if name not in arguments and not hasattr(kind, name)]
        if missing:
            raise TypeError(f"{kind.__name__}: missing the arguments {missing}")
        vars(self).update({name: arguments.get(name, getattr(kind, name, None)) for name in fields})

    @property
    def data(self) -> Mapping[str, Any]:
        """The values by name."""
        return {name: getattr(self, name) for name in self.__match_args__}

    @property
    def text(self) -> str:
        """The text for people."""
        return _filled(self.form, self)

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in self.data.items())})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.code, *self.data.values()))

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # slow: with pydantic, a quarter of a command's start-up time

        if "code" in vars(cls):
            return handler(source)
        return core_schema.no_info_plain_validator_function(lambda data: _expect(from_json(data), cls))


class Cause(Detail, abstract=True):
    """The reason for a missing value, or an outcome other than success."""


class Basis(Detail, abstract=True):
    """How a value was measured."""


class Reason(Cause, abstract=True):
    """A cause that programs store and show; what they ask is at most its subclass or its code."""

    def __init__(self, code: str, data: Mapping[str, Any]) -> None:
        vars(self).update(code=code, _data=dict(data))

    @property
    def data(self) -> Mapping[str, Any]:
        values: dict[str, Any] = vars(self)["_data"]
        return values

    @property
    def text(self) -> str:
        form = CODES[self.code].form
        return _filled(form, self) if isinstance(form, str) else form(self.data)

    def __repr__(self) -> str:
        return f"{self.code}({', '.join(f'{name}={value!r}' for name, value in self.data.items())})"


class Template:
    """What makes the reasons of one code: calling it with the data's values, in the order of ``fields`` or by name.

    Args:
        form: the text, or a function of the data.
        fields: the names of the data, by default those of ``form``. Those that it shows in brackets may be left out;
            of a function, all.
        of: the subclass of :class:`Reason` by which programs decide.
    """

    def __init__(
        self,
        code: str,
        form: str | Callable[[Mapping[str, Any]], str],
        fields: Iterable[str] = (),
        of: type[Reason] = Reason,
    ) -> None:
        self.code, self.form, self.of = code, form, of
        always = _OPTIONAL.sub("", form) if isinstance(form, str) else ""
        self.fields = tuple(fields) or tuple(_fields(form if isinstance(form, str) else ""))
        self._needed = [name for name in self.fields if name in _fields(always)]
        _register(code, self)

    def __call__(self, *values: Any, **named: Any) -> Reason:
        return self.reason(_arguments(self.code, self.fields, values, named))

    def reason(self, data: Mapping[str, Any]) -> Reason:
        """The cause with this data, of which a record may have more than is shown. Optional values that are empty count
        as missing.

        Raises:
            TypeError: a value is missing.
        """
        if missing := [name for name in self._needed if name not in data]:
            raise TypeError(f"{self.code}: missing the values {missing}")
        names = dict.fromkeys((*self.fields, *data))
        return self.of(self.code, {n: data[n] for n in names if n in data and (n in self._needed or data[n])})


def cause_text(detail: Detail | str | None) -> str:
    """A cause or basis in words; plain text unchanged; empty for ``None``."""
    return detail.text if isinstance(detail, Detail) else detail or ""


class Noted:
    """A value whose ``detail`` is its note."""

    __slots__ = ()
    detail: Detail | str

    @property
    def note(self) -> str:
        """The detail in words, for people."""
        return cause_text(self.detail)


def as_json(detail: Detail) -> dict[str, Any]:
    """``{"cause": code, …data}``."""
    if isinstance(detail, Unknown):
        return dict(json.loads(detail.recorded))
    return {"cause": detail.code, **{name: _plain(value) for name, value in detail.data.items()}}


def from_json(data: Any) -> Detail:
    """The cause or basis that :func:`as_json` wrote; :class:`Unknown` if its code is a missing plugin's.

    Raises:
        ValueError: the data has another form.
    """
    if isinstance(data, Detail):
        return data
    if not isinstance(data, dict) or not isinstance(data.get("cause"), str):
        raise ValueError(f"expected a cause with its code, found {type(data).__name__}")
    code = data["cause"]
    if code not in CODES:
        reference = plugin.entry("causes", code)
        if reference is None:
            return Unknown(json.dumps(data))
        plugin.resolve(reference)  # registers its code
    values, kind = {name: value for name, value in data.items() if name != "cause"}, CODES[code]
    if not isinstance(kind, Template):
        detail: Detail = _reader(code)(values)
        return detail
    try:
        reason = kind.reason({name: _frozen(value) for name, value in values.items()})
        hash((reason, reason.text))  # rejects what has no text
    except (TypeError, LookupError) as error:
        raise ValueError(f"expected the data of {code}, found others: {error}") from error
    return reason


@cache
def _reader(code: str) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter

    kind: Any = CODES[code]
    return TypeAdapter(kind).validate_python


def _register(code: str, kind: type[Detail] | Template) -> None:
    if code in CODES and _identity(CODES[code]) != _identity(kind):
        raise ValueError(f"expected a unique code, found {code!r}, which is in use")
    CODES[code] = kind


def _identity(kind: type[Detail] | Template) -> object:
    """Equal if a module is imported again."""
    return kind.__qualname__ if isinstance(kind, type) else kind.form


def _arguments(name: str, fields: tuple[str, ...], values: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {**dict(zip(fields, values, strict=False)), **named}
    if len(values) + len(named) > len(arguments) or not arguments.keys() <= set(fields):
        raise TypeError(f"{name}: expected the arguments {fields}, found {values} and {dict(named)}")
    return arguments


def _fields(form: str) -> dict[str, None]:
    return dict.fromkeys(match[1] for match in _FIELD.finditer(form))


def _filled(form: str, detail: Detail) -> str:
    data = detail.data
    form = _OPTIONAL.sub(lambda part: part[1] * all(data.get(name) for name in _fields(part[1])), form)
    return re.sub(r"\{\w+:\?\}", "", form).format_map({n: _in_words(v, n, detail.code) for n, v in data.items()})


def _in_words(value: Any, name: str, code: str) -> Any:
    while isinstance(value, Detail) and value.code == code and name in value.data:
        value = value.data[name]  # the first cause once: not "failed before: failed before"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return cause_text(value) if isinstance(value, Detail | None) else value


def _expect(detail: Detail, kind: type[Detail]) -> Detail:
    if not isinstance(detail, kind):
        raise ValueError(f"expected a {kind.__name__.lower()}, found {detail.code}")
    return detail


def _plain(value: Any) -> Any:
    if isinstance(value, Detail):
        return as_json(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return _expect(from_json(value), Cause) if isinstance(value, dict) else value


class Unknown(Cause):
    """A recorded cause of a plugin that is not loaded."""

    form = "recorded by a plugin that is not loaded: {recorded}"
    recorded: str
