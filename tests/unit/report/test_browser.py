"""The page in a real browser, wide and on a phone: it renders, and it is not blank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from png import read_png

CHROMIUM = Path("/usr/bin/chromium")


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium on this machine")
@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_renders_from_disk(
    amended_files: dict[str, bytes], tmp_path: Path, width: int
) -> None:
    for name, data in amended_files.items():
        (tmp_path / name).write_bytes(data)
    shot = tmp_path / "shot.png"
    subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={shot}",
            f"--window-size={width},3000",
            (tmp_path / "index.html").as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    pixels = read_png(shot.read_bytes())[:, :, :3].astype(int)
    assert pixels.shape[:2] == (3000, width)
    dark = (pixels.sum(axis=2) < 200).mean()
    assert 0.002 < dark < 0.3, "no text, or nothing else"
    # The heat map's strongest orange is there, so the tables were drawn and coloured.
    assert (np.abs(pixels - [190, 84, 8]).sum(axis=2) < 12).sum() > 200
    # Nothing runs over the right edge: the last columns of pixels are the page's white margin.
    assert (pixels[:, -8:] == 255).all()
