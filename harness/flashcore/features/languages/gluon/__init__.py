"""Gluon: Triton's language of layouts, compiled ahead of time."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="gluon", languages={"gluon": "flashcore.features.languages.gluon.language:LANGUAGE"})
