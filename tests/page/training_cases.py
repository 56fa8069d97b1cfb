"""The page /training: runs of `ebb train`, the curve of the loss, samples; how often it asks."""

import atexit
import base64
import json
import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from access_cases import SIZES, shoot
from accessibility import FOCUSED, REACHED, faint, unnamed
from picture_files import png

ROOT = pathlib.Path(tempfile.mkdtemp(prefix="ebb_training_"))
atexit.register(shutil.rmtree, ROOT, ignore_errors=True)
RUNS, DATA, NONE = ROOT / "runs", ROOT / "data", ROOT / "none"
KEY = ROOT / "key"


def make_files():
    """A run of thousands of steps that has ended, one with a name that is markup, and pictures to
    train on."""
    for folder in [DATA, NONE, RUNS / "old/samples", RUNS / "<b>one"]:
        folder.mkdir(parents=True)
    KEY.write_text("a-key-of-the-test\n")
    for i in range(32):
        (DATA / f"{i}.png").write_bytes(base64.b64decode(png(16, 16, colour=(8 * i, 99, 200 - i))))
    with open(RUNS / "old/metrics.jsonl", "w") as out:
        for step in range(1, 5001):
            loss = 0.1 + 0.9 / math.sqrt(step) + 0.02 * math.sin(step * 12.9898)
            print(json.dumps({"step": step, "loss": loss, "lr": 1e-3, "grad_norm": 0.5,
                              "images_per_second": 80, "seconds": step / 10}), file=out)
            if step % 500 == 0:
                print(json.dumps({"step": step, "validation/loss": loss + 0.03}), file=out)
        out.write("no json\n{\"step\": 50")
    (RUNS / "old/config.json").write_text(json.dumps(
        {"train": {"steps": 5000, "batch": 8, "model": "tiny", "lr": 1e-3}}))
    (RUNS / "<b>one/metrics.jsonl").write_text('{"step":1,"loss":1.5,"seconds":0.1}\n')
    for i, step in enumerate(range(1000, 6000, 1000)):
        (RUNS / f"old/samples/step-{step:08}.png").write_bytes(
            base64.b64decode(png(64, 64, colour=(50 * i, 120, 250 - 50 * i))))


make_files()
FLAGS = ["--runs", str(RUNS)]


def open_training(page, run="old", wide=True):
    if wide:
        page.browser.natural_size()
    page.browser.open("about:blank")
    page.browser.open(page.server.url + "training")
    page.wait("return document.querySelectorAll('#list button').length", what="the runs")
    page.run("[...document.querySelectorAll('#list button')]"
             ".find(b => b.textContent.includes(arguments[0])).click()", run)
    page.wait("return document.querySelector('#name').textContent === arguments[0]"
              " && document.querySelector('#curve path.loss')", run, what="the run")


def asked(page):
    return page.run("return performance.getEntriesByType('resource')"
                    ".filter(e => e.name.includes('/training')).length")


def test_run_that_has_ended(page):
    open_training(page)
    assert page.text("#progress-text").startswith("finished · step 5,000 of 5,000"), \
        page.text("#progress-text")
    label = page.run("return document.querySelector('#curve').ariaLabel")
    assert "at step 5,000" in label and "Validation loss" in label, label
    texts = page.run("return [...document.querySelectorAll('#curve text')].map(t => t.textContent)")
    assert "Step" in texts and "Loss" in texts and "5,000" in texts, texts
    assert page.count("#curve path.validation") == 1
    points = page.run(
        "return document.querySelector('#curve path.loss').getAttribute('d').split('L').length")
    assert 200 <= points <= 400, points
    assert "One line" in page.text("#notes"), page.text("#notes")
    page.click("details summary")
    assert page.count("#values tr") == 12
    page.click("#log")
    page.wait("return document.querySelector('#curve').textContent.includes('Loss, logarithmic')")
    page.wait("return [...document.querySelectorAll('#samples img')]"
              ".filter(i => i.naturalWidth).length === 5")
    names = page.run("return [...document.querySelectorAll('#samples li')].map(n => n.textContent)")
    assert names[0] == "Step 5,000", names


def test_samples_are_walked_by_keys(page):
    open_training(page)
    page.run("document.querySelector('#samples button').focus()")
    page.press("Enter")
    page.wait("return document.querySelector('#viewer').open")
    assert page.text("#view-title") == "old, step 5,000"
    page.press("Right")
    page.wait("return document.querySelector('#view-title').textContent === 'old, step 4,000'")
    page.press("Escape")
    page.wait("return !document.querySelector('#viewer').open")
    assert page.run("return document.activeElement.closest('#samples') !== null")


def test_hidden_page_asks_for_nothing(page):
    open_training(page)
    before = asked(page)
    time.sleep(4)
    assert asked(page) > before, "it is not refreshed"
    page.run("""
      Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});
      window.away = true;
      document.dispatchEvent(new Event('visibilitychange'));
    """)
    time.sleep(0.5)
    before = asked(page)
    time.sleep(7)
    assert asked(page) == before, "it asks while it is hidden"
    page.run("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    time.sleep(1)
    assert asked(page) > before


def test_names_are_texts(page):
    open_training(page, "<b>one")
    assert page.count("main b b") == 0
    assert page.run("return document.title") == "<b>one · ebb"


def test_server_that_goes_and_comes(page):
    open_training(page)
    page.server.kill()
    page.wait("return document.querySelector('#banner').getClientRects().length", what="the banner")
    page.server.start()
    page.wait("return !document.querySelector('#banner').getClientRects().length", what="the runs")


test_server_that_goes_and_comes.expected = ["ERR_", "Failed to load resource"]


def test_no_folders_and_no_runs(page):
    page.browser.open(page.server.url + "training")
    page.wait("return document.querySelector('#none').textContent.includes('no runs yet')")
    assert not page.shown("#run")


test_no_folders_and_no_runs.server = {"flags": ["--runs", str(NONE)]}


def test_without_folders_it_says_how(page):
    page.open()
    page.ready()
    page.click("#training")
    page.wait("return document.querySelector('#none')?.textContent.includes('--runs FOLDER')")


def test_key_goes_along(page):
    page.open("#token=" + KEY.read_text().strip())
    page.ready()
    page.click("#training")
    page.wait("return document.querySelectorAll('#list button').length", what="the runs")
    assert page.run("return location.hash") == "" and not page.shown("#ask")
    page.wait("return document.querySelectorAll('#samples img, #run').length")


test_key_goes_along.server = {"flags": [*FLAGS, "--key", str(KEY)]}


def test_training_needs_a_key(page):
    page.browser.open(page.server.url + "training")
    page.wait("return document.querySelector('#ask').open", what="the question")
    page.type("#ask-value", KEY.read_text().strip())
    page.press("Enter")
    page.wait("return document.querySelectorAll('#list button').length", what="the runs")


test_training_needs_a_key.server = {"flags": [*FLAGS, "--key", str(KEY)]}
test_training_needs_a_key.expected = ["401"]


def test_a_real_run_is_followed(page):
    """From its first step to its end, with its pictures; of steps for some seconds at least."""
    out = RUNS / "real"
    command = [page.server.command[0], "train", "--data", DATA, "--model", "tiny", "--out", out,
               "--steps", "900", "--batch", "2", "--sample-every", "300", "--log-every", "5",
               "--device", "cpu", "--validation", "off"]
    with open(ROOT / "log", "wb") as log:
        training = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log,
                                    env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    try:
        page.browser.open(page.server.url + "training")
        page.wait("return document.querySelector('#list .running')?.textContent === 'real'",
                  seconds=120, what="the run")
        page.wait("return document.querySelector('#name').textContent === 'real'")
        page.wait("return document.querySelector('#progress-text').textContent"
                  ".startsWith('running · step')")
        page.wait("return document.querySelector('#facts').textContent.includes('Left')",
                  seconds=60, what="what is left")
        page.wait("return document.querySelector('#samples img')?.naturalWidth > 0", seconds=120,
                  what="a sample")
        page.wait("return document.querySelector('#progress-text').textContent"
                  ".startsWith('finished · step 900 of 900')", seconds=240, what="the end")
        page.wait("return document.querySelectorAll('#samples li').length === 3")
        assert page.text("#said") == "real is finished", page.text("#said")
        assert training.wait(60) == 0
    finally:
        training.kill()
        training.wait()
        shutil.rmtree(out, ignore_errors=True)


def test_access_to_training(page):
    open_training(page)
    page.click("details summary")
    found = list(unnamed(page.browser))
    for dark in ["light", "dark"]:
        page.browser.devtools("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": dark}])
        found += [f"{dark}: {fault}" for fault in faint(page.browser)]
    assert not found, found
    wanted = page.run(REACHED)
    page.run("document.activeElement.blur(); window.scrollTo(0, 0);"
             "document.body.tabIndex = -1; document.body.focus()")
    reached = []
    for _ in range(len(wanted) + 3):
        page.press("Tab")
        name, visible = page.run(FOCUSED)
        if not name or (reached and name == reached[0]):
            break
        reached.append(name)
        assert visible, name
    assert [n for n in reached if n in wanted] == wanted, (reached, wanted)
    page.click("#samples button")
    assert not list(unnamed(page.browser))


def test_training_fits_every_width(page):
    open_training(page)
    for width, height in SIZES:
        page.browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                              deviceScaleFactor=1, mobile=width < 500)
        time.sleep(0.3)
        wide = page.run("return document.documentElement.scrollWidth")
        assert wide <= width, (wide, width)


def test_screenshots_of_training(page):
    open_training(page)
    page.wait("return [...document.querySelectorAll('#samples img')].every(i => i.naturalWidth)")
    shoot(page, "training")


test_without_folders_it_says_how.server = {}

for name, case in list(globals().items()):
    if name.startswith("test_") and not hasattr(case, "server"):
        case.server = {"flags": FLAGS}
