#!/usr/bin/python3
"""The pictures and captions that the model in the box is trained on, from packages of Debian."""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
PROGRAMS = ("python3-fonttools", "python3-numpy", "python3-pil", "librsvg2-bin")
SOURCES = ("fonts-noto-color-emoji", "unicode-cldr-core", "openclipart-svg")  # of pictures, texts
SEED = 17
HELD_NAMES = 0.04   # share of subjects that are never trained on
HELD_PAIRS = 500    # nouns with a colour in which they are never shown


def missing_packages():
    try:
        import fontTools, numpy, PIL  # noqa: F401, E401
        import clipart
        import emoji
    except ImportError:
        return True
    return not (emoji.FONT.exists() and emoji.CLDR.is_dir() and clipart.ROOT.is_dir()
                and shutil.which("rsvg-convert"))


class Progress:
    def __init__(self, what, count):
        self.what, self.count, self.start, self.said = what, count, time.time(), 0.0

    def at(self, done):
        now = time.time()
        if now - self.said < 1 and done < self.count:
            return
        self.said = now
        left = (now - self.start) / max(done, 1) * (self.count - done)
        print(f"\r{self.what}: {done} of {self.count}, {left:.0f} s left ", end="", file=sys.stderr,
              flush=True)
        if done == self.count:
            print(file=sys.stderr)


# ---- subjects: a drawing each, as RGBA in the work folder ----------------------------------

def described():
    """Facts of all subjects, and what renders those that are not rendered yet."""
    import clipart
    import emoji
    english = set()
    for name, words in emoji.names().values():
        for text in (emoji.plain(name), *words):
            english |= set(clipart.words_of(clipart.cleaned(text)))
    out = [{"key": key, "names": names, "words": words, "style": "clip art", "path": str(path)}
           for key, path, names, words in clipart.described(english)]
    keys = set()
    return [s for s in out if not (s["key"] in keys or keys.add(s["key"]))]


def picture_file(work, subject):
    return work / f"{subject['key']}.png"


def save_picture(work, subject, rgba):
    """What is kept in the work folder; nothing is saved where nothing is to be seen."""
    from PIL import Image

    import renditions
    cut = None if rgba is None else renditions.trimmed(rgba)
    if cut is None or max(cut.shape[:2]) > 12 * min(cut.shape[:2]):
        return
    target = picture_file(work, subject)
    Image.fromarray(cut).save(target.with_suffix(".part"), "PNG")
    target.with_suffix(".part").rename(target)


def with_colour(work, subject):
    """The subject with what its saved picture says of its colour; None: there is no picture."""
    import numpy as np
    from PIL import Image

    import colours
    import renditions
    file = picture_file(work, subject)
    if not file.exists():
        return None
    look = colours.Dominant(np.array(Image.open(file).convert("RGBA")))
    nouns = [renditions.noun_of(n) for n in subject["names"]]  # "blue" of "blue"
    fixed = (subject["names"][0].startswith(("flag of", "keycap"))
             or renditions.without_colours(nouns) != nouns)
    one = bool(look.one_colour()) and not fixed
    return {**subject, "one_colour": one, "colour": look.word() if one else None}


def clip_subject(job):
    import clipart
    work, subject = job
    if not picture_file(work, subject).exists():
        save_picture(work, subject, clipart.rendered(subject["path"]))
    return with_colour(work, subject)


def all_subjects(work, pool):
    import emoji
    out = []
    progress = Progress("emoji", len(emoji.names()))
    for i, (key, names, words, rgba) in enumerate(emoji.subjects()):
        subject = {"key": key, "names": names, "words": words, "style": "emoji"}
        save_picture(work, subject, rgba)
        made = with_colour(work, subject)
        out += [made] if made else []
        progress.at(i + 1)
    drawings = described()
    progress = Progress("\nclip art", len(drawings))
    for i, made in enumerate(pool.imap(clip_subject, [(work, s) for s in drawings], 4)):
        out += [made] if made else []
        progress.at(i + 1)
    return with_shared_names(without_copies(out, work))


def without_copies(subjects, work):
    """One subject for each drawing, with all of its names: Open Clip Art has many drawings in
    several of its folders, and some flags are those of several regions."""
    by_picture = {}
    for s in subjects:
        first = by_picture.setdefault(picture_file(work, s).read_bytes(), s)
        for kind in ("names", "words"):
            first[kind] = list(dict.fromkeys(first[kind] + s[kind]))
    out = list(by_picture.values())
    print(f"{len(subjects) - len(out)} of {len(subjects)} drawings are copies", file=sys.stderr)
    return out


def with_shared_names(subjects):
    """A name that an emoji has alone says that emoji: captions of other drawings with this name say
    their style, too. Otherwise "a dog" is ten unlike dogs at once."""
    emoji = {n for s in subjects if s["style"] == "emoji" for n in s["names"]}
    return [{**s, "shared": [] if s["style"] == "emoji" else [n for n in s["names"] if n in emoji]}
            for s in subjects]


# ---- what is held out ----------------------------------------------------------------------

def held_subjects(subjects):
    import renditions
    order = sorted(subjects, key=lambda s: renditions.random_of("held", s["key"]).uniform())
    return {s["key"] for s in order[:round(len(subjects) * HELD_NAMES)]}


def held_pairs(subjects):
    """{noun: colour}: of nouns that are shown in other colours, none is shown in this one."""
    import colours
    import renditions
    nouns, seen = {}, set()
    for s in subjects:
        for name in s["names"]:
            noun = renditions.noun_of(name)
            seen |= {(noun, w) for w in name.split() if w in colours.WORDS}
            seen.add((noun, s["colour"]))
            if s["one_colour"] and re.fullmatch(r"[a-z]+( [a-z]+)?", noun):
                nouns.setdefault(noun, s["key"])
    order = sorted(nouns, key=lambda n: (" " in n, renditions.random_of("noun", n).uniform()))
    out = {}
    for noun in order[:HELD_PAIRS]:
        free = [c for c in colours.HUES if (noun, c) not in seen]
        if free:
            out[noun] = str(renditions.random_of("pair", noun).choice(free))
    return out


def renditions_of(job):
    import numpy as np
    from PIL import Image

    import renditions
    work, subject, held = job
    rgba = np.array(Image.open(picture_file(work, subject)).convert("RGBA"))
    return list(renditions.made(subject, rgba, held, SEED))


def said_in(pair, text):
    """Whether the text has "blue apple", as words: "blue" alone may be of something else."""
    return pair in text and re.search(rf"\b{re.escape(pair)}\b", text) is not None


def write_set(folder, work, subjects, held, pool):
    import renditions
    folder.mkdir(parents=True)
    jobs = [(work, s, {held[n] for n in map(renditions.noun_of, s["names"]) if n in held})
            for s in subjects]
    lines, size = [], 0
    progress = Progress(folder.name, len(jobs))
    for i, made in enumerate(pool.imap(renditions_of, jobs, 4)):
        for name, data, metadata in made:
            (folder / name).write_bytes(data)
            size += len(data)
            lines.append(metadata)
        progress.at(i + 1)
    (folder / "metadata.jsonl").write_text("".join(json.dumps(m) + "\n" for m in lines))
    print(f"{folder.name}: {len(lines)} pictures of {len(subjects)} subjects, {size / 1e6:.1f} MB",
          file=sys.stderr)
    return lines


def write_lists(out, subjects, held, pairs, lines):
    import renditions
    trained = [s for s in subjects if s["key"] not in held]
    texts = {t for m in lines for t in m["text"]}
    pairs = sorted(f"{c} {n}" for n, c in pairs.items())
    pairs = [p for p in pairs if not any(said_in(p, t) for t in texts)]
    names = sorted({n for s in trained for n in s["names"]})
    listed = {"names.txt": names,
              "held-out-names.txt": sorted({n for s in subjects if s["key"] in held
                                            for n in s["names"]} - set(names)),
              "held-out-pairs.txt": sorted(map(renditions.with_article, pairs))}
    for name, rows in listed.items():
        (out / name).write_text("".join(r + "\n" for r in rows))
        print(f"{name}: {len(rows)}", file=sys.stderr)
    (out / "subjects.jsonl").write_text("".join(json.dumps(
        {**s, "held": s["key"] in held}) + "\n" for s in subjects))


def write_licences(out):
    for package in SOURCES:
        shutil.copy(f"/usr/share/doc/{package}/copyright", out / f"LICENCE.{package}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to make: train/, held-out/, lists, licences")
    parser.add_argument("--work", type=Path,
                        help="folder of rendered drawings, kept and not rendered again; default "
                             "OUT.work")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if missing_packages():
        sys.exit("data.py: packages are missing; install them with\n  apt-get install "
                 + " ".join(PROGRAMS + SOURCES))
    if args.out.exists():
        sys.exit(f"data.py: is there already  {args.out}")
    work = args.work or args.out.with_name(args.out.name + ".work")
    work.mkdir(parents=True, exist_ok=True)
    part = args.out.with_name(args.out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    os.nice(5)
    with multiprocessing.Pool(args.threads) as pool:
        subjects = all_subjects(work, pool)
        held = held_subjects(subjects)
        pairs = held_pairs([s for s in subjects if s["key"] not in held])
        trained = [s for s in subjects if s["key"] not in held]
        lines = write_set(part / "train", work, trained, pairs, pool)
        write_set(part / "held-out", work, [s for s in subjects if s["key"] in held], {}, pool)
    write_lists(part, subjects, held, pairs, lines)
    write_licences(part)
    part.rename(args.out)


if __name__ == "__main__":
    main()
