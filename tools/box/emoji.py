"""Noto's emoji: pictures from the font of fonts-noto-color-emoji, names from unicode-cldr-core."""

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
CLDR = Path("/usr/share/unicode/cldr/common")
TONES = {chr(c) for c in range(0x1F3FB, 0x1F400)}
HIDDEN = {"\ufe0f", "\ufe0e"}


def names():
    """text of the emoji: (name, keywords)"""
    out = {}
    for folder in ("annotations", "annotationsDerived"):
        for a in ET.parse(CLDR / folder / "en.xml").iter("annotation"):
            text = "".join(c for c in a.get("cp") if c not in HIDDEN)
            name, words = out.get(text, ("", []))
            if a.get("type") == "tts":
                name = a.text
            else:
                words = [w.strip() for w in a.text.split("|")]
            out[text] = (name, words)
    return {text: v for text, v in out.items() if v[0]}


def plain(name):
    """A name as people write it."""
    name = re.sub(r"^flag: (.*)$", r"flag of \1", name)
    name = re.sub(r"^keycap: (.*)$", r"keycap \1", name)
    name = name.replace("“", "").replace("”", "").replace("’", "'")
    return re.sub(r"^(\w+): (.*)$", r"\1, \2", name).lower()


class Font:
    def __init__(self):
        from fontTools.ttLib import TTFont
        font = TTFont(FONT)
        self.glyph_of = font.getBestCmap()
        self.strike = font["CBDT"].strikeData[0]
        self.ligatures = {}
        for lookup in font["GSUB"].table.LookupList.Lookup:
            for table in lookup.SubTable:
                table = getattr(table, "ExtSubTable", table)
                for first, sets in getattr(table, "ligatures", {}).items():
                    for s in sets:
                        self.ligatures[(first, *s.Component)] = s.LigGlyph

    def png(self, text):
        """The picture's bytes; None: the font has none."""
        glyphs = [self.glyph_of.get(ord(c)) for c in text]
        if None in glyphs:
            return None
        glyph = glyphs[0] if len(glyphs) == 1 else self.ligatures.get(tuple(glyphs))
        found = self.strike.get(glyph)
        return getattr(found, "imageData", None)


def subjects():
    """(key, names, keywords, RGBA) of each emoji, without its variants of skin tones."""
    import numpy as np
    from PIL import Image
    font = Font()
    for text, (name, words) in sorted(names().items()):
        if TONES & set(text):
            continue
        png = font.png(text)
        if png is None:
            continue
        picture = Image.open(io.BytesIO(png)).convert("RGBA")
        key = "emoji-" + "-".join(f"{ord(c):x}" for c in text)
        short = plain(name)
        yield key, [short], [w.lower() for w in words if w.lower() != short], np.array(picture)
