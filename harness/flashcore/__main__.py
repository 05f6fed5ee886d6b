"""Starts the command line for ``flashcore`` and ``python -m flashcore``.

Python searches empty or relative entries of PYTHONPATH, which are folders below the current one, before the standard
library: a user's ``json.py`` would replace the real one. So such entries are removed before anything else is imported;
:mod:`flashcore.machine.python_process` starts children without them.
"""

import os
import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    path = os.environ.get("PYTHONPATH", "")
    entries = path.split(os.pathsep) if path else []
    relative = {os.path.abspath(p) for p in entries if not os.path.isabs(p)} - set(entries)
    sys.path[:] = [p for p in sys.path if p not in relative]
    from flashcore.cli.main import main as run

    return run()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` puts the current folder there
    sys.exit(main())
