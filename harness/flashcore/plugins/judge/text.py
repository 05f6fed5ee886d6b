"""Strings and forms of candidates."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from flashcore.errors import UsageError
from flashcore.model.text import visible
from flashcore.suites.schema import Form

_Form = TypeVar("_Form", bound=Form)


def untrusted(text: object, most: int = 120) -> str:
    """A candidate's text in our text: on one line, without characters that are not seen, shortened."""
    line = " ".join(visible(str(text)[: 4 * most].encode(errors="replace").decode()).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def validated(form: type[_Form], data: Any, what: str) -> _Form:
    """Data as its form.

    Raises:
        UsageError: ``what`` is wrong, and where.
    """
    try:
        return form.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = untrusted(".".join(map(str, first["loc"])))
        raise UsageError(f"{what}: {place}: {first['msg']}, found {untrusted(first['input'])}") from None
