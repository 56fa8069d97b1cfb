"""The start picture and its mask: what is painted is what is posted."""

from picture_files import png

# The share of white of a posted mask's rectangle, and its size: arguments base64, x, y, w, h.
WHITE = """
  const bytes = Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0));
  return createImageBitmap(new Blob([bytes])).then(image => {
    const c = document.createElement('canvas');
    [c.width, c.height] = [image.width, image.height];
    const context = c.getContext('2d');
    context.drawImage(image, 0, 0);
    const [x, y, w, h] = [...arguments].slice(1);
    const data = context.getImageData(x, y, w, h).data;
    let sum = 0;
    for (let i = 0; i < data.length; i += 4) sum += data[i];
    return [sum / (255 * w * h), image.width, image.height];
  });
"""


def start(page):
    page.open()
    page.ready()
    page.drop_file(png(256, 192), "start.png", "image/png", "[data-drop=input]")
    page.wait("return document.querySelector('#input-sum').textContent.startsWith('256 × 192')")
    page.click("#mask-open")
    page.wait("return document.querySelector('#masker').open")


def finish(page):
    page.click("#mask-done")
    page.wait("return document.querySelector('#input-sum').textContent.includes('mask')",
              what="the mask")
    page.generate("painted")
    body = page.posted()[-1]["body"]
    assert body["init"] and body["mask"] and body["strength"] == 0.75, body.keys()
    return body["mask"]


def white(page, mask, *rectangle):
    return page.run(WHITE, mask, *rectangle)[0]


def test_mask_by_pointer(page):
    start(page)
    page.set("#mask-size", "40")
    page.browser.drag("#mask-canvas", [(0.25, 0.5), (0.5, 0.5), (0.75, 0.5)])
    mask = finish(page)
    assert page.run(WHITE, mask, 0, 0, 1, 1)[1:] == [256, 192]
    assert white(page, mask, 70, 90, 110, 12) > 0.99
    assert white(page, mask, 0, 0, 256, 60) == 0
    area = white(page, mask, 0, 0, 256, 192) * 256 * 192
    assert abs(area - (128 * 40 + 3.14 * 400)) < 300, area


def test_mask_by_keys_equals_the_pointer(page):
    start(page)
    page.set("#mask-size", "32")
    page.run("document.querySelector('#mask-canvas').focus()")
    for _ in range(2):
        page.press("Shift", "Right")  # two brushes to the right of the middle
    page.press("Space")
    page.press("x")
    page.press("Left")
    page.press("x")
    mask = finish(page)
    assert white(page, mask, 190, 94, 4, 4) == 1
    area = white(page, mask, 0, 0, 256, 192) * 256 * 192
    assert abs(area - 3.14 * 256) < 40, area
    assert white(page, mask, 0, 0, 170, 192) == 0


def test_rectangle_invert_undo_erase(page):
    start(page)
    page.details("Rectangle")
    for name, value in zip("xywh", [16, 32, 64, 48]):
        page.set(f"#rect-{name}", value)
    page.click("#rect-add")
    assert "%" in page.text("#mask-said")
    page.click("#mask-invert")
    page.click("#mask-undo")
    page.click("#mask-redo")
    page.press("Control", "z")
    page.click("#mask-invert")
    page.set("#rect-w", 8)
    page.click("#rect-add")
    page.set("#rect-y", 150)
    page.click("#rect-cut")
    mask = finish(page)
    assert white(page, mask, 24, 32, 56, 48) == 0  # what remains of the first rectangle
    assert white(page, mask, 16, 32, 8, 48) == 1
    assert white(page, mask, 16, 150, 8, 42) == 0
    assert white(page, mask, 80, 32, 176, 160) == 1


def test_empty_mask_is_none(page):
    start(page)
    page.click("#mask-fill")
    page.click("#mask-clear")
    page.click("#mask-done")
    page.generate("no mask")
    assert "mask" not in page.posted()[-1]["body"]
    assert page.posted()[-1]["body"]["init"]


def test_extend_by_one_click(page):
    start(page)
    page.press("Escape")
    page.wait("return !document.querySelector('#masker').open")
    page.click("[data-side]:nth-of-type(2)")
    assert "320 × 192" in page.text("#extend-text"), page.text("#extend-text")
    page.set("#f-width", "512")
    page.generate("wider")
    body = page.posted()[-1]["body"]
    assert body["outpaint"] == "0,64,0,0" and "size" not in body, body.keys()
    page.click("#input-remove")
    page.generate("without")
    assert "init" not in page.posted()[-1]["body"]


def test_picture_of_the_gallery_as_start(page):
    page.open()
    page.ready()
    page.generate("first")
    page.wait_for_pictures(1)
    page.wait_until_idle()
    page.run("document.querySelector('.thumb').focus()")
    page.press("i")
    page.wait("return document.querySelector('#input-sum').textContent.startsWith('512 × 512')")
    page.generate("second")
    assert page.posted()[-1]["body"]["init"].startswith("id:")
    page.wait_for_pictures(2)
    page.run("document.querySelector('.thumb').focus()")
    page.wait_until_idle()
    page.press("v")
    page.wait_for_pictures(3)
    body = page.posted()[-1]["body"]
    assert body["init"].startswith("id:") and body["strength"] == 0.55, body
