"""Edges of OpenCV's Canny: python canny_golden.py --out tests/golden.

Of pattern images (control_run_golden.py has the same formula); opencv-python-headless from PyPI.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np

SIZES = [(40, 56), (33, 17)]
THRESHOLDS = [(100, 200), (30, 90)]


def picture(height, width, channels, seed):
    """Soft shapes, so that edges have all directions."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    a = (y - height // 3) ** 2 + (x - width // 2) ** 2
    b = (y * (2 + seed) + x * 3 + c * 40) % 97
    return ((a * 3 // (1 + seed) + b + c * (x // 4) * 9) % 256).astype(np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    cases = []
    for seed, (height, width) in enumerate(SIZES):
        for channels in (1, 3):
            for low, high in THRESHOLDS:
                image = picture(height, width, channels, seed)
                edges = cv2.Canny(image, low, high)
                rows = "".join(f"{int(''.join('1' if v else '0' for v in r), 2):x} " for r in edges)
                cases.append({"height": height, "width": width, "channels": channels, "seed": seed,
                              "low": low, "high": high, "rows": rows.strip()})
    import json
    text = json.dumps({"generator": {"opencv": cv2.__version__}, "cases": cases}, indent=1)
    (args.out / "canny.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
