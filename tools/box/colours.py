"""Colour words: which one a picture shows, and pictures in another colour."""

import numpy as np

# word: hue in degrees, saturation and value that the middle of an object of that colour has
WORDS = {
    "red": (2, 0.85, 0.85),
    "orange": (28, 0.88, 0.96),
    "yellow": (52, 0.85, 0.97),
    "green": (118, 0.75, 0.66),
    "blue": (216, 0.80, 0.86),
    "purple": (277, 0.66, 0.72),
    "pink": (332, 0.48, 0.97),
    "brown": (24, 0.68, 0.52),
    "grey": (0, 0.0, 0.60),
    "black": (0, 0.0, 0.16),
    "white": (0, 0.0, 0.95),
}
# those that a hue alone tells from each other
HUES = ("red", "orange", "yellow", "green", "blue", "purple", "pink")
BACKGROUNDS = {
    "red": (226, 60, 52), "orange": (245, 160, 70), "yellow": (250, 225, 95),
    "green": (120, 190, 105), "blue": (90, 150, 230), "purple": (160, 110, 205),
    "pink": (250, 175, 205), "brown": (150, 105, 70), "grey": (165, 165, 165),
    "black": (25, 25, 25),
}
BAND = 32  # degrees on each side that belong to a hue


def hsv(rgb):
    """Of floats in [0,1]; hue in degrees."""
    high, low = rgb.max(-1), rgb.min(-1)
    spread = high - low
    safe = np.where(spread > 0, spread, 1)
    r, g, b = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    hue = np.select([high == r, high == g], [(g - b) / safe % 6, (b - r) / safe + 2],
                    (r - g) / safe + 4) * 60
    return (np.where(spread > 0, hue, 0),
            np.where(high > 0, spread / np.maximum(high, 1e-6), 0), high)


def rgb_of(hue, saturation, value):
    out = []
    for n in (5, 3, 1):
        k = (n + hue / 60) % 6
        out.append(value - value * saturation * np.clip(np.minimum(k, 4 - k), 0, 1))
    return np.stack(out, -1)


def distance(a, b):
    return np.abs((a - b + 180) % 360 - 180)


class Dominant:
    """The hue that most coloured pixels of an object have."""

    def __init__(self, rgba):
        self.rgba = rgba.astype(np.float32) / 255
        self.hue, self.saturation, self.value = hsv(self.rgba[..., :3])
        solid = self.rgba[..., 3] > 0.5
        coloured = solid & (self.saturation > 0.25) & (self.value > 0.2)
        self.share = coloured.sum() / max(solid.sum(), 1)
        bins = np.bincount((self.hue[coloured] / 5).astype(int) % 72, minlength=72)
        ring = np.concatenate([bins[-6:], bins, bins[:6]])
        smooth = np.convolve(ring, np.ones(13), "valid")
        self.middle = float(smooth.argmax()) * 5 + 2.5
        self.band = (distance(self.hue, self.middle) <= BAND) & (self.saturation > 0.12)
        inside = coloured & self.band
        self.purity = inside.sum() / max(coloured.sum(), 1)
        some = inside.any()
        self.saturation_middle = float(np.median(self.saturation[inside])) if some else 0
        self.value_middle = float(np.median(self.value[inside])) if some else 0

    def one_colour(self):
        """Whether the object is of one colour, so that it can get another."""
        return self.share > 0.45 and self.purity > 0.82

    def word(self):
        """The word nearest to it."""
        def far(name):
            hue, saturation, value = WORDS[name]
            return (distance(self.middle, hue) / 60 + abs(self.saturation_middle - saturation)
                    + abs(self.value_middle - value))
        return min((*HUES, "brown"), key=far)

    def painted(self, word):
        """The object in that colour, u8 RGBA."""
        hue, saturation, value = WORDS[word]
        s = np.clip(self.saturation * (saturation / max(self.saturation_middle, 1e-3)), 0, 1)
        v = np.clip(self.value * (value / max(self.value_middle, 1e-3)), 0, 1)
        turned = (self.hue - self.middle + 180) % 360 - 180
        rgb = rgb_of((hue + turned * 0.4) % 360, s, v)
        out = self.rgba.copy()
        out[..., :3] = np.where(self.band[..., None], rgb, out[..., :3])
        return np.round(out * 255).astype(np.uint8)
