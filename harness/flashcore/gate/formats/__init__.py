"""Output formats of a judgement, one module each.

A format is ``render(judgement, record, places) -> str``; plugins add others. The terminal's table is in ``cli``. The
JSON follows ``gate.schema.json`` in this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flashcore.gate.formats import json, markdown
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.model.record import Record

FORMATS: Mapping[str, Callable[[Judgement, Record, Places], str]] = {"json": json.render, "markdown": markdown.render}
