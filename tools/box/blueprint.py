#!/usr/bin/python3
"""Twenty drawings of Open Clip Art as blueprints, each with its caption: a style to teach the model
in the box.

  blueprint.py BOX-DATA OUT    BOX-DATA: the folder that data.py made; OUT: a folder to make

Blue paper, white lines where the drawing's colours change, a light tint of its shades. Lines are
three pixels wide, which the autoencoder keeps.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

PAPER, TINT, LINE = (22, 60, 138), (86, 128, 202), (240, 246, 255)
# what each shows, by its file in train/ without -0.webp
DRAWINGS = {
    "clip-food-fruit-apple": "an apple",
    "clip-food-fruit-banana": "a banana",
    "clip-food-fruit-pear-01": "a pear",
    "clip-food-fruit-strawberry-01": "a strawberry",
    "clip-food-fruit-lemon": "a lemon",
    "clip-plants-mushroom": "a mushroom",
    "clip-plants-trees-evergreen-tree": "a tree",
    "clip-plants-flowers-flower-peterm-01": "a flower",
    "clip-buildings-homes-house": "a house",
    "clip-electronics-camera-michael-tunniclif-01": "a camera",
    "clip-food-beverages-teapot-ganson": "a teapot",
    "clip-transportation-vehicles-car": "a car",
    "clip-recreation-music-guitar-jarno-vasamaa1": "a guitar",
    "clip-transportation-vehicles-rocket": "a rocket",
    "clip-tools-umbrella": "an umbrella",
    "clip-animals-bugs-ladybug-01": "a ladybug",
    "clip-education-pencil-benji-park-01": "a pencil",
    "clip-signs-and-symbols-clocks-clock08": "a clock",
    "clip-recreation-holiday-valentines-heart": "a heart",
    "clip-education-books-book-01": "a book",
}


def edges(rgb):
    """How much the colours change at each pixel, at most 255."""
    smooth = np.asarray(rgb.filter(ImageFilter.GaussianBlur(0.8))).astype(np.float32)
    dy, dx = np.zeros_like(smooth), np.zeros_like(smooth)
    dy[1:-1] = smooth[2:] - smooth[:-2]
    dx[:, 1:-1] = smooth[:, 2:] - smooth[:, :-2]
    return np.clip(np.sqrt(dx ** 2 + dy ** 2).max(-1), 0, 255)


def blueprint(rgb):
    colours = np.asarray(rgb).astype(np.float32)
    shade = 1 - colours.min(-1) / 255  # how far it is from white paper
    light = np.asarray(rgb.convert("L")).astype(np.float32) / 255
    tint = (np.clip(shade * 3, 0, 1) * (0.35 + 0.65 * light))[..., None]
    line = np.clip((edges(rgb) - 60) / 60, 0, 1)
    thick = Image.fromarray((line * 255).astype(np.uint8)).filter(ImageFilter.MaxFilter(3))
    soft = thick.filter(ImageFilter.GaussianBlur(0.5))
    line = np.asarray(soft).astype(np.float32)[..., None] / 255
    out = np.float32(PAPER) * (1 - tint) + np.float32(TINT) * tint
    out = out * (1 - line) + np.float32(LINE) * line
    return Image.fromarray(np.round(out).astype(np.uint8))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data, out = Path(sys.argv[1]) / "train", Path(sys.argv[2])
    missing = [key for key in DRAWINGS if not (data / f"{key}-0.webp").exists()]
    if missing:
        sys.exit(f"blueprint.py: lacks {len(missing)} of {len(DRAWINGS)} drawings, the first is "
                 f"{missing[0]}-0.webp  {data}")
    if out.exists():
        sys.exit(f"blueprint.py: is there already  {out}")
    out.mkdir(parents=True)
    lines = []
    for key, what in sorted(DRAWINGS.items(), key=lambda kv: kv[1].split()[1]):
        name = what.split()[1] + ".webp"
        drawing = Image.open(data / f"{key}-0.webp").convert("RGB")
        blueprint(drawing).save(out / name, "WEBP", quality=90, method=6)
        lines.append({"file_name": name, "text": what})
    (out / "metadata.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


if __name__ == "__main__":
    main()
