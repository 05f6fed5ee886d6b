"""Entry point of ``python -m harness``."""

import sys

from flashcore.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
