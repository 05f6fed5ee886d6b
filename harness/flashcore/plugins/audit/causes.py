"""Why device code in a file cannot be read."""

from __future__ import annotations

from flashcore.model.cause_text import FORMS
from flashcore.model.causes import Cause


class Damaged(Cause):
    """The file, or a part of it, is cut short or altered."""

    code = "damaged_code"
    message: str


class NeedsPackage(Cause):
    """The code is compressed, and the package that decompresses it is not installed."""

    code = "needs_package"
    package: str


class TooLarge(Cause):
    """Decompressed, the code would be larger than the limit."""

    code = "code_too_large"
    bytes: int
    most: int


class NoDeviceCode(Cause):
    """The file has no CUDA code."""

    code = "no_device_code"


class SpillsUnlisted(Cause):
    """The cubin has no note of a spill, as older compilers write none; or it calls functions with stack frames."""

    code = "spills_unlisted"
    stack_bytes: int


FORMS[Damaged] = "damaged: {message}"
FORMS[NeedsPackage] = "compressed: pip install {package} (the extra `audit` of flashcore-harness has it)"
FORMS[TooLarge] = "refused: {bytes} bytes when decompressed, at most {most} are read"
FORMS[NoDeviceCode] = "no CUDA code: expected a library, an object, an archive, a wheel, a fatbin, a cubin or PTX"
FORMS[SpillsUnlisted] = "the cubin does not list them, or not all; its stack frame has {stack_bytes} B"
