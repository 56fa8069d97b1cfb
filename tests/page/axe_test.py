#!/usr/bin/env python3
"""Checks the pages with axe-core in headless Chromium: WCAG 2.0 to 2.2, levels A and AA.

Usage: axe_test.py PROGRAM AXE [--only TEXT]

AXE is axe.min.js, as the wheel axe-playwright-python of PyPI has it; scripts/serve-test fetches
it. Each function named `show_*` puts a page into a state; all are checked in light and dark, at
three widths. What axe leaves to people to judge fails too, but for contrast where it cannot tell
what is behind a text: that is judged by accessibility.py.
Skipped, with exit code 77, where Chromium or chromedriver is not installed.
"""

import argparse
import pathlib
import sys

import page_test
import training_cases
from access_cases import SIZES, open_all
from accessibility import faint
from picture_files import png
from settings_cases import lora_file

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
# [rule, its text, element, why, whether it is left to people].
RUN = """
  const kinds = ['violations', 'incomplete'];
  return axe.run(document, {runOnly: arguments[0], resultTypes: kinds,
                            rules: {'target-size': {enabled: true}}})
    .then(found => kinds.flatMap(kind => found[kind].flatMap(({id, help, nodes}) =>
      nodes.map(({target, any, all, none}) => [id, help, target.join(' '),
        [...any, ...all, ...none][0]?.message || '', kind === 'incomplete']))));
"""


# ---- states ------------------------------------------------------------------------------------

def show_empty(page):
    page.open()
    page.ready()


def show_pictures(page):
    show_empty(page)
    page.generate("a fox asleep in autumn leaves", n=3)
    page.wait_for_pictures(3)
    page.wait_until_idle()


show_settings = open_all


def show_viewer(page):
    show_pictures(page)
    page.click(".thumb")
    page.wait("return document.querySelector('#view-facts').children.length > 3")


def show_mask(page):
    show_empty(page)
    page.drop_file(png(256, 192), "start.png", "image/png", "[data-drop=input]")
    page.wait("return document.querySelector('#input-sum').textContent.startsWith('256 × 192')")
    page.click("#mask-open")
    page.wait("return document.querySelector('#masker').open")
    page.details("Rectangle")
    page.click("#mask-fill")


def show_picker(page):
    show_empty(page)
    page.wait("return !document.querySelector('#pick').hidden", what="the LoRA")
    page.click("#pick")
    page.wait("return document.querySelectorAll('#picker-list li').length")


def show_keys(page):
    show_empty(page)
    page.click("#help")


def show_question(page):
    show_pictures(page)
    page.run("document.querySelector('.thumb').focus()")
    page.press("Delete")
    page.wait("return document.querySelector('#ask').open")


def show_question_of_a_key(page):
    page.browser.open(page.server.url)
    page.wait("return document.querySelector('#ask').open")


def show_messages(page):
    """One of a fault, and one with a button."""
    show_empty(page)
    page.drop_file("bm90IGEgcGljdHVyZQ==", "notes.png", "image/png")
    page.wait("return document.querySelector('#toasts .bad')")
    page.drop_file(png(64, 64, {"parameters": "a fox\nSteps: 27, Seed: 1, CFG scale: 5"}),
                   "fox.png", "image/png")
    page.wait("return document.querySelectorAll('.toast').length > 1")


def show_queue(page):
    show_empty(page)
    page.generate("fail")
    page.wait("return document.querySelector('#jobs .failed')")
    for prompt in ["a lighthouse in the fog", "the inside of an old observatory", "a red apple"]:
        page.generate(prompt, n=2)
    page.wait("return document.querySelector('#current-image').naturalWidth > 0")


def show_lost_server(page):
    show_pictures(page)
    page.server.kill()
    page.wait("return !document.querySelector('#banner').hidden")


def show_dropping(page):
    show_empty(page)
    page.run("document.querySelector('#dropping').hidden = false")


def show_training(page):
    training_cases.open_training(page)
    page.click("details summary")


def show_training_viewer(page):
    training_cases.open_training(page)
    page.click("#samples button")


def show_no_runs(page):
    page.browser.open(page.server.url + "training")
    page.wait("return document.querySelector('#none').textContent.includes('no runs yet')")


show_picker.server = {"files": {"watercolour.safetensors": lora_file()}}
show_question_of_a_key.server = {"flags": ["--key", str(training_cases.KEY)]}
show_queue.server = {"step_ms": 700}
show_training.server = show_training_viewer.server = {"flags": training_cases.FLAGS}
show_no_runs.server = {"flags": ["--runs", str(training_cases.NONE)]}


# ---- the check ---------------------------------------------------------------------------------

def faults(page, axe):
    """Of the page as it is, in both themes at each width."""
    page.run(axe)
    for width, height in SIZES:
        for theme in ["light", "dark"]:
            page.browser.look(width, height, theme == "dark")
            found = [f"{rule}: {text}: {where}: {why}"
                     for rule, text, where, why, is_open in page.run(RUN, TAGS)
                     if not (is_open and rule == "color-contrast")]
            for fault in [*found, *faint(page.browser)]:
                yield f"{width} px, {theme}: {fault}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the path of ebb")
    parser.add_argument("axe", type=pathlib.Path, help="the path of axe.min.js")
    parser.add_argument("--only", default="", help="the states whose name has this in it")
    args = parser.parse_args()
    args.screens = None
    axe = args.axe.read_text()

    def run(name, show):
        found = []

        def case(page):
            show(page)
            found.extend(faults(page, axe))

        case.server, case.expected = getattr(show, "server", {}), [""]  # the page's tests see them
        broken = page_test.run_case(name, case, args)
        return found + broken

    states = [(name, show) for name, show in globals().items()
              if name.startswith("show_") and args.only in name]
    return page_test.run_all(states, run)


if __name__ == "__main__":
    sys.exit(main())
