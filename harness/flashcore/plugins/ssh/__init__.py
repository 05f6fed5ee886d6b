"""A host that is reached by ssh as the place of a run: it builds and measures there, and the record comes back."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="ssh",
    options={
        "watch": "flashcore.plugins.ssh.watch",
        **dict.fromkeys(("check", "bench", "profile", "sanitize"), "flashcore.plugins.ssh.host_option"),
    },
    executors={"host": "flashcore.plugins.ssh.host:Host"},
)
HELP = "build and measure over ssh on this host: [user@]host[:python] (default: here)"
