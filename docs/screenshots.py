"""Makes the pictures of the documentation from a recorded run: `make screenshots [RUN=ID]`. Needs Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
#: Picture → page of the report, and the window's width and height in CSS pixels.
PICTURES = {
    "overview": ("index.html", 1280, 960),
    "roofline": ("roofline.html", 1280, 900),
}


def main(runs: list[str]) -> int:
    """Renders the run (the newest if none is named) and photographs its pages."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("screenshots: expected chromium or google-chrome on PATH, found neither", file=sys.stderr)
        return 4
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-P", "-m", "flashcore", "report", *runs, "-o", folder], check=True)
        for name, (page, width, height) in PICTURES.items():
            subprocess.run(
                [
                    browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--window-size={width},{height}", "--virtual-time-budget=4000",
                    f"--screenshot={HERE / 'pictures' / name}.png", (Path(folder) / page).as_uri(),
                ],
                check=True, stderr=subprocess.DEVNULL,
            )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
