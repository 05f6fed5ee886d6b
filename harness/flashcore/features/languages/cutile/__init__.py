"""cuTile: kernels of ``ct.launch``, compiled ahead of time."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="cutile", languages={"cutile": "flashcore.features.languages.cutile.language:LANGUAGE"})
