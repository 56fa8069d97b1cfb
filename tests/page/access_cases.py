"""What everyone needs: names, contrast, the focus; how the page looks at several widths."""

from accessibility import FOCUSED, REACHED, faint, unnamed
from picture_files import png

SIZES = [(1440, 900), (768, 1024), (360, 740)]


def open_all(page):
    """A page with pictures, a start picture, and all groups open."""
    page.open()
    page.ready()
    page.generate("a fox asleep in autumn leaves", n=2)
    page.wait_for_pictures(2)
    page.wait_until_idle()
    page.drop_file(png(96, 64), "start.png", "image/png", "[data-drop=input]")
    page.wait("return document.querySelector('#input-sum').textContent.startsWith('96 × 64')")
    page.details("Fine tuning")
    page.set("#f-hires_on", True)
    page.set("#prompt", "a cat <lora:no-such-thing:0.7>")
    page.set("#f-steps", "0")
    page.run("document.querySelector('#generate').click()")


def test_every_control_has_a_name(page):
    open_all(page)
    found = list(unnamed(page.browser))
    for dialog in ["keys", "viewer", "masker", "picker"]:
        page.run("document.getElementById(arguments[0]).showModal()", dialog)
        found += [f"{dialog}: {fault}" for fault in unnamed(page.browser)]
        page.run("document.getElementById(arguments[0]).close()", dialog)
    assert not found, found


def test_contrast(page):
    open_all(page)
    found = []
    for dark in ["light", "dark"]:
        page.browser.devtools("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": dark}])
        found += [f"{dark}: {fault}" for fault in faint(page.browser)]
        page.run("document.getElementById('keys').showModal()")
        found += [f"{dark}, keys: {fault}" for fault in faint(page.browser)]
        page.run("document.getElementById('keys').close()")
    assert not found, found


def test_tab_reaches_all_in_order(page):
    open_all(page)
    wanted = page.run(REACHED)
    page.run("document.activeElement.blur(); window.scrollTo(0, 0);"
             "document.body.tabIndex = -1; document.body.focus(); document.body.tabIndex = -1;")
    reached, hidden = [], []
    for _ in range(len(wanted) + 3):
        page.press("Tab")
        name, visible = page.run(FOCUSED)
        if not name or (reached and name == reached[0]):
            break
        reached.append(name)
        if not visible:
            hidden.append(name)
    assert [n for n in reached if n in wanted] == wanted, (reached, wanted)
    assert not hidden, f"the focus is not visible on {hidden}"


def test_no_sideways_scroll(page):
    open_all(page)
    for width, height in SIZES:
        page.browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                              deviceScaleFactor=1, mobile=width < 500)
        wide = page.run("return document.documentElement.scrollWidth")
        assert wide <= width, (wide, width, page.run(
            "return [...document.querySelectorAll('*')].filter(e =>"
            " e.getBoundingClientRect().right > innerWidth + 1).map(e => e.id || e.className)"))


def shoot(page, name):
    if not page.screens:
        return
    for width, height in SIZES:
        for dark in [False, True]:
            path = page.screens / f"{name}_{width}_{'dark' if dark else 'light'}.png"
            page.browser.screenshot(path, width, height, dark)
    page.browser.natural_size()


def test_screenshots(page):
    page.open()
    page.ready()
    shoot(page, "empty")
    page.generate("a lighthouse in the fog, early morning, soft light", n=4)
    page.wait_for_pictures(4)
    page.wait_until_idle()
    shoot(page, "done")
    page.click(".thumb")
    page.wait("return document.querySelector('#view-facts').children.length > 3")
    shoot(page, "viewer")
    page.press("Escape")
    page.run("document.getElementById('keys').showModal()")
    shoot(page, "keys")
    page.run("document.getElementById('keys').close()")
    page.drop_file(png(512, 384), "start.png", "image/png", "[data-drop=input]")
    page.wait("return document.querySelector('#input-sum').textContent.startsWith('512 × 384')")
    page.details("Fine tuning")
    shoot(page, "settings")
    page.click("#mask-open")
    page.wait("return document.querySelector('#masker').open")
    page.browser.drag("#mask-canvas", [(0.3, 0.4), (0.6, 0.5)])
    shoot(page, "mask")


def test_screenshot_of_a_queue(page):
    page.open()
    page.ready()
    for prompt in ["a lighthouse in the fog", "a fox asleep in autumn leaves, watercolour",
                   "the inside of an old observatory"]:
        page.generate(prompt, n=2)
    page.wait("return document.querySelector('#current-image').naturalWidth > 0")
    shoot(page, "queue")


test_screenshot_of_a_queue.server = {"step_ms": 500}
