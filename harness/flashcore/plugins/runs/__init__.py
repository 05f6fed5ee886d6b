"""The list of recorded runs, and the summary of the current folder that ``flashcore`` prints."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="runs",
    commands={"runs": "flashcore.plugins.runs.command", "start": "flashcore.plugins.runs.start"},
    help={
        "runs": "list the recorded runs",
        "start": "what is in this folder, and which command is next (default on a terminal)",
    },
    groups={"runs": "explain", "start": "make"},
    api={"runs": "flashcore.plugins.runs.command:runs", "history": "flashcore.plugins.runs.command:history"},
)
