"""A client of the W3C WebDriver protocol (JSON over HTTP), as much as the page's tests need."""

import base64
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from serve_program import free_port  # noqa: E402

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Control": "\ue009",
        "Shift": "\ue008", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014",
        "Down": "\ue015", "End": "\ue010", "Home": "\ue011", "Delete": "\ue017", "Space": " "}


class WebDriverError(Exception):
    pass


def programs():
    """The paths of (chromedriver, the browser), None for what is not installed."""
    browser = next(filter(None, map(shutil.which, ["chromium-headless-shell", "chromium"])), None)
    return shutil.which("chromedriver"), browser


class Browser:
    """One window of headless Chromium that can reach 127.0.0.1 alone."""

    def __init__(self):
        driver, browser = programs()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.session = ""
        options = {
            "binary": browser,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--window-size=1280,900", "--force-color-profile=srgb",
                     "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]}
        wanted = {"goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        for _ in range(100):
            try:
                made = self.call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        else:
            self.quit()
            raise WebDriverError("chromedriver does not answer")
        self.session = "/" + made["sessionId"]

    def call(self, method, path, body=None):
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(f"{self.url}/session{self.session}{path}", data,
                                         {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as e:
            found = json.load(e)["value"]
            raise WebDriverError(f"{found['error']}: {found['message'].splitlines()[0]}") from None

    def quit(self):
        """Ends the driver and all processes of the browser, which are in its group."""
        try:
            self.call("DELETE", "")
        except (OSError, WebDriverError):
            pass  # it is killed below
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    # ---- what tests do ----

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The result of a function body in the page; a promise is awaited."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector, text, clear=False):
        element = self.find(selector)
        if clear:
            self.call("POST", f"/element/{element}/clear")
        self.call("POST", f"/element/{element}/value", {"text": text})

    def press(self, *keys):
        """Holds all keys but the last, presses that, and lets go."""
        codes = [KEYS.get(key, key) for key in keys]
        actions = [{"type": "keyDown", "value": code} for code in codes]
        actions += [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self.call("POST", "/actions",
                  {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def drag(self, selector, points):
        """Draws with the pointer through points, which are shares of the element's box."""
        box = self.run("const b = document.querySelector(arguments[0]).getBoundingClientRect();"
                       "return [b.left, b.top, b.width, b.height]", selector)
        at = [(int(box[0] + x * box[2]), int(box[1] + y * box[3])) for x, y in points]
        move = [{"type": "pointerMove", "duration": 30, "x": x, "y": y} for x, y in at]
        actions = [move[0], {"type": "pointerDown", "button": 0}, *move[1:],
                   {"type": "pointerUp", "button": 0}]
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"},
                   "actions": actions}
        self.call("POST", "/actions", {"actions": [pointer]})

    def devtools(self, command, **params):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def log(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def wait(self, script, *args, seconds=15, what=""):
        """Waits until a function body gives something true, and returns that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script, *args)
            if found:
                return found
            time.sleep(0.05)
        raise WebDriverError(f"waited {seconds} s for {what or script}")

    def look(self, width, height, dark=False):
        """At the page in a window of that size, until natural_size()."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=1, mobile=width < 500)
        self.devtools("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        time.sleep(0.4)

    def picture(self, width, height, dark=False):
        """How it looks, a PNG file as base64."""
        self.look(width, height, dark)
        return self.devtools("Page.captureScreenshot")["data"]

    def screenshot(self, path, width, height, dark=False):
        path.write_bytes(base64.b64decode(self.picture(width, height, dark)))

    def natural_size(self):
        self.devtools("Emulation.clearDeviceMetricsOverride")
        self.devtools("Emulation.setEmulatedMedia", features=[])
