"""Subjects in places, in colours and on backgrounds, with captions that say so."""

import io
import re
import zlib

import numpy as np
from PIL import Image

import colours

SIZE = 128
QUALITY = 80  # of WebP
FAMILY_COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "grey", "black",
                  "white", "brown")


def random_of(*parts):
    return np.random.default_rng([zlib.crc32(str(p).encode()) for p in parts])


def trimmed(rgba):
    """Without its empty border; None: it is empty."""
    solid = rgba[..., 3] > 8
    if solid.mean() < 0.01:
        return None
    rows, columns = np.flatnonzero(solid.any(1)), np.flatnonzero(solid.any(0))
    return rgba[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1]


def placed(rgba, background, scale, where):
    """On a square of one colour; `scale`: its longer side, `where`: of the free room, 0 to 1."""
    h, w = rgba.shape[:2]
    ratio = SIZE * scale / max(h, w)
    size = (max(round(w * ratio), 1), max(round(h * ratio), 1))
    # alpha times colour is what is resized: transparent pixels have no colour
    a = rgba.astype(np.float32) / 255
    a[..., :3] *= a[..., 3:]
    planes = [Image.fromarray(a[..., k]).resize(size, Image.Resampling.LANCZOS if ratio < 1
                                                else Image.Resampling.BICUBIC) for k in range(4)]
    small = np.clip(np.stack([np.asarray(p) for p in planes], -1), 0, 1)
    x, y = (round(where[k] * (SIZE - size[k])) for k in (0, 1))
    out = np.tile(np.array(background, np.float32) / 255, (SIZE, SIZE, 1))
    part = out[y:y + size[1], x:x + size[0]]
    part[:] = part * (1 - small[..., 3:]) + small[..., :3]
    return np.round(np.clip(out, 0, 1) * 255).astype(np.uint8)


def webp(rgb):
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "WEBP", quality=QUALITY, method=6)
    return out.getvalue()


# ---- captions ------------------------------------------------------------------------------

def with_article(name):
    last = name.split()[-1]
    if name.startswith(("flag of", "keycap")) or "," in name or (
            last.endswith("s") and not last.endswith(("ss", "us"))):
        return name
    return ("an " if name[0] in "aeiou" else "a ") + name


def noun_of(name):
    """The name without colour words."""
    return " ".join(w for w in name.split() if w not in colours.WORDS) or name


def without_colours(words):
    """The keywords that name no colour: those of a drawing are not those of it in another one."""
    return [w for w in words if not set(re.findall(r"[a-z]+", w.lower())) & set(colours.WORDS)]


def texts(subject, words, colour=None, background=None):
    """Captions of one picture, of which training draws one each time; `colour`: painted in it."""
    out, style = [], subject["style"]
    words = without_colours(words) if colour else words
    behind = f" on {with_article(background + ' background')}" if background else ""
    for name in subject["names"]:
        full = f"{colour} {noun_of(name)}" if colour else name
        if name in subject.get("shared", []):
            out += [f"{full}{behind}, {style}", f"{with_article(full)}{behind}, {style}"]
            continue
        out += [full + behind, with_article(full) + behind,
                f"{with_article(full)}{behind or ' on a white background'}",
                f"{full}{behind}, {style}"]
        if words:
            out.append(f"{full}{behind}, {', '.join(words[:3])}")
    if words and not colour:
        out.append(f"{', '.join(words[:4])}{behind}, {style}")
    return list(dict.fromkeys(out))


# ---- pictures ------------------------------------------------------------------------------

def plan(subject, held, seed):
    """(suffix, colour or None, background or None, scale, where) of each rendition; `held`: colours
    in which this noun is never shown."""
    r = random_of(subject["key"], seed)
    middle, jitter = (0.5, 0.5), lambda: (float(r.uniform(0.1, 0.9)), float(r.uniform(0.1, 0.9)))
    free = [c for c in colours.BACKGROUNDS if c not in held and c != subject["colour"]]
    out = [("0", None, None, 0.92, middle),
           ("1", None, None, float(r.uniform(0.6, 0.85)), jitter()),
           ("2", None, str(r.choice(free)), float(r.uniform(0.7, 0.92)), jitter())]
    if subject["one_colour"]:
        paints = [c for c in FAMILY_COLOURS if c not in held and c != subject["colour"]]
        first = [c for c in paints if c in colours.HUES]
        others = [c for c in paints if c not in first]
        some = [*r.permutation(first)[:5], *r.permutation(others)[:1]]
        for i, c in enumerate(map(str, some)):
            behind = None
            if r.uniform() < 0.2 or c == "white":
                behind = str(r.choice([b for b in free if b != c]))
            out.append((str(3 + i), c, behind, float(r.uniform(0.75, 0.92)),
                        middle if r.uniform() < 0.5 else jitter()))
    return out


def made(subject, rgba, held, seed):
    """(file name, bytes, metadata) of each rendition."""
    look = colours.Dominant(rgba) if subject["one_colour"] else None
    for suffix, colour, background, scale, where in plan(subject, held, seed):
        painted = look.painted(colour) if colour else rgba
        rgb = placed(painted, colours.BACKGROUNDS.get(background, (255, 255, 255)), scale, where)
        said = texts(subject, subject["words"], colour, background)
        if not colour and subject["one_colour"]:
            own = texts(subject, [], subject["colour"], background)
            said = list(dict.fromkeys([*said, *own[:3]]))
        name = f"{subject['key']}-{suffix}.webp"
        yield name, webp(rgb), {"file_name": name, "text": said, "subject": subject["key"],
                                "colour": colour or subject["colour"], "background": background}
