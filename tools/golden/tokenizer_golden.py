"""Tokens of CLIP's tokenizer for tests/golden/clip_tokenizer.json.

    venv/bin/pip install transformers==5.23.0 tokenizers==0.23.3
    venv/bin/python tools/golden/tokenizer_golden.py --merges ~/.cache/ebb/clip_merges.txt.gz \
        --out tests/golden/clip_tokenizer.json

The merges are those that `scripts/setup` fetches. Characters are those assigned in Unicode 14, but
for combining marks, which are of Unicode 3.2: the tokenizers library normalises by a table that
does not know the order of those that Unicode 13 added.
"""

import argparse
import gzip
import json
import random
import sys
import unicodedata

import tokenizers
import transformers

SENTENCES = """
a photo of an astronaut riding a horse on mars, 4k, trending on artstation
masterpiece, best quality, 1girl, solo, (smile:1.2), looking at viewer, <lora:x:0.8>
It's what they'd've said: we're, I'm, you'll, he'd, can't -- don't! SHE'S, WE'RE, I'LL
The price is $1,234.56 (or 1.234,56 €) -- 50% off; 3x4=12, 10^6, 1/2, #1 @home
e-mail: someone@example.com, https://example.com/a?b=c&d=%20#frag
Ein schöner Tag, Straße, ÄÖÜ, GROẞE ẞ, weiß, Füße
L'été à la plage, où l'œuvre naît; ÇA VA? «Très bien»
El niño comió piñas; ¿qué? ¡Olé! CORAZÓN
Zażółć gęślą jaźń, ŁÓDŹ
Příliš žluťoučký kůň úpěl ďábelské ódy
Árvíztűrő tükörfúrógép
İstanbul'da ILIK ışık, ığdır
Þórður ætlar að fara, ÐAÐ
Широкая электрификация южных губерний, ЁЛКА
Україна: їжак, ґанок, Є
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, ΟΔΥΣΣΕΥΣ, ΣΊΣΥΦΟΣ
שלום עולם, מה שלומך?
السلام عليكم، كيف حالك؟ ١٢٣
سلام دنیا، می‌خواهم ۴۵۶
नमस्ते दुनिया, कैसे हैं आप? ०१२
বাংলা ভাষা, தமிழ் மொழி, తెలుగు, ಕನ್ನಡ, മലയാളം
สวัสดีชาวโลก ๑๒๓
ສະບາຍດີ, မြန်မာ, ភាសាខ្មែរ
こんにちは世界、ｶﾀｶﾅとカタカナ。がぎぐ
你好，世界！一二三ＡＢＣ１２３
안녕하세요 세계, 각각
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ, ꭰꭱ
ქართული ᲥᲐᲠᲗᲣᲚᲘ, Հայերեն
አማርኛ, ⵜⴰⵎⴰⵣⵉⵖⵜ, 𞤀𞤣𞤤𞤢𞤥
𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐐀𐐁𐐨, Ⅷ ⅷ ① ½ ² ₃ Ⓐ
👩‍👩‍👧‍👦 family 👍🏽 🇩🇪🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️ ☺︎ 🫠 1️⃣
‘curly’ “quotes” it’s – — … ‽ ⸘ ・ ※ ™ © ®
ﬁ ﬂ ﬀ Ǆ ǅ ǆ ŉ ſ K Å Ω ℵ µ μ
<|startoftext|>inside<|endoftext|> twice<|endoftext|><|endoftext|>
<|STARTOFTEXT|> x<|EndOfText|>y!<|ENDOFTEXT|>! <|endoftext <|endoftext|
x<|İSTARTOFTEXT|> <|ſtartoftext|>
!!! !? ! wow! !!great!! no!yes
_under_score_ CamelCase snake_case kebab-case a.b.c ...a ..'s ''s 's's '' 'S 'T 'Re
((((nested)))) [[[x]]] {a|b} \\( \\) \\[ \\] <>
""".strip().split("\n")

WORDS = ("a the of cat dog photo painting girl boy castle mountain river sunset dramatic lighting "
         "cinematic highly detailed octane render unreal engine intricate portrait oil canvas "
         "artgerm greg rutkowski wlop hyperrealism supercalifragilisticexpialidocious xyzzy qwrtp "
         "8k uhd 35mm f/1.8 bokeh NSFW 1girl 2boys v1.5 sd-xl").split()
GLUE = [" ", "  ", ", ", ",", ". ", "\n", "\t", " - ", "!", "?", ":", ";", "'", "\"", "(", ")", "/",
        "'s ", "\r\n", "...", " & ", "\u00a0", "\u3000", "_", "|", "0", "42", " 007 "]


def byte_symbols():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


def reference(lines, **options):
    merges = [tuple(line.split()) for line in lines]
    symbols = byte_symbols()
    tokens = symbols + [s + "</w>" for s in symbols] + [a + b for a, b in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=merges, **options)


def assigned():
    old = unicodedata.ucd_3_2_0.category
    return [c for c in map(chr, range(sys.maxunicode + 1))
            if unicodedata.category(c) not in ("Cn", "Cs", "Co")
            and (unicodedata.combining(c) == 0 or old(c) != "Cn")]


def strings(rng):
    """(text, bytes or None): bytes where the text is what invalid UTF-8 is read as."""
    yield from SENTENCES
    yield from (s.upper() for s in SENTENCES)
    yield from (unicodedata.normalize("NFD", s) for s in SENTENCES)
    yield from (unicodedata.normalize("NFKD", s) for s in SENTENCES[:30])
    yield from ["", " ", "\n\t ", "\0", "a\0b", "\ufeffbom", "a" * 300, "ab" * 200, "!" * 100,
                "1" * 70, "\u0301" * 40, "e" + "\u0301\u0316" * 30, "가" * 40, "🙂" * 30, "\ufffd"]
    characters = assigned()
    cased = [c for c in characters if c.lower() != c or c.upper() != c]
    for at in range(0, len(cased), 24):
        yield " ".join(cased[at:at + 24])
    for c in characters:  # all that regular expressions may take for white space or controls
        if unicodedata.category(c) in ("Zs", "Zl", "Zp", "Cc", "Cf"):
            yield f"a{c}b{c}{c}1"
    for _ in range(660):
        yield "".join(rng.choice(WORDS) + rng.choice(GLUE) for _ in range(rng.randint(1, 6)))
    for _ in range(660):
        yield "".join(rng.choice(characters) for _ in range(rng.randint(1, 6)))
    marks = [c for c in characters if unicodedata.category(c).startswith("M")]
    letters = [c for c in characters if unicodedata.category(c) in ("Lu", "Ll", "Lo")
               and ord(c) < 0x3000]
    for _ in range(250):
        yield "".join(rng.choice(letters) + "".join(rng.choices(marks, k=rng.randint(0, 3)))
                      for _ in range(rng.randint(1, 3)))


def broken_bytes(rng):
    yield from [b"\x80", b"a\xffb", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98",
                b"\xf0\x9f\x98\xe2\x82\xac", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
                b"\xf5\x80\x80\x80", b"\xe0\x80\xaf", b"cat \xe9t\xe9 dog"]
    for _ in range(60):
        text = bytearray("".join(rng.choices("aé€😀 !", k=6)).encode())
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        yield bytes(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--merges", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    lines = gzip.open(options.merges, "rt", encoding="utf-8", newline="\n").read().split("\n")
    plain = reference(lines[1:48895])
    exclamation = reference(lines[1:48895], pad_token="!")
    rng = random.Random(1)

    def ids(tokenizer, text):
        found = tokenizer(text, add_special_tokens=False)["input_ids"]
        return " ".join(str(i) for i in found)

    cases = {}
    for text in strings(rng):
        cases[text] = ids(plain, text)
    broken = [[b.hex(), ids(plain, b.decode("utf-8", "replace"))] for b in broken_bytes(rng)]
    with_pad = {t: ids(exclamation, t) for t in cases if "!" in t and len(t) < 60}
    result = {
        "versions": {"transformers": transformers.__version__,
                     "tokenizers": tokenizers.__version__,
                     "unicodedata": unicodedata.unidata_version},
        "texts": list(cases.items()),
        "bytes": broken,
        "pad_is_exclamation": list(with_pad.items())[:80],
    }
    with open(options.out, "w", encoding="utf-8") as out:
        json.dump(result, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")
    print(len(cases), "texts,", len(broken), "byte strings")


if __name__ == "__main__":
    main()
