"""The connection: a server that goes and comes, keys, many pages."""

import pathlib
import tempfile
import time

KEY = "a-key-of-the-test"
KEY_FILE = pathlib.Path(tempfile.gettempdir()) / "ebb_page_test_key"


def test_killed_server_comes_back(page):
    page.open()
    page.generate("before")
    page.wait_for_pictures(1)
    page.server.kill()
    for file in (pathlib.Path(page.server.folder.name) / "out").glob("*.png"):
        file.unlink()
    page.wait("return document.querySelector('#banner').getClientRects().length",
              what="the banner", seconds=20)
    page.server.start()
    page.wait("return !document.querySelector('#banner').getClientRects().length",
              what="the connection", seconds=20)
    page.wait("return document.querySelector('#toasts').textContent.includes('Connected again')")
    page.wait("return !document.querySelector('.thumb')", what="no picture any more")
    page.generate("behind")
    page.wait("return document.querySelector('#current-facts').textContent.startsWith('behind')")


test_killed_server_comes_back.expected = ["ERR_", "Failed to load resource"]


def test_key_is_asked_for(page):
    page.open()
    page.wait("return document.querySelector('#ask').open", what="the question")
    page.type("#ask-value", "wrong")
    page.press("Enter")
    page.wait("return document.querySelector('#ask').open"
              " && document.querySelector('#ask-text').textContent.includes('not right')")
    page.type("#ask-value", KEY)
    page.press("Enter")
    page.ready()
    page.generate("with a key")
    page.wait_for_pictures(1)
    page.wait("return document.querySelector('.thumb img').naturalWidth > 0", what="a thumbnail")
    assert KEY not in page.run("return JSON.stringify({...localStorage, ...sessionStorage})")


test_key_is_asked_for.expected = ["401"]


def test_key_of_the_address_is_taken_and_removed(page):
    page.open(f"#token={KEY}")
    page.ready()
    assert page.run("return location.hash") == ""
    assert not page.run("return document.querySelector('#ask').open")


for case in [test_key_is_asked_for, test_key_of_the_address_is_taken_and_removed]:
    KEY_FILE.write_text(KEY + "\n")
    case.server = {"flags": ["--key", str(KEY_FILE)]}


def test_hidden_page_closes_its_stream(page):
    page.open()
    page.ready()
    page.run("""
      Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});
      window.away = true;
      document.dispatchEvent(new Event('visibilitychange'));
    """)
    page.generate("while it is hidden")
    time.sleep(3)
    assert not page.count(".thumb"), "the stream is still open"
    page.run("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_pictures(1)
