#!/usr/bin/env python3
"""Judges the model in the box by numbers: names recognised, colours obeyed, distances, neighbours.

  judge.py prompts DATA OUT            prompts.jsonl: 500 trained names, 200 unseen pairs
  judge.py train DATA JUDGE.pt         a classifier of names, of the real pictures (needs PyTorch);
                                       tested on drawings that it never saw, where a name has two
  judge.py sample PROMPTS OUT -- EBB   pictures of all prompts; EBB: a command line of ebb generate
  judge.py score DATA JUDGE.pt OUT     report.json and report.html of the samples in OUT
"""

import argparse
import base64
import io
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
import colours  # noqa: E402
import renditions  # noqa: E402

SIDE = 64  # pixels that the classifier sees
TEST = "-1.webp"  # renditions of the drawings that it is trained on, for a second test


def lines_of(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def nouns_of(data):
    """{subject: noun}, of subjects with short names that are pictures of something."""
    out = {}
    for s in lines_of(data / "subjects.jsonl"):
        noun = renditions.noun_of(s["names"][0])
        if s["held"] or len(noun.split()) > 2 or noun.startswith(("flag of", "keycap")):
            continue
        out[s["key"]] = noun
    return out


def test_subjects(nouns):
    """One of the subjects of each noun that has several: no rendition of it is trained on."""
    of = {}
    for key in sorted(nouns):
        of.setdefault(nouns[key], []).append(key)
    r = random.Random(17)
    return {r.choice(keys) for _, keys in sorted(of.items()) if len(keys) > 1}


def some(r, rows, count, what):
    if len(rows) < count:
        print(f"judge: only {len(rows)} of {count} {what} are there", file=sys.stderr)
    return r.sample(rows, min(count, len(rows)))


def write_prompts(args):
    r = random.Random(17)
    data, nouns = args.data, nouns_of(args.data)
    names = sorted({s["names"][0] for s in lines_of(data / "subjects.jsonl") if s["key"] in nouns})
    pairs = (data / "held-out-pairs.txt").read_text().split("\n")[:-1]
    rows = [{"kind": "name", "prompt": renditions.with_article(n), "noun": renditions.noun_of(n)}
            for n in some(r, names, 500, "names")]
    for pair in some(r, pairs, 200, "pairs"):
        words = pair.removeprefix("an ").removeprefix("a ").split()
        rows.append({"kind": "pair", "prompt": pair, "colour": words[0],
                     "noun": " ".join(words[1:])})
    for i, row in enumerate(rows):
        row["file"] = f"{i:04d}.png"
    args.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{len(rows)} prompts  {args.out}")


def sample(args):
    rows = [r for r in lines_of(args.prompts) if not (args.out / r["file"]).exists()]
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.time()
    threads = max((os.cpu_count() or 1) // args.jobs, 1)

    def one(row):
        made = subprocess.run([*args.ebb, "--threads", str(threads), "--prompt", row["prompt"],
                               "--seed", "1", "--out", str(args.out / row["file"])],
                              capture_output=True, text=True)
        return f"{row['prompt']}: {made.stderr.strip()}" if made.returncode else ""

    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            for i, error in enumerate(pool.map(one, rows)):
                if error:
                    sys.exit(f"\njudge: {error}")
                left = (time.time() - start) / (i + 1) * (len(rows) - i - 1)
                print(f"\r{i + 1} of {len(rows)}, {left:.0f} s left ", end="", file=sys.stderr)
        except BaseException:  # an interrupt, too: what has not begun is not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    print(file=sys.stderr)
    (args.out / "prompts.jsonl").write_text(args.prompts.read_text())


# ---- the classifier ------------------------------------------------------------------------

def pixels(path, side=SIDE):
    picture = Image.open(path).convert("RGB")
    return np.asarray(picture.resize((side, side), Image.Resampling.BOX))


def network(classes):
    from torch import nn

    def conv(a, b):
        return nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()

    def block(a, b):
        return nn.Sequential(*conv(a, b), *conv(b, b), nn.MaxPool2d(2))
    features = nn.Sequential(block(3, 32), block(32, 64), block(64, 128), block(128, 192),
                             nn.Flatten(), nn.Dropout(0.2), nn.Linear(192 * 16, 256), nn.ReLU())
    return nn.Sequential(features, nn.Linear(256, classes))


def augmented(x, torch):
    """Shifted by up to 6 pixels, sometimes with its colour channels in another order."""
    pad = torch.nn.functional.pad(x, (6, 6, 6, 6), mode="replicate")
    i, j = torch.randint(0, 13, (2,)).tolist()
    x = pad[:, :, i:i + SIDE, j:j + SIDE]
    if torch.rand(()) < 0.3:
        x = x[:, torch.randperm(3)]
    return x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1, device=x.device))


def train(args):
    import torch
    torch.manual_seed(17)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    nouns = nouns_of(args.data)
    names = sorted(set(nouns.values()))
    rows = [m for m in lines_of(args.data / "train/metadata.jsonl") if m["subject"] in nouns]
    x = torch.tensor(np.stack([pixels(args.data / "train" / m["file_name"]) for m in rows]))
    y = torch.tensor([names.index(nouns[m["subject"]]) for m in rows])
    unseen = test_subjects(nouns)
    of_unseen = torch.tensor([m["subject"] in unseen for m in rows])
    of_seen = torch.tensor([m["file_name"].endswith(TEST) for m in rows]) & ~of_unseen
    tests = {"unseen drawings": of_unseen, "other renditions of trained drawings": of_seen}
    print(f"{len(names)} names, {len(rows)} pictures; for tests "
          + ", ".join(f"{int(t.sum())} {what}" for what, t in tests.items())
          + f"; {len(unseen)} names have a second drawing")
    net = network(len(names)).to(device)
    xs, ys = x[~of_unseen & ~of_seen], y[~of_unseen & ~of_seen]
    if len(xs) < 128:
        sys.exit(f"judge: the classifier needs at least 128 pictures to train on ({len(xs)})")
    batch, total = 128, args.epochs * (len(xs) // 128)
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.02)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=total)
    start, step = time.time(), 0
    for epoch in range(args.epochs):
        net.train()
        for at in torch.randperm(len(xs))[:len(xs) // batch * batch].split(batch):
            picture = xs[at].to(device).permute(0, 3, 1, 2).float() / 127.5 - 1
            loss = torch.nn.functional.cross_entropy(
                net(augmented(picture, torch)), ys[at].to(device), label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
            step += 1
        right = {what: share_right(net, x[t], y[t]) for what, t in tests.items()}
        said = [f"{what} {share:.1%}" for what, share in right.items() if share is not None]
        print(f"epoch {epoch + 1} of {args.epochs}: loss {loss.item():.2f}, in the first five "
              f"{', '.join(said)}, {(time.time() - start) / step * (total - step):.0f} s left",
              flush=True)
    torch.save({"names": names, "weights": net.state_dict(), "top5": right}, args.judge)


def outputs(net, x):
    import torch
    net.eval()
    device = next(net.parameters()).device
    out = []
    with torch.no_grad():
        for part in x.split(256):
            features = net[0](part.to(device).permute(0, 3, 1, 2).float() / 127.5 - 1)
            out.append((features.cpu(), net[1](features).cpu()))
    return tuple(torch.cat(p) for p in zip(*out))


def first_five(guesses):
    return guesses.topk(min(5, guesses.shape[1]), 1).indices


def share_right(net, x, y):
    """Of which the name is among the first five guesses; None: there are no pictures."""
    if not len(x):
        return None
    first = first_five(outputs(net, x)[1])
    return (first == y[:, None]).any(1).float().mean().item()


# ---- scores --------------------------------------------------------------------------------

def hue_is(rgb, word):
    """Whether most of what is coloured in front of the background has that hue."""
    edge = np.concatenate([rgb[:3].reshape(-1, 3), rgb[-3:].reshape(-1, 3),
                           rgb[:, :3].reshape(-1, 3), rgb[:, -3:].reshape(-1, 3)])
    behind = np.median(edge, 0)
    front = np.abs(rgb.astype(float) - behind).max(-1) > 40
    hue, saturation, value = colours.hsv(rgb.astype(np.float32) / 255)
    front &= (saturation > 0.2) & (value > 0.2)
    if front.sum() < 50:
        return False
    near = {w: colours.distance(hue[front], colours.WORDS[w][0]) for w in colours.HUES}
    first = np.stack([near[w] for w in colours.HUES]).argmin(0)
    return np.bincount(first, minlength=len(colours.HUES)).argmax() == colours.HUES.index(word)


def frechet(a, b):
    def moments(x):
        return x.mean(0), np.cov(x.T)
    (m1, c1), (m2, c2) = moments(a.astype(np.float64)), moments(b.astype(np.float64))
    root = np.sqrt(np.clip(np.linalg.eigvals(c1 @ c2).real, 0, None)).sum()
    return float(((m1 - m2) ** 2).sum() + np.trace(c1) + np.trace(c2) - 2 * root)


def caption_distance(samples, means):
    """Mean squared distance of samples' features to those of the pictures of their names."""
    return float(((samples - means) ** 2).sum(1).mean())


def data_uri(path):
    out = io.BytesIO()
    Image.open(path).convert("RGB").save(out, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(out.getvalue()).decode()


def neighbours_html(rows, out, train_rows, data, nearest):
    cells = "".join(
        f'<figure><img src="{data_uri(out / r["file"])}"><img src="{data_uri(data / "train" / t)}">'
        f'<figcaption>{r["prompt"]}</figcaption></figure>'
        for r, t in zip(rows, (train_rows[i]["file_name"] for i in nearest)))
    (out / "report.html").write_text(
        "<!doctype html><meta charset=utf-8><title>Samples and training pictures</title>"
        "<style>figure{display:inline-block;margin:4px;font:12px sans-serif}</style>"
        f"<h1>Samples (left) and the nearest training pictures (right)</h1>{cells}")


def score(args):
    import torch
    kept = torch.load(args.judge, map_location="cpu")
    net = network(len(kept["names"]))
    net.load_state_dict(kept["weights"])
    rows = lines_of(args.out / "prompts.jsonl")
    x = torch.tensor(np.stack([pixels(args.out / r["file"]) for r in rows]))
    features, guesses = outputs(net, x)
    names = [i for i, r in enumerate(rows) if r["kind"] == "name"]
    index = {n: i for i, n in enumerate(kept["names"])}
    first = first_five(guesses).tolist()
    hit = [index.get(rows[i]["noun"], -1) in first[i] for i in names]
    pairs = [r for r in rows if r["kind"] == "pair"]
    obeyed = [bool(hue_is(pixels(args.out / r["file"], 128), r["colour"])) for r in pairs]
    nouns = nouns_of(args.data)
    real = [m for m in lines_of(args.data / "train/metadata.jsonl") if m["subject"] in nouns]
    xr = torch.tensor(np.stack([pixels(args.data / "train" / m["file_name"]) for m in real]))
    fr = outputs(net, xr)[0].numpy()
    held = [m["file_name"] for m in lines_of(args.data / "held-out/metadata.jsonl")]
    fh = outputs(net, torch.tensor(np.stack(
        [pixels(args.data / "held-out" / name) for name in held])))[0].numpy()
    fs = features.numpy()
    by_noun = {}
    for m, f in zip(real, fr):
        by_noun.setdefault(nouns[m["subject"]], []).append(f)
    means = np.stack([np.mean(by_noun[rows[i]["noun"]], 0) for i in names])
    shuffled = means[np.random.default_rng(17).permutation(len(means))]
    shown = names[::max(len(names) // 50, 1)][:50]
    flat, flat_real = x[shown].float().flatten(1), xr.float().flatten(1)
    neighbours_html([rows[i] for i in shown], args.out, real, args.data,
                    torch.cdist(flat, flat_real).argmin(1).tolist())
    report = {"judge_top5": kept["top5"], "names_recognised": float(np.mean(hit)),
              "colours_obeyed": float(np.mean(obeyed)),
              # to the pictures of subjects that were never trained on; beside it what the training
              # pictures have themselves
              "frechet_held_out": frechet(fs[names], fh),
              "frechet_held_out_of_training_pictures": frechet(fr, fh),
              "caption_distance": caption_distance(fs[names], means),
              "caption_distance_shuffled": caption_distance(fs[names], shuffled),
              "names": len(names), "pairs": len(pairs)}
    (args.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(name, run, *paths):
        c = commands.add_parser(name)
        c.set_defaults(run=run)
        for p in paths:
            c.add_argument(p, type=Path)
        return c
    command("prompts", write_prompts, "data", "out")
    command("train", train, "data", "judge").add_argument("--epochs", type=int, default=14)
    s = command("sample", sample, "prompts", "out")
    s.add_argument("--jobs", type=int, default=os.cpu_count())
    s.add_argument("ebb", nargs="+", help="-- ebb generate --model FILE ...")
    command("score", score, "data", "judge", "out")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
