"""Times functions of the present process, for notebooks, scripts and tests."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(name="timer", api={n: f"flashcore.features.timer.api:{n}" for n in ("time", "assert_faster")})
