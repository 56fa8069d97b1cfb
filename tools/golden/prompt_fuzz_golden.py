"""What A1111 and ComfyUI make of generated prompts, as hashes, for tests/golden/prompt_fuzz.json.

    venv/bin/pip install transformers==5.23.0 tokenizers==0.23.3 lark==1.1.2
    venv/bin/python tools/golden/prompt_fuzz_golden.py --merges ~/.cache/ebb/clip_merges.txt.gz \
        --webui PATH --comfyui PATH/sd1_clip.py --out tests/golden/prompt_fuzz.json

The web UI is a checkout and ComfyUI a file, kept outside of the repository; their functions are run
here with stand-ins for what they import (prompt_golden.py). A prompt has three hashes, of 32 bits
in hex: what A1111's texts are for each part and step, its chunks, and ComfyUI's chunks; "-" where
the program fails (also where it prints that it leaves a tag out, or leaves vectors of an embedding
in the chunk before its tokens, which ebb does not), "?" where A1111's parser, whose grammar has
several readings of a bracket that does not fit, takes one or the other by the seed of Python's
hashes. The hashed text is written by text_of_*() here and by tests/prompt_fuzz_test.cpp.
"""

import argparse
import gzip
import json
import logging
import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import lark
import tokenizers
import transformers

import prompt_golden as golden
import tokenizer_golden

EMBEDDINGS = {"myemb": 3, "big one": 20, "huge": 60}
COUNT = 2600
SEEDS = range(16)  # of Python's hashes; the first is that of the run itself
WORDS = ["cat", "a dog", "red ", " sky,", ", ", " ", "very old house, ", "x", "it's", " 4k ", "1.5",
         "AND", " AND ", "BREAK", " BREAK ", "BREAKS", "BRAND ", "\n", "masterpiece, ", "myemb",
         " big one ", "huge,", "embedding:myemb", " embedding:huge ", "embedding:none", "a:b",
         "embedding:myemb,", "#", "# note\n", "<lora:x:0.8>", "<b>", "<", ">"]
UNICODE = ["ünïcode ", "雪", "é", "e\u0301", "\u00a0", "\u3000", "\u2028", "\x85", "\x1c", "\t",
           "٣", ":٣)", ":１.５)", "😀", "👩\u200d🚀", "\ufeff", "\u200b", "ﬁ", "İ", "ß", "AND雪",
           "éAND ", " AND\u3000", "：", "（", "）", "ANDＡ", "\u00adBREAK", "नमस्ते", "𝒳", "_AND_"]
BRACKETS = ["(", ")", "[", "]", "(", ")", "[", "]", ":", "|", ":1.2)", ":.5)", ": 1.3 )", ":-1)",
            ":0.5]", ":3]", "::4]", "|]", ":1.)", ":+2)", ":1e1]", ":1.2.3)", ":.)", ": 5 ]"]
ESCAPES = ["\\(", "\\)", "\\[", "\\]", "\\\\", "\\", "\\:", "\\|", "\\a", "\\\n"]
WEIGHTS = ["1.2", ".5", " 1.3 ", "-1", "0", "2.", "+1.1", "1e1", "x", "", "1.2.3", "٣", "0.333333"]
WHEN = ["0.5", "3", " 4", ".25 ", "0.8", "7", "1", "0", "-1", "99", "1.5", "1e1", "2e-1", "+3", "x",
        "0.05", "\u00a05", "1.0", "5."]
PARTS = [" AND ", " AND ", "AND", " :1.2 AND ", ":.5 AND ", ": -0.3 AND", " BREAK ", "\nBREAK\n"]
FORMS = ["({})", "({}:W)", "(({}))", "[{}]", "[{}:{}:T]", "[{}:T]", "[{}::T]", "[{}|{}]",
         "[{}|{}|{}]", "[|{}]", "({} (b:W):W)", "[({}:W):T]", "([{}:{}:T]:W)"]


def body(rng, depth):
    """A prompt whose brackets fit."""
    out = ""
    for _ in range(rng.randint(1, 3)):
        if depth == 0 or rng.random() < 0.5:
            out += rng.choice(WORDS if rng.random() < 0.8 else UNICODE)
            continue
        form = rng.choice(FORMS)
        form = re.sub("W", lambda _: rng.choice(WEIGHTS), form)
        form = re.sub("T", lambda _: rng.choice(WHEN), form)
        out += re.sub(r"{}", lambda _: body(rng, depth - 1), form)
    return out


def salad(rng):
    out = ""
    for _ in range(rng.randint(1, 9)):
        out += rng.choice(rng.choice([WORDS, WORDS, UNICODE, BRACKETS, BRACKETS, ESCAPES]))
    return out


def damaged(rng, text):
    """One to three changes of characters that mean something."""
    text = list(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        change = rng.random()
        if change < 0.4 and at < len(text):
            del text[at]
        elif change < 0.8:
            text.insert(at, rng.choice(["(", ")", "[", "]", ":", "|", "\\", "\n", " "]))
        elif at < len(text):
            text.insert(at, text[rng.randrange(len(text))])
    return "".join(text)


def long(rng):
    words = ["red", "blue,", "old", "new", "cat", "sky,", "tree", "stone", "very", "dark,", "myemb",
             "big one", "huge", "embedding:big one", "BREAK", "(a", "b:1.3)", "[c]", "d)"]
    return " ".join(rng.choices(words, [9] * 10 + [1] * 9, k=rng.randint(60, 130)))


def joined(rng):
    return rng.choice(PARTS).join(body(rng, rng.randint(0, 2)) for _ in range(rng.randint(2, 4))) \
        + rng.choice(["", "", ":1.2", " : 0.5 ", ":x", ":٣"])


def prompts():
    rng = random.Random(13)
    makers = [(5, salad), (5, lambda r: body(r, 3)), (4, lambda r: damaged(r, body(r, 3))),
              (3, joined), (1, lambda r: damaged(r, joined(r)))]
    kinds = [make for share, make in makers for _ in range(share)]
    out = []
    while len(out) < COUNT:
        text = long(rng) if len(out) % 52 == 51 else rng.choice(kinds)(rng)
        if len(text.encode()) <= (700 if len(out) % 52 == 51 else 160) and text not in out:
            out.append(text)
    return out


# ---- hashes ------------------------------------------------------------------------------------


def hashed(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value & 0xFFFFFFFF:08x}"


def number(value):
    """The bits of the nearest f32."""
    return struct.pack(">f", value).hex()


def text_of_chunks(chunks):
    """Ids of 77 tokens, their weights, and runs of rows of embeddings."""
    out = ""
    for ids, weights, spans in chunks:
        out += " ".join(map(str, ids)) + ";" + " ".join(map(number, weights)) + ";"
        out += " ".join(f"{at},{first},{count},{name}" for at, first, count, name in spans) + "\n"
    return out


class A1111:
    def __init__(self, webui, ids):
        modules = Path(webui) / "modules"
        self.parser = golden.load_parser(modules / "prompt_parser.py")
        make = golden.load_a1111_chunks(modules / "sd_hijack_clip.py", self.parser, ids, 20)
        self.chunks = make(EMBEDDINGS)
        self.comments = golden.definitions(modules / "processing_scripts" / "comments.py",
                                           {"strip_comments"}, {"re": re})["strip_comments"]
        tags = golden.definitions(modules / "extra_networks.py", {"re_extra_net"}, {"re": re})
        self.tags = tags["re_extra_net"]

    def parts(self, text):
        text = self.comments(text)
        for _, arguments in self.tags.findall(text):
            for weight in arguments.split(":")[1:]:
                float(weight)
        text = re.sub(self.tags, "", text)
        for part in self.parser["re_AND"].split(text):
            found = self.parser["re_weight"].search(part)
            text, weight = found.groups() if found else (part, 1.0)
            yield text, float(weight) if weight is not None else 1.0

    def scheduled(self, text):
        schedules = self.parser["get_learned_conditioning_prompt_schedules"]([text], 20)[0]
        return golden.merged(schedules)

    def text_of_texts(self, prompt):
        out = ""
        for text, weight in self.parts(prompt):
            out += f"{number(weight)}\n"
            out += "".join(f"{end} {text}\n" for end, text in self.scheduled(text))
        return out

    def text_of_chunks(self, prompt):
        out = ""
        for text, _ in self.parts(prompt):
            made = [self.chunks(t) for _, t in self.scheduled(text)]
            count = max(map(len, made))
            for fix, chunk in ((f, c) for chunks in made for c in chunks for f in c.fixes):
                if any(chunk.tokens[fix.offset + 1:fix.offset + 1 + fix.embedding.vectors]):
                    raise ValueError("left behind")
            for chunks in made:
                chunks += [self.chunks.empty_chunk()] * (count - len(chunks))
                out += text_of_chunks([[i, w, [[at, 0, count, name] for at, count, name in s]]
                                       for i, w, s in map(golden.a1111_chunk, chunks)])
        return out


def joined_rows(rows):
    """Spans of rows that follow each other."""
    out = []
    for at, name, row in rows:
        if out and out[-1][0] + out[-1][2] == at and out[-1][3] == name \
                and out[-1][1] + out[-1][2] == row:
            out[-1][2] += 1
        else:
            out.append([at, row, 1, name])
    return out


def attempt(make, *args):
    try:
        return hashed(make(*args))
    except (ValueError, IndexError, OverflowError, RecursionError):
        return "-"


def texts_by_seed(seed):
    """The hashes of A1111's texts in a process with this seed."""
    run = subprocess.run([sys.executable, *sys.argv, "--texts"], check=True, text=True,
                         env={**os.environ, "PYTHONHASHSEED": str(seed)}, stdout=subprocess.PIPE)
    return run.stdout.split("\n")


def main():
    if os.environ.get("PYTHONHASHSEED") != str(SEEDS[0]) and "--texts" not in sys.argv:
        os.environ["PYTHONHASHSEED"] = str(SEEDS[0])
        os.execv(sys.executable, [sys.executable, *sys.argv])
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("merges", "webui", "comfyui"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--texts", action="store_true", help="print the hashes of texts instead")
    parser.add_argument("--show", help="print what is hashed for this prompt instead")
    options = parser.parse_args()
    logging.disable()
    sys.setrecursionlimit(10000)
    lines = gzip.open(options.merges, "rt", encoding="utf-8", newline="\n").read().split("\n")
    hugging_face = tokenizer_golden.reference(lines[1:48895])
    a1111 = A1111(options.webui,
                  lambda t: hugging_face(t, add_special_tokens=False)["input_ids"])
    space = golden.load_comfyui(options.comfyui, hugging_face, EMBEDDINGS)
    comfy = space["tokenizer"].tokenize_with_weights

    def text_of_comfyui(prompt):
        return text_of_chunks([[i, w, joined_rows(rows)]
                               for i, w, rows in map(golden.comfyui_chunk, comfy(prompt))])

    makers = [a1111.text_of_texts, a1111.text_of_chunks, text_of_comfyui]
    if options.show is not None:
        print(*[make(options.show) for make in makers], sep="----\n")
        return
    if options.texts:
        print(*[attempt(a1111.text_of_texts, p) for p in prompts()], sep="\n")
        return
    by_seed = [texts_by_seed(seed) for seed in SEEDS[1:]]
    rows = []
    for i, prompt in enumerate(prompts()):
        hashes = [attempt(make, prompt) for make in makers]
        if len({texts[i] for texts in by_seed} | {hashes[0]}) > 1:
            hashes[:2] = "??"
        rows.append([prompt, " ".join(hashes)])
    failed = sum("-" in row[1] for row in rows)
    unclear = sum("?" in row[1] for row in rows)
    with open(options.out, "w", encoding="utf-8") as out:
        json.dump({"versions": {"transformers": transformers.__version__,
                                "lark": lark.__version__, "tokenizers": tokenizers.__version__},
                   "embeddings": EMBEDDINGS, "steps": 20, "prompts": rows},
                  out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")
    print(f"{len(rows)} prompts; the programs fail on {failed}, A1111 is undecided on {unclear}; "
          f"{options.out.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
