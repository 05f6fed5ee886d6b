"""cuTile: kernels of ``ct.launch``, compiled ahead of time."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="cutile", languages={"cutile": "flashcore.plugins.languages.cutile.language:LANGUAGE"})
