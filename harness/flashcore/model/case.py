"""A case: what is checked, timed and profiled."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flashcore.errors import UsageError


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """A variant on a shape. As text it is ``variant/shape``, which also names its NVTX range."""

    variant: str
    shape: str

    def __str__(self) -> str:
        return f"{self.variant}/{self.shape}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that a user names.

        Raises:
            UsageError: the text is not of the form ``variant/shape``.
        """
        if not re.fullmatch(r"\w+/\w+", text):
            raise UsageError(f"{text}: expected VARIANT/SHAPE, such as fast/mission")
        return cls(*text.split("/"))


#: A time of a case: the case and the timing mode.
TimeKey = tuple[Case, str]
