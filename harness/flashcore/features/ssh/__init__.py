"""A host that is reached by ssh as the place of a run: it builds and measures there, and the record comes back."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="ssh",
    options={
        "watch": "flashcore.features.ssh.watch",
        **dict.fromkeys(("check", "bench", "profile", "sanitize"), "flashcore.features.ssh.host_option"),
    },
    executors={"host": "flashcore.features.ssh.host:Host"},
)
HELP = "build and measure over ssh on this host: [user@]host[:python] (default: here)"
