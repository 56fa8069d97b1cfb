"""What A1111 and ComfyUI make of prompts, for tests/golden/prompts.json.

    venv/bin/pip install transformers==5.23.0 tokenizers==0.23.3 lark==1.3.1
    venv/bin/python tools/golden/prompt_golden.py --merges ~/.cache/ebb/clip_merges.txt.gz \
        --a1111-parser PATH/prompt_parser.py --a1111-clip PATH/sd_hijack_clip.py \
        --comfyui PATH/sd1_clip.py --out tests/golden/prompts.json

The three files are those of the programs, kept outside of the repository; their functions are run
here with stand-ins for what they import. Recorded: schedules, pieces and weights, chunks.
"""

import argparse
import ast
import gzip
import json
import logging
import math
import os
import random
import re
import sys
import types

import lark
import tokenizers
import transformers

import tokenizer_golden

WORDS = ["cat", "a dog", "red ", " sky,", "very old house, ", "x", "it's", " 4k", "ünïcode ", "雪",
         "AND", " AND ", "BREAK", " BREAK ", "BREAKS", "\n", "masterpiece, best quality, "]
SPECIAL = ["(", ")", "[", "]", ":", ":1.2)", ":.5)", ": 1.3 )", ":-1)", "\\(", "\\)", "\\[", "\\]",
           "\\\\", "\\", "(", ")"]
EMPHASIS = ["normal text", "an (important) word", "(unbalanced", "\\(literal\\]", "(un)(needed)",
            "a (((house:1.3)) [on] a (hill:0.5), sun, (((sky))).", "a (cat:1.3) [dog] ((big))",
            "\\(x\\) BREAK sky", "(((a", "[[a:0.5]", "()", "(:1.2)", "(a:b)", "", "BREAK",
            "a BREAK BREAK b", "(a BREAK b:1.2)", "(a (b):1.5)", "((a:1.5))", "a:1.2)", ")(a)",
            ")((a)", "((a)", "(a:1_0)", "(a: 1e-1 )", "(a:+.5)", "((a:2) b:3)", "a\\", "\\a",
            "(a\u00a0BREAK\u3000b)", "[a](b)[c]", "((a:1.2):1.1)((b:1.1):1.2)", "(0:1)", "(a:1:2)"]
SCHEDULES = ["test", "a [b:3]", "a [b: 3 ]", "a [[[b]]:2]", "[(a:2):3]", "a [b : c : 1] d",
             "a[b:[c:d:2]:1]e", "a [open", "a [b:.5] c", "a [b:1.0] c", "[fe|]male", "[fe|||]male",
             "[a|(b:1.1)]", "[|a]", "[a|[b|c]|[d:e:4]]", "a:b [c:d:5]", "[a:b:0]", "[a:b:-1]",
             "[a:b:99]", "[a:b:1e1]", "[a::4] [b:4]", "[::4]", "[:4]", "[:a:4]", "a | b [c:d:5]",
             "a\\", "a\\\n[b:3]", "[a\\]b:3]", "[a:b]", "[a:b:c]", "[a:b:c:3]", "(a [b:c:3])",
             "([a:b:3]:1.2)", "[(a:b:3]", "[a) b:c:3]", "[a (b] c:d:3]", "[a|b:3]", "(a|b)", "[]",
             "[[a:b:0.2]:c:0.6] d", "[a:[b|c]:0.5]", "[\n:a:3]", "[a:\n3]", "", "a (b:c:d) [e:2]"]
EDITS = ["[{}:{}:{}]", "[{}:{}]", "[{}::{}]", "[{}|{}]", "[{}|{}|{}]", "({})", "({}:1.2)", "[{}]"]
WHEN = ["0.5", "3", " 4", ".25 ", "0.8", "7"]


def definitions(path, names, space):
    """Runs those top-level definitions of the file in `space`."""
    tree = ast.parse(open(path, encoding="utf-8").read())

    def defined(node):
        if isinstance(node, ast.Assign):
            return {t.id for t in node.targets if isinstance(t, ast.Name)}
        return {getattr(node, "name", None)}

    tree.body = [n for n in tree.body if names is None or defined(n) & names]
    exec(compile(tree, path, "exec"), space)  # noqa: S102
    return space


def load_parser(path):
    names = {"schedule_parser", "get_learned_conditioning_prompt_schedules", "re_attention",
             "re_attention_v1", "re_break", "parse_prompt_attention", "re_AND", "re_weight"}
    options = types.SimpleNamespace(prompt_attention="A1111 parser")  # of copies that have others
    return definitions(path, names, {"re": re, "lark": lark, "opts": options})


def load_a1111_chunks(path, parser, tokenizer, backtrack):
    """The class that makes chunks, with a tokenizer and embeddings of ours."""
    options = types.SimpleNamespace(emphasis="Original", comma_padding_backtrack=backtrack,
                                    enable_emphasis=True, use_old_emphasis_implementation=False)
    stub = types.SimpleNamespace(Module=object)
    space = {"math": math, "namedtuple": __import__("collections").namedtuple, "opts": options,
             "torch": types.SimpleNamespace(nn=stub),
             "prompt_parser": types.SimpleNamespace(**parser),
             "sd_hijack": types.SimpleNamespace(StableDiffusionModelHijack=None)}
    names = {"PromptChunk", "PromptChunkFix", "TextConditionalModel",
             "FrozenCLIPEmbedderWithCustomWordsBase"}
    base = definitions(path, names, space)["FrozenCLIPEmbedderWithCustomWordsBase"]

    class Chunks(base):
        def __init__(self, embeddings):
            hijack = types.SimpleNamespace(embedding_db=self)
            self.hijack, self.chunk_length = hijack, 75
            self.id_start, self.id_end, self.comma_token = 49406, 49407, 267
            self.names = sorted((([*tokenizer(name)], name, count)
                                 for name, count in embeddings.items()), key=lambda n: -len(n[0]))

        def __call__(self, text):
            return self.tokenize_line(text)[0]

        def tokenize(self, texts):
            return [tokenizer(t) for t in texts]

        def find_embedding_at_position(self, tokens, at):
            for ids, name, count in self.names:
                if tokens[at:at + len(ids)] == ids:
                    vec = types.SimpleNamespace(shape=(count, 768))
                    return types.SimpleNamespace(vectors=count, vec=vec, name=name), len(ids)
            return None, None

    return Chunks


class Row:
    """Stands for a row of an embedding in ComfyUI's tokens."""

    def __init__(self, name, row):
        self.name, self.row = name, row


class Rows:
    def __init__(self, name, count):
        self.name, self.shape = name, (count, 768)

    def __getitem__(self, row):
        return Row(self.name, row)


def load_comfyui(path, hugging_face, embeddings):
    space = {"re": re, "os": os, "logging": logging, "CLIPTokenizer": None,
             "load_embed": lambda name, *_: Rows(name, embeddings[name])
             if name in embeddings else None}
    names = {"parse_parentheses", "token_weights", "escape_important", "unescape_important",
             "SDTokenizer"}
    definitions(path, names, space)
    made = types.SimpleNamespace(from_pretrained=lambda *_, **__: hugging_face)
    space["tokenizer"] = space["SDTokenizer"](tokenizer_path=".", tokenizer_class=made,
                                              embedding_directory=".")
    return space


def a1111_chunk(chunk):
    spans = [[fix.offset + 1, fix.embedding.vectors, fix.embedding.name] for fix in chunk.fixes]
    return [chunk.tokens, chunk.multipliers, spans]


def comfyui_chunk(pairs):
    ids, spans = [], []
    for at, (token, _) in enumerate(pairs):
        if isinstance(token, Row):
            spans.append([at, token.name, token.row])
        ids.append(0 if isinstance(token, Row) else token)
    return [ids, [w for _, w in pairs], spans]


def packed(chunks):
    """Chunks with runs of equal weights, and without padding."""
    out = []
    for ids, weights, spans in chunks:
        end = max(i for i, t in enumerate(ids) if t != ids[-1]) + 2
        runs = []
        for w in weights:
            if runs and runs[-1][0] == w:
                runs[-1][1] += 1
            else:
                runs.append([w, 1])
        out.append({"ids": " ".join(str(t) for t in ids[:end]), "pad": ids[-1], "weights": runs,
                    "embeddings": spans})
    return out


def body(rng, depth):
    """A random prompt whose brackets all fit."""
    out = ""
    for _ in range(rng.randint(0, 3)):
        if depth == 0 or rng.random() < 0.5:
            out += rng.choice(["a", "b ", " cat, ", "c d", "ü"])
            continue
        form = rng.choice(EDITS)
        parts = [body(rng, depth - 1) for _ in range(form.count("{}"))]
        if form.endswith(":{}]"):
            parts[-1] = rng.choice(WHEN)
        out += form.format(*parts)
    return out


def merged(schedule):
    out = []
    for end, text in schedule:
        if out and out[-1][1] == text:
            out[-1][0] = end
        else:
            out.append([end, text])
    return out


def long_prompts(rng):
    words = "red blue green old new cat dog house sky tree river stone very bright dark".split()
    for length in (74, 75, 76, 77, 100, 149, 150, 151, 200):
        yield " ".join(rng.choices(words, k=length))
        text = ""
        for _ in range(length):
            text += rng.choice(words) + rng.choice([" ", " ", " ", " ", ", ", " (", ") ", ":1.1) "])
        yield text
    for _ in range(12):
        pieces = rng.choices(words, k=rng.randint(60, 90))
        for name in ("myemb", "big one", "embedding:myemb", "embedding:huge", "embedding:none,"):
            pieces.insert(rng.randrange(len(pieces)), name)
        for _ in range(4):
            pieces.insert(rng.randrange(len(pieces)), rng.choice(["BREAK", ",", "(", ":1.4)"]))
        yield " ".join(pieces)


def main():
    parser = argparse.ArgumentParser()
    for name in ("merges", "a1111-parser", "a1111-clip", "comfyui", "out"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    logging.disable()
    sys.setrecursionlimit(10000)
    lines = gzip.open(options.merges, "rt", encoding="utf-8", newline="\n").read().split("\n")
    hugging_face = tokenizer_golden.reference(lines[1:48895])
    rng = random.Random(2)
    embeddings = {"myemb": 3, "big one": 20, "huge": 60}

    def ids(text):
        return hugging_face(text, add_special_tokens=False)["input_ids"]

    a1111 = load_parser(options.a1111_parser)
    comfy = load_comfyui(options.comfyui, hugging_face, embeddings)
    pieces = WORDS + SPECIAL * 2
    emphasis = EMPHASIS + ["".join(rng.choice(pieces) for _ in range(rng.randint(1, 9)))
                           for _ in range(250)]
    schedules = [(s, 10, 0) for s in SCHEDULES]
    schedules += [(s, 8, 12) for s in ("a [b:1.5] c", "a [b:.5] c", "[a:b:14]", "[a:b:3]", "[a|b]")]
    schedules += [(body(rng, 3), rng.choice([7, 20]), 0) for _ in range(150)]
    long = list(long_prompts(rng)) + EMPHASIS

    def a1111_schedule(text, steps, before):
        passes = (before, steps) if before else (steps,)
        return merged(a1111["get_learned_conditioning_prompt_schedules"]([text], *passes)[0])

    def comfyui_pieces(text):
        pieces = comfy["token_weights"](comfy["escape_important"](text), 1.0)
        return [[comfy["unescape_important"](t), w] for t, w in pieces]

    def parts(text):
        found = [a1111["re_weight"].search(p).groups() for p in a1111["re_AND"].split(text)]
        return [[t, float(w) if w is not None else 1.0] for t, w in found]

    chunks = {}
    for backtrack in (20, 0):
        make = load_a1111_chunks(options.a1111_clip, a1111, ids, backtrack)(embeddings)
        chunks[backtrack] = [[t, packed(map(a1111_chunk, make(t)))] for t in long]
    make = comfy["tokenizer"].tokenize_with_weights
    weights = ["a :1.2", "a AND b", "a:1 AND b : -.5 AND  c: 2. ", "SAND AND ANDY", "AND", "a:1:2",
               "(a:1.2)", " a\nAND\nb:.5\n", "a : b", "x:+1", "a:1.2.3", "é AND雪 AND_"]
    result = {
        "versions": {"transformers": transformers.__version__, "lark": lark.__version__,
                     "tokenizers": tokenizers.__version__},
        "embeddings": embeddings,
        "parts": [[t, parts(t)] for t in weights],
        "schedules": [[t, n, b, a1111_schedule(t, n, b)] for t, n, b in schedules],
        "a1111_emphasis": [[t, a1111["parse_prompt_attention"](t)] for t in emphasis],
        "comfyui_emphasis": [[t, comfyui_pieces(t)] for t in emphasis],
        "a1111_chunks": chunks[20],
        "a1111_chunks_no_backtrack": chunks[0][:18],
        "comfyui_chunks": [[t, packed(map(comfyui_chunk, make(t)))] for t in long],
    }
    with open(options.out, "w", encoding="utf-8") as out:
        json.dump(result, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
