"""Making pictures: the first one, the queue, stopping, faults."""


def test_first_picture_in_three_interactions(page):
    page.open()
    page.wait("return document.activeElement.id === 'prompt'", what="the focus on the prompt")
    page.type("#prompt", "a lighthouse in the fog")  # one and two: write, Ctrl+Enter
    page.press("Control", "Enter")
    page.wait("return document.querySelector('#progress').getAttribute('aria-valuenow') > 0"
              " && document.querySelector('#running').getClientRects().length",
              what="progress", seconds=5)
    page.wait("return /Step \\d+ of \\d+/.test("
              "document.querySelector('#progress-text').textContent)")
    page.wait("return document.querySelector('#current-image').naturalWidth > 0"
              " && document.querySelector('#running').getClientRects().length",
              what="a preview")
    page.wait_for_pictures(1)
    page.wait_until_idle()
    page.wait("const i = document.querySelector('#current-image'); return i.complete &&"
              " i.naturalWidth === 512 && i.src.includes('/images/')", what="the picture")
    assert page.text("#current-facts").startswith("a lighthouse in the fog")
    body = page.posted()[0]["body"]
    assert body["prompt"] == "a lighthouse in the fog" and body["seed"] == -1, body


test_first_picture_in_three_interactions.server = {"step_ms": 150}


def test_example_prompt(page):
    page.open()
    page.ready()
    page.wait("return document.querySelectorAll('#examples button').length")
    page.run("document.querySelector('#examples button').click()")
    if page.value("#prompt"):  # else there are no models, and the button says something else
        assert page.run("return document.activeElement.id") == "generate"


def queued_prompts(page):
    return page.run("return [...document.querySelectorAll('#jobs li.queued .title')]"
                    ".map(e => e.textContent)")


def test_queue_is_reordered_and_emptied(page):
    page.open()
    for prompt in ["one", "two", "three", "four"]:
        page.generate(prompt)
    page.wait("return document.querySelectorAll('#jobs li').length === 4", what="four jobs")
    page.wait("return document.querySelectorAll('#jobs li.generating').length === 1")
    assert queued_prompts(page) == ["two", "three", "four"], queued_prompts(page)
    assert page.text("#generate") == "Add to the queue"
    page.run("document.querySelectorAll('#jobs li.queued')[2]"
             ".querySelector('[title=Earlier]').focus()")
    page.press("Enter")
    page.wait("return [...document.querySelectorAll('#jobs li.queued .title')]"
              ".map(e => e.textContent).join() === 'two,four,three'", what="four before three")
    assert page.run("return document.activeElement.title") == "Earlier", "the focus is lost"
    page.run("document.querySelectorAll('#jobs li.queued')[0]"
             ".querySelector('[title=Remove]').click()")
    page.wait("return [...document.querySelectorAll('#jobs li.queued .title')]"
              ".map(e => e.textContent).join() === 'four,three'", what="two to be removed")
    page.click("#queue-clear")
    page.wait("return document.querySelector('#ask').open")
    page.click("#ask-yes")
    page.wait("return !document.querySelectorAll('#jobs li.queued').length", what="no queue")
    page.wait_until_idle()
    page.wait_for_pictures(1)


test_queue_is_reordered_and_emptied.server = {"step_ms": 250}


def test_keys_pressed_fast_lose_no_job(page):
    page.open()
    page.set("#prompt", "again and again")
    for _ in range(5):
        page.press("Control", "Enter")
    page.wait("return window.posted.filter(p => p.url.endsWith('/jobs')).length === 5",
              what="five jobs")


def test_stop_keeps_finished_pictures(page):
    page.open()
    page.generate("four of them", n=4)
    page.wait_for_pictures(1)
    page.press("Escape")
    page.wait_until_idle()
    assert 1 <= page.count(".thumb") < 4, page.count(".thumb")
    assert page.shown("#current-image")


test_stop_keeps_finished_pictures.server = {"step_ms": 60}


def test_skip_goes_on_with_the_next(page):
    page.open()
    page.generate("two of them", n=2)
    page.wait("return document.querySelector('#progress-text').textContent.startsWith('Picture 1')")
    page.click("#skip")
    page.wait("return document.querySelector('#progress-text').textContent.startsWith('Picture 2')",
              what="the second picture")
    page.wait_until_idle()
    assert page.count(".thumb") == 1, page.count(".thumb")


test_skip_goes_on_with_the_next.server = {"step_ms": 120}


def test_stop_all_asks_first(page):
    page.open()
    for prompt in ["one", "two", "three"]:
        page.generate(prompt)
    page.wait("return document.querySelectorAll('#jobs li.queued').length === 2")
    page.click("#queue-stop")
    page.wait("return document.querySelector('#ask').open")
    page.click("#ask-no")
    assert page.count("#jobs li") == 3
    page.click("#queue-stop")
    page.click("#ask-yes")
    page.wait_until_idle()


test_stop_all_asks_first.server = {"step_ms": 250}


def test_reload_in_a_job_brings_all_back(page):
    page.open()
    page.set("#f-steps", "33")
    page.set("#negative", "rain")
    page.generate("a slow one")
    page.generate("the next one")
    page.wait("return document.querySelectorAll('#jobs li.generating').length === 1")
    page.open()
    page.wait("return document.querySelectorAll('#jobs li').length === 2", what="both jobs")
    page.wait("return document.querySelector('#running').getClientRects().length"
              " && /Step/.test(document.querySelector('#progress-text').textContent)")
    assert page.value("#prompt") == "the next one"
    assert page.value("#negative") == "rain"
    assert page.value("#f-steps") == "33"


test_reload_in_a_job_brings_all_back.server = {"step_ms": 200}


def test_field_that_is_out_of_range_is_said_at_the_field(page):
    page.open()
    page.ready()
    page.details("Fine tuning")
    page.set("#f-steps", "5000")
    page.click("#generate")
    page.wait("return document.querySelector('#f-steps-error').textContent !== ''")
    assert page.run("return document.activeElement.id") == "f-steps"
    assert page.run("return document.querySelector('#f-steps').ariaInvalid") == "true"
    assert not page.posted()
    page.set("#f-steps", "5")
    assert page.text("#f-steps-error") == ""


def test_fault_of_the_server_is_said_at_the_field(page):
    page.open()
    page.ready()
    page.details("Size")
    page.set("#f-width", "4096")
    page.set("#f-height", "64")
    page.run("document.querySelector('#f-width').max = 100000")
    page.set("#f-width", "40960")
    page.click("#generate")
    page.wait("return document.querySelector('#f-width-error').textContent.includes('4096')",
              what="the server's sentence at the field")


test_fault_of_the_server_is_said_at_the_field.expected = ["422"]


def test_text_of_others_is_text(page):
    evil = "<img src=x onerror=\"window.owned=1\"><script>window.owned=1</script>"
    page.open()
    page.generate(evil)
    page.wait_for_pictures(1)
    page.wait_until_idle()
    assert page.text("#current-facts").startswith(evil)
    page.click(".thumb")
    page.wait("return document.querySelector('#view-prompt').textContent.startsWith('<img')")
    assert not page.run("return window.owned")
    assert page.count("img[src=x]") == 0


def test_largest_seed_survives(page):
    seed = "18446744073709551615"
    page.open()
    page.details("Fine tuning")
    page.set("#f-seed", seed)
    page.generate("a seed of 64 bits")
    assert f'"seed":{seed}' in page.posted()[0]["text"], page.posted()[0]["text"]
    page.wait_for_pictures(1)
    page.wait_until_idle()
    page.set("#f-seed", "")
    page.run("[...document.querySelectorAll('#current-actions button')]"
             ".find(b => b.textContent === 'Take its settings').click()")
    page.wait("return document.querySelector('#f-seed').value !== ''")
    assert page.value("#f-seed") == seed, page.value("#f-seed")
