"""Open Clip Art: drawings of openclipart-svg, rendered by librsvg, with titles and keywords."""

import io
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path("/usr/share/openclipart/svg")
# Sets of icons, of signs and of cards: hundreds of one kind, with one title for all.
LEFT_OUT = re.compile(
    r"(computer/(icons(?!/applications)|buttons|diagrams|connectors|network)"
    r"|shapes/(stars|jigsaw|flowchart|arrows|callouts)|signs_and_symbols/(flags|map_symbols|led)"
    r"|special|transportation/(aiga|roadsigns)|recreation/(games/cards|music/CD)|buttons|logos"
    r"|unsorted|geography(?!/astronomy)|people/(stickmen|clothing/pantyhose))")
# Titles of whole sets, and what titles have beside names.
OF_SETS = re.compile(r"clipart by|collection|iconset|icon set|theme|symbol_signs|various|^untitled|"
                     r"road ?signs|^people$|unnamed|drawing", re.I)
NOT_WORDS = {"hash", "clip art", "clipart", "icon", "icons", "menu", "unsorted", "image", "svg",
             "externalsource", "appicon", "weathersym", "mapsym", "symbol", "recreation", "special",
             "musicstuff", "festive", "etiquette", "computer", "media", "png", "signs and symbols"}
NOT_NAMES = {"people", "sport", "protection", "hash", "logic", "logo", "shape", "sign", "symbol"}
MOST_BYTES = 400_000  # of a drawing: larger ones take long, and are scenes
SIDE = 256


def parsed(path):
    """(title, keywords, whether it is in the public domain)"""
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError:
        return "", [], False
    local = lambda e: e.tag.rsplit("}", 1)[-1] if isinstance(e.tag, str) else ""
    title, words, free = "", [], False
    for work in (e for e in root.iter() if local(e) == "Work"):
        for child in work:
            if local(child) == "title":
                title = (child.text or "").strip()
            if local(child) == "subject":
                words = [(e.text or "").strip() for e in child.iter() if local(e) == "li"]
            if local(child) == "license":
                free = any("publicdomain" in v.lower() for v in child.attrib.values())
    return title, [w for w in words if w], free


def cleaned(text):
    text = re.sub(r"[_-]", " ", text.lower())
    text = re.sub(r"\(.*?\)|[\"#]|\bby \w+.*$|clip ?art", " ", text)
    text = re.sub(r"\b[a-z]?\d+\w*|\bb ?w\b|\bbw\b", " ", text)
    text = re.sub(r"[^a-z' -]", " ", text)
    text = re.sub(r"\s+", " ", text).strip(" -'")
    return re.sub(r"^(a|an|the) ", "", text)


def words_of(name):
    return [w for w in re.split(r"[ -]+", name) if w]


def listed():
    """Paths of drawings that are looked at, in order."""
    out = []
    for folder, _, files in os.walk(ROOT):
        if LEFT_OUT.match(str(Path(folder).relative_to(ROOT))):
            continue
        out += [Path(folder) / f for f in files if f.endswith(".svg")]
    return sorted(p for p in out if p.stat().st_size <= MOST_BYTES)


def described(english):
    """(key, path, names, keywords); `english`: words that are known to be so."""
    found = [(p, *parsed(p)) for p in listed()]
    often = Counter(w for _, title, words, _ in found
                    for w in words_of(" ".join([cleaned(title), *map(cleaned, words)])))
    titles = Counter(cleaned(title) for _, title, _, _ in found)
    known = english | {w for w, n in often.items() if n >= 4}
    for path, title, words, free in found:
        if not free:
            continue
        bw = bool(re.search(r"\bb ?(and|&|/)? ?w\b|_bw", f"{title} {path.stem}", re.I))
        folders = [cleaned(f) for f in path.relative_to(ROOT).parts[1:-1]]
        tags = list(dict.fromkeys(w for w in [*map(cleaned, words), *folders]
                                  if w and w not in NOT_WORDS and set(words_of(w)) <= known))
        name = cleaned(title)
        good = (name and not OF_SETS.search(title) and titles[name] <= 12
                and len(words_of(name)) <= 5 and set(words_of(name)) <= known)
        if not good:  # the file's name, without its author
            stem = words_of(cleaned(path.stem))
            start = next((i for i, w in enumerate(stem) if w not in english), len(stem))
            name = " ".join(stem[:min(start, 3)])
        if len(name) < 3 or name in NOT_NAMES:
            continue
        place = str(path.relative_to(ROOT).with_suffix("")).lower()
        key = "clip-" + re.sub(r"[^a-z0-9]+", "-", place)
        yield key, path, [name], [w for w in tags if w != name][:6] + (["black and white"] * bw)


def rendered(path):
    """RGBA of at most SIDE pixels a side, or None: librsvg makes nothing of it."""
    import numpy as np
    from PIL import Image
    try:
        made = subprocess.run(
            ["rsvg-convert", "-a", "-w", str(SIDE), "-h", str(SIDE), str(path)],
            capture_output=True, timeout=20, check=True).stdout
        picture = Image.open(io.BytesIO(made)).convert("RGBA")
    except (subprocess.SubprocessError, OSError):
        return None
    return np.array(picture)
