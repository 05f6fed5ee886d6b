"""The process on the host that records the runs, or watches. Its standard output is one JSON object per line."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import replace

from flashcore.errors import Exit, FlashcoreError
from flashcore.machine import python_process


def main(folder: str, requested: str) -> None:
    """Watches, or records what is requested, into the folder's ``profiles``."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    log = python_process.answers()

    def put(**message: object) -> None:
        print(json.dumps(message), file=log, flush=True)

    def say(text: str) -> None:
        put(say=[type(text).__name__, text, *getattr(text, "__dict__", {}).values()])

    request = json.loads(requested)
    try:
        from flashcore.model.settings import Settings
        from flashcore.pipeline.run import record_run

        settings = replace(
            Settings.from_json(request["settings"]), profiles=f"{folder}/profiles", build=f"{folder}/build"
        )
        if request.get("watch"):
            from flashcore.pipeline import plugins

            sys.stdout = log
            plugins.find("commands", "watch").run(argparse.Namespace(**vars(settings), format="jsonl", serve=None))
            return
        run = record_run(settings, say, resume=request["resume"], needed=request["needed"])
        put(run=(run.folder.name, run.settings.variants, run.settings.shapes))
    except FlashcoreError as error:
        put(error=str(error), code=error.exit_code)
    except ModuleNotFoundError as error:
        hint = f"install flashcore's extra `run` for {sys.executable} there, or name another: --host HOST:PYTHON"
        put(error=f"expected what flashcore needs, found no package {error.name}\n  hint: {hint}", code=Exit.INCAPABLE)
