"""Makes the pictures of the documentation from a recorded run: `make screenshots [RUN=ID]`. Needs Chromium."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.browser import PROGRAM, browser

HERE = Path(__file__).parent
#: Picture → page of the report, and the window's width and height in CSS pixels.
PICTURES = {
    "overview": ("index.html", 1280, 770),
    "roofline": ("roofline.html", 1280, 960),
}


def main(runs: list[str]) -> int:
    """Renders the run (the newest if none is named) and photographs its pages."""
    if PROGRAM is None:
        print("screenshots: expected Chromium on PATH, found none", file=sys.stderr)
        return 4
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        subprocess.run([sys.executable, "-P", "-m", "flashcore", "report", *runs, "-o", folder], check=True)
        for name, (page, width, height) in PICTURES.items():
            with chromium.page(Path(folder) / page, size=(width, height)) as shown:
                shown.tab.screenshot(path=HERE / "pictures" / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
