"""CuTe DSL: functions marked ``@cute.jit``, with the kernels that they launch, compiled ahead of time."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="cute", languages={"cute": "flashcore.features.languages.cute.language:LANGUAGE"})
