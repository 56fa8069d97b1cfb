#!/usr/bin/env python3
"""Makes docs/server-WIDTH.webp: the page with pictures of the model in the box, at three widths, in
light and, beside it, in dark.

Usage: screens.py PROGRAM FOLDER    (as tests/page/screens.py build/ebb docs)
"""

import argparse
import base64
import pathlib
import sys

import page_test
from webdriver import Browser, programs
from serve_program import ServeProgram  # which webdriver finds

SIZES = [(1440, 900), (768, 1024), (360, 1500)]
PROMPTS = ["a red apple", "a yellow banana on a green background", "a blue fish", "a sunflower",
           "a green tree", "a cat", "a strawberry", "a lighthouse"]
# Pictures beside each other as one, from and to base64.
JOIN = """
  return Promise.all(arguments[0].map(text => createImageBitmap(new Blob(
    [Uint8Array.from(atob(text), c => c.charCodeAt(0))])))).then(images => {
    const c = document.createElement('canvas');
    [c.width, c.height] = [images.reduce((sum, i) => sum + i.width, 0), images[0].height];
    images.reduce((x, i) => (c.getContext('2d').drawImage(i, x, 0), x + i.width), 0);
    return c.toDataURL('image/webp', 0.82).split(',')[1];
  });
"""


def make_pictures(page):
    page.open()
    page.ready()
    page.wait("return document.querySelector('#model').value", what="the model")
    for seed, prompt in enumerate(PROMPTS, 7):
        page.set("#f-seed", str(seed))
        page.generate(prompt)
    page.wait_for_pictures(len(PROMPTS), seconds=300)
    page.wait_until_idle()
    page.wait("return [...document.querySelectorAll('.thumb img')].every(i => i.naturalWidth)")
    page.run("document.activeElement.blur()")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the path of ebb")
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    if None in programs():
        print("screens.py: chromedriver or chromium is not installed")
        return 1
    browser = Browser()
    try:
        with ServeProgram(args.program, engine="models") as server:
            page = page_test.Page(browser, server, None)
            make_pictures(page)
            page.wait("return !document.querySelector('#memory').hidden", what="the memory")
            for width, height in SIZES:
                shots = [browser.picture(width, height, dark) for dark in [False, True]]
                (args.folder / f"server-{width}.webp").write_bytes(
                    base64.b64decode(browser.run(JOIN, shots)))
    finally:
        browser.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
