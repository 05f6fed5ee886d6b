"""A judgement in formats for programs and people, a module for each.

A format is ``render(judgement, record, places) -> str``; plugins add others. The terminal's own table is the command
line's. The JSON follows ``gate.schema.json`` in this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flashcore.gate.formats import json, markdown
from flashcore.gate.judge import Judgement
from flashcore.gate.locate import Places
from flashcore.model.record import Record

FORMATS: Mapping[str, Callable[[Judgement, Record, Places], str]] = {"json": json.render, "markdown": markdown.render}
