"""Settings: from pictures and texts, marks, undo, LoRAs, weights by keys."""

import json
import struct

from picture_files import A1111, jpeg_with, png, webp_with

EXPECTED = {"#prompt": "a red fox in the snow, (sharp:1.2)", "#negative": "rain, fog",
            "#f-steps": "27", "#f-guidance": "5.5", "#f-seed": "123456", "#f-width": "640",
            "#f-height": "384"}


def check_taken(page):
    page.wait("return document.querySelector('#prompt').value.startsWith('a red fox')",
              what="the settings")
    found = {selector: page.value(selector) for selector in EXPECTED}
    assert found == EXPECTED, found
    sampler = page.value("#f-sampler")
    assert "euler" in sampler.lower(), sampler
    assert page.text("#f-steps-mark").startswith("changed"), page.text("#f-steps-mark")


def test_png_of_a1111_dropped(page):
    page.open()
    page.ready()
    page.set("#prompt", "what was there before")
    page.drop_file(png(64, 64, {"parameters": A1111}), "fox.png", "image/png")
    check_taken(page)
    page.wait("return document.querySelector('#toasts').textContent.includes('changed')")
    page.run("[...document.querySelectorAll('#toasts button')]"
             ".find(b => b.textContent === 'Undo').click()")
    assert page.value("#prompt") == "what was there before"
    assert page.value("#f-steps") == ""


def encoded(page, kind):
    return page.run("const c = document.createElement('canvas'); c.width = c.height = 64;"
                    "c.getContext('2d').fillRect(9, 9, 30, 30);"
                    "return c.toDataURL(arguments[0]).split(',')[1]", kind)


def test_jpeg_of_a1111_dropped(page):
    page.open()
    page.ready()
    page.drop_file(jpeg_with(encoded(page, "image/jpeg"), A1111), "fox.jpg", "image/jpeg")
    check_taken(page)


def test_webp_of_a1111_dropped(page):
    page.open()
    page.ready()
    page.drop_file(webp_with(encoded(page, "image/webp"), 64, 64, A1111), "fox.webp", "image/webp")
    check_taken(page)


def test_text_of_a1111_pasted(page):
    page.open()
    page.ready()
    page.run("""
      const data = new DataTransfer();
      data.setData('text/plain', arguments[0]);
      document.querySelector('#prompt').dispatchEvent(new ClipboardEvent('paste',
        {bubbles: true, cancelable: true, clipboardData: data}));
    """, A1111)
    check_taken(page)


def test_own_picture_gives_its_settings_back(page):
    page.open()
    page.ready()
    page.details("Fine tuning")
    page.set("#f-steps", "7")
    page.set("#f-guidance", "4.5")
    page.set("#f-width", "320")
    page.set("#f-height", "256")
    page.generate("a boat")
    page.wait_for_pictures(1)
    page.wait_until_idle()
    page.click("#reset")
    assert page.value("#f-steps") == "" and page.value("#f-width") == ""
    page.run("document.querySelector('.thumb').focus()")
    page.press("t")
    page.wait("return document.querySelector('#f-steps').value === '7'", what="the steps")
    assert page.value("#f-guidance") == "4.5" and page.value("#f-width") == "320"
    assert page.value("#f-seed").isdigit()


def test_picture_without_settings_becomes_the_start(page):
    page.open()
    page.ready()
    page.drop_file(png(96, 64), "plain.png", "image/png")
    page.wait("return document.querySelector('#input-sum').textContent.startsWith('96 × 64')",
              what="the start picture")


def test_what_is_no_picture_is_said(page):
    page.open()
    page.ready()
    page.drop_file("bm90IGEgcGljdHVyZQ==", "notes.png", "image/png")
    page.wait("return document.querySelector('#toasts .bad')", what="a message")


test_what_is_no_picture_is_said.expected = ["Failed to load resource"]


def test_unknown_lora_is_an_error_at_once(page):
    page.open()
    page.ready()
    page.set("#prompt", "a cat <lora:no-such-thing:0.7>")
    page.wait("return document.querySelector('#prompt-note').textContent.includes('no-such-thing')")
    assert page.value("#adapters input") == "0.7"
    page.set("#adapters input", "0.4")
    assert page.value("#prompt") == "a cat <lora:no-such-thing:0.4>", page.value("#prompt")
    page.click("#adapters button")
    assert page.value("#prompt") == "a cat", page.value("#prompt")
    assert page.text("#prompt-note") == ""


def test_weight_of_the_words_at_the_caret(page):
    page.open()
    page.set("#prompt", "a red fox")
    page.run("const p = document.querySelector('#prompt'); p.focus(); p.setSelectionRange(3, 3)")
    page.press("Control", "Up")
    assert page.value("#prompt") == "a (red:1.1) fox", page.value("#prompt")
    page.press("Control", "Up")
    assert page.value("#prompt") == "a (red:1.2) fox", page.value("#prompt")
    page.press("Control", "Down")
    page.press("Control", "Down")
    assert page.value("#prompt") == "a red fox", page.value("#prompt")


def test_only_what_was_said_is_sent(page):
    page.open()
    page.ready()
    page.generate("plain")
    assert set(page.posted()[0]["body"]) <= {"prompt", "n", "seed", "model"}, page.posted()
    page.details("Fine tuning")
    page.click("#f-hires_on")
    page.set("#f-hires_steps", "9")
    page.set("#f-clip_skip", "2")
    page.click("#presets button:nth-child(2)")
    page.generate("more")
    body = page.posted()[1]["body"]
    assert body["hires"] == "2:latent:9:0.7", body
    assert body["clip_skip"] == 2 and "x" in body["size"], body


def lora_file():
    """A LoRA of one layer, all zeros."""
    layer = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
    header = {f"{layer}.lora_down.weight": {"dtype": "F32", "shape": [1, 320],
                                            "data_offsets": [0, 1280]},
              f"{layer}.lora_up.weight": {"dtype": "F32", "shape": [320, 1],
                                          "data_offsets": [1280, 2560]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(2560)


def test_lora_from_the_list(page):
    page.open()
    page.ready()
    page.wait("return document.querySelector('#pick').getClientRects().length", what="a LoRA")
    page.set("#prompt", "a cat")
    page.click("#pick")
    page.set("#picker-search", "zzz")
    assert "Nothing" in page.text("#picker-empty")
    page.set("#picker-search", "small")
    page.click("#picker-list button")
    assert page.value("#prompt") == "a cat, <lora:small-thing:1>", page.value("#prompt")
    assert page.run("return document.activeElement.textContent") == "Remove"
    page.press("Escape")
    assert page.text("#prompt-note") == "", page.text("#prompt-note")
    assert page.value("#adapters input") == "1"
    page.click("#pick")
    page.click("#picker-list button")
    assert page.value("#prompt") == "a cat", page.value("#prompt")


test_lora_from_the_list.server = {"files": {"small-thing.safetensors": lora_file()}}


def test_defaults_of_a_small_model(page):
    """The catalogue's `defaults` and `unused`; sizes of a model of 128 pixels differ by shape."""
    page.open()
    page.ready()
    page.run("""
      const model = {name: 'small', title: 'small', hash: null, family: '', unused: ['negative'],
                     defaults: {size: '128x128', steps: 9, guidance: 3}};
      const none = {loras: [], embeddings: [], vaes: [], hires_upscalers: [], samplers: [],
                    schedules: [], settings: [], text_encoders: [], upscalers: [], faults: []};
      return import('/form.js').then(form => {
        form.useCatalogue({...none, models: [model]}, 'small');
        form.refreshSettings();
      });
    """)
    titles = page.run("return [...document.querySelectorAll('#presets button')].map(b => b.title)")
    assert len(set(titles)) == 4 and titles[0] == "128 × 128", titles
    assert page.run("return document.getElementById('f-width').placeholder") == "128"
    assert page.run("return document.getElementById('f-steps').placeholder") == "9"
    assert not page.shown("#negative-field")


def test_model_that_comes_with_ebb(page):
    """Nothing was downloaded: a picture of it, with its own defaults."""
    page.open()
    page.ready()
    page.wait("return document.querySelector('#model').value === 'box'", what="the model")
    for field, value in [("width", "128"), ("height", "128"), ("guidance", "3"), ("steps", "20")]:
        found = page.run(f"return document.getElementById('f-{field}').placeholder")
        assert found == value, (field, found)
    page.wait("return document.querySelector('#memory').getClientRects().length"
              " && document.querySelector('#memory-share').value > 0", what="the planned memory")
    assert page.text("#memory-text").startswith("Memory: 42"), page.text("#memory-text")
    page.type("#prompt", "a red apple")
    page.press("Control", "Enter")
    page.wait_for_pictures(1, seconds=60)
    page.wait("const i = document.querySelector('#current-image'); return i.complete &&"
              " i.naturalWidth === 128 && i.src.includes('/images/')", what="the picture")
    body = page.posted()[0]["body"]
    assert "size" not in body and "guidance" not in body, body


test_model_that_comes_with_ebb.server = {"engine": "models", "flags": ["--device", "cpu"]}
