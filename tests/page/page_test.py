#!/usr/bin/env python3
"""Tests the page in headless Chromium against `ebb serve --engine fake`.

Usage: page_test.py PROGRAM [--screens FOLDER] [--only TEXT]

Cases are the functions named `test_*` in the files *_cases.py of this folder. A case is called
with a Page, whose server is fresh; its attribute `server` says flags, the engine and the time of a
step.
Skipped, with exit code 77, where Chromium or chromedriver is not installed
(Debian: apt-get install chromium-headless-shell chromium-driver).
"""

import argparse
import importlib
import pathlib
import sys
import time
import traceback
from urllib.parse import urlparse

from webdriver import Browser, programs
from serve_program import ServeProgram  # which webdriver finds

SKIPPED = 77
# Keeps what the page posts, so that cases can look at it.
RECORDER = """
{
  const real = window.fetch;
  window.posted = [];
  window.fetch = (url, options = {}) => {
    if (options.method === 'POST' && typeof options.body === 'string')
      window.posted.push({url: String(url), body: JSON.parse(options.body), text: options.body});
    return real(url, options);
  };
}
"""


class Page:
    """The page of one server in a browser, with the steps that cases share."""

    def __init__(self, browser, server, screens):
        self.browser, self.server, self.screens = browser, server, screens
        self.run, self.wait, self.click = browser.run, browser.wait, browser.click
        self.type, self.press = browser.type, browser.press
        browser.devtools("Page.enable")
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=RECORDER)

    def open(self, fragment=""):
        self.browser.open("about:blank")
        self.browser.open(self.server.url + fragment)
        self.wait("return document.querySelector('#presets button') && !window.failed")

    def ready(self):
        """Waits until the event stream has begun."""
        self.wait("return !document.getElementById('model').textContent.startsWith('Looking')",
                  what="the catalogue")

    def shown(self, selector):
        return self.run("const e = document.querySelector(arguments[0]);"
                        "return !!e && e.getClientRects().length > 0", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent", selector)

    def value(self, selector):
        return self.run("return document.querySelector(arguments[0]).value", selector)

    def set(self, selector, value):
        """A value as a user would set it, also of what cannot be typed into."""
        self.run("const e = document.querySelector(arguments[0]);"
                 "if (e.type === 'checkbox') e.checked = arguments[1]; else e.value = arguments[1];"
                 "for (const t of ['input', 'change'])"
                 "  e.dispatchEvent(new Event(t, {bubbles: true}));", selector, value)

    def details(self, name):
        """Opens the group of settings of which the summary begins so."""
        self.run("for (const d of document.querySelectorAll('details'))"
                 "  if (d.textContent.trim().startsWith(arguments[0])) d.open = true;", name)

    def count(self, selector):
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def posted(self, path="/jobs"):
        return self.run("return window.posted.filter(p => p.url.endsWith(arguments[0]))", path)

    def generate(self, prompt, n=1):
        """Queues a picture, and waits until the server has it."""
        self.set("#prompt", prompt)
        self.set("#count", n)
        before = len(self.posted())
        self.press("Control", "Enter")
        self.wait("return window.posted.filter(p => p.url.endsWith('/jobs')).length > arguments[0]",
                  before)

    def wait_for_pictures(self, number, seconds=30):
        self.wait("return document.querySelectorAll('.thumb').length >= arguments[0]", number,
                  seconds=seconds, what=f"{number} pictures")

    def wait_until_idle(self, seconds=30):
        self.wait("return document.getElementById('generate').textContent === 'Generate'",
                  seconds=seconds, what="an empty queue")

    def drop_file(self, data, name, kind, zone=""):
        """Drops the bytes of a base64 text as a file on the page, or on a zone of it."""
        self.run("""
          const bytes = Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], arguments[1], {type: arguments[2]}));
          const target = arguments[3] ? document.querySelector(arguments[3]) : document.body;
          for (const type of ['dragenter', 'dragover', 'drop'])
            target.dispatchEvent(new DragEvent(type,
              {bubbles: true, cancelable: true, dataTransfer: data}));
        """, data, name, kind, zone)


def complaints(browser, url, expected):
    """What the browser says in its console, and requests to other places than the server."""
    for entry in browser.log("browser"):
        if entry["level"] == "SEVERE" and not any(text in entry["message"] for text in expected):
            yield f"console: {entry['message']}"
    ours = urlparse(url).netloc
    names = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    for name in names:
        if name.startswith("http") and urlparse(name).netloc != ours:
            yield f"a request to {name}"


def cases(only):
    for path in sorted(pathlib.Path(__file__).parent.glob("*_cases.py")):
        module = importlib.import_module(path.stem)
        for name, case in list(vars(module).items()):
            if name.startswith("test_") and only in f"{path.stem}.{name}":
                yield name, case


def run_case(name, case, args):
    flags, expected = getattr(case, "server", {}), getattr(case, "expected", [])
    browser = Browser()
    try:
        with ServeProgram(args.program, *flags.get("flags", []),
                          engine=flags.get("engine", "fake"), step_ms=flags.get("step_ms", 40),
                          files=flags.get("files")) as server:
            try:
                case(Page(browser, server, args.screens))
                return list(complaints(browser, server.url, expected))
            except Exception as e:
                if args.screens:
                    browser.screenshot(args.screens / f"failed_{name}.png", 1280, 900)
                place = traceback.extract_tb(e.__traceback__)
                at = [f for f in place if f.filename.endswith("_cases.py")][-1:]
                return [f"{e} ({pathlib.Path(f.filename).name}:{f.lineno})" for f in at] or [str(e)]
    finally:
        browser.quit()


def run_all(named_cases, run):
    """Runs cases and prints what each found; the exit code."""
    if None in programs():
        print("skipped: chromedriver or chromium is not installed "
              "(apt-get install chromium-headless-shell chromium-driver)")
        return SKIPPED
    failed = 0
    for name, case in named_cases:
        begin = time.monotonic()
        found = run(name, case)
        failed += bool(found)
        print(f"{'FAILED' if found else 'ok    '} {name} ({time.monotonic() - begin:.1f} s)",
              *(f"\n       {fault}" for fault in found), flush=True)
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the path of ebb")
    parser.add_argument("--screens", type=pathlib.Path, help="a folder for pictures of the page")
    parser.add_argument("--only", default="", help="the cases whose name has this in it")
    args = parser.parse_args()
    if args.screens:
        args.screens.mkdir(parents=True, exist_ok=True)
    return run_all(cases(args.only), lambda name, case: run_case(name, case, args))


if __name__ == "__main__":
    sys.exit(main())
