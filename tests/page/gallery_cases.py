"""The gallery: many pictures, keys, search, deleting."""

import pathlib


def fill(page, number):
    """Makes so many small pictures, 50 a job."""
    page.open()
    page.ready()
    page.run("""
      const post = n => fetch('/ebb/v1/jobs', {method: 'POST', body: JSON.stringify({
        prompt: `number ${n} of the ${n % 2 ? 'foxes' : 'boats'}`, steps: 1, size: '64x64', n: 50}),
        headers: {'Content-Type': 'application/json'}});
      window.filled = false;
      (async (number) => {
        for (let i = 0; i < number / 50;) {
          if ((await post(i)).ok) i++;
          else await new Promise(done => setTimeout(done, 200));  // the queue is full
        }
        window.filled = true;
      })(arguments[0]);
    """, number)
    page.wait("return window.filled", seconds=120, what="the queue to take all")
    page.wait("return fetch('/ebb/v1/state').then(r => r.json()).then(s =>"
              " !s.jobs.some(j => ['queued', 'generating'].includes(j.status)))",
              seconds=120, what="all pictures")


def test_500_pictures_scroll(page):
    fill(page, 500)
    page.open()
    page.wait_for_pictures(60)
    for _ in range(40):
        if page.count(".thumb") >= 500:
            break
        page.run("window.scrollTo(0, document.body.scrollHeight)")
        page.run("return new Promise(done => setTimeout(done, 150))")
    assert page.count(".thumb") == 500, page.count(".thumb")
    assert not page.shown("#older")
    longest = page.run("""
      return new Promise(done => {
        let last = performance.now(), longest = 0, frames = 0;
        const step = now => {
          longest = Math.max(longest, now - last);
          last = now;
          window.scrollBy(0, -300);
          if (++frames < 60) requestAnimationFrame(step); else done(longest);
        };
        requestAnimationFrame(step);
      });
    """)
    assert longest < 500, f"a frame of {longest} ms"
    page.set("#filter", "foxes")
    page.wait("return document.querySelectorAll('.thumb').length <= 60 &&"
              " [...document.querySelectorAll('.thumb')].every(t => t.title.includes('foxes'))",
              what="only foxes")
    page.set("#filter", "zebras")
    page.wait("return document.querySelector('#gallery-empty').textContent.includes('zebras')")


test_500_pictures_scroll.server = {"step_ms": 0}
test_500_pictures_scroll.expected = ["429"]


def focused(page):
    return page.run("return [...document.querySelectorAll('.thumb')]"
                    ".indexOf(document.activeElement)")


def test_keys_walk_and_delete(page):
    fill(page, 50)
    page.wait_for_pictures(50)
    page.run("document.querySelector('.thumb').focus()")
    assert page.count(".thumb[tabindex='0']") == 1
    page.press("Right")
    page.press("Right")
    assert focused(page) == 2
    page.press("End")
    assert focused(page) == page.count(".thumb") - 1
    page.press("Home")
    page.press("Down")
    columns = focused(page)
    assert 1 < columns < 50, columns
    page.press("Enter")
    page.wait("return document.querySelector('#viewer').open")
    page.wait("return document.querySelector('#view-facts').children.length > 4", what="its facts")
    page.press("Right")
    page.press("Left")
    page.press("Right")
    page.press("Escape")
    page.wait("return !document.querySelector('#viewer').open")
    page.wait("return document.activeElement.classList.contains('thumb')")
    assert focused(page) == columns + 1, (focused(page), columns)
    page.press("Delete")
    page.wait("return document.querySelector('#ask').open", what="the question")
    page.press("Enter")
    page.wait("return document.querySelectorAll('.thumb').length === 49", what="one less")
    assert focused(page) == columns + 1
    page.open()
    page.wait("return document.querySelectorAll('.thumb').length === 49")


test_keys_walk_and_delete.server = {"step_ms": 0}


def test_new_pictures_come_to_the_front(page):
    page.open()
    page.generate("older")
    page.wait_for_pictures(1)
    page.wait_until_idle()
    page.generate("newer", n=2)
    page.wait_for_pictures(3)
    titles = page.run("return [...document.querySelectorAll('.thumb')].map(t => t.title)")
    assert titles == ["newer", "newer", "older"], titles


def test_once_more_has_another_seed(page):
    page.open()
    page.generate("again")
    page.wait_for_pictures(1)
    page.wait_until_idle()
    page.run("document.querySelector('#current-open').focus()")
    page.press("m")
    page.wait_for_pictures(2)
    body = page.posted()[-1]["body"]
    assert body["prompt"] == "again" and body["seed"] == -1 and body["n"] == 1, body


def test_second_pass_is_the_same_picture_at_twice_the_size(page):
    page.open()
    page.set("#f-seed", "41")
    page.generate("finer", n=2)
    page.wait_for_pictures(2)
    page.wait_until_idle()
    page.run("document.querySelector('#current-open').focus()")
    page.press("h")
    page.wait_for_pictures(3)
    body = page.posted()[-1]["body"]
    assert body["hires"].startswith("2:") and body["n"] == 1, body
    # The second one of its seed: counted, not by another seed.
    assert body["seed"] == 41 and body["first_image"] == 1, body


def remove_file(page, thumb):
    """Behind the server's back."""
    (pathlib.Path(page.server.folder.name) / "out" / f"{thumb.removeprefix('image-')}.png").unlink()


def delete_elsewhere(page):
    """The newest picture, as another tab does it."""
    page.run("return fetch('/ebb/v1' + '/images/' + "
             "document.querySelector('.thumb').id.replace('image-', ''), {method: 'DELETE'})")


def test_picture_that_another_tab_deletes_goes(page):
    page.open()
    for number, name in enumerate(["first", "second", "third"], 1):
        page.generate(name)
        page.wait_for_pictures(number)
        page.wait_until_idle()
    delete_elsewhere(page)
    page.wait("return document.querySelectorAll('.thumb').length === 2", what="one less")
    page.wait("return document.querySelector('#current-open').ariaLabel === 'Open: second'",
              what="the one before")
    page.click(".thumb")
    page.wait("return document.querySelector('#viewer').open")
    delete_elsewhere(page)
    page.wait("return document.querySelector('#view-prompt').textContent === 'first'",
              what="the next one in the viewer")
    delete_elsewhere(page)
    page.wait("return !document.querySelector('#viewer').open", what="the end of the viewer")
    page.wait("return document.querySelector('#gallery-empty').getClientRects().length")


def test_fault_is_seen_in_front_of_the_viewer(page):
    page.open()
    page.generate("deleted elsewhere")
    page.wait_for_pictures(1)
    page.wait_until_idle()
    remove_file(page, page.run("return document.querySelector('.thumb').id"))
    page.click(".thumb")
    page.wait("return document.querySelector('dialog[open] #toasts .bad')?.checkVisibility()",
              what="the fault in front of the viewer")
    page.press("Escape")
    page.wait("return document.querySelector('body > #toasts .bad')?.checkVisibility()",
              what="the fault behind the viewer's end")


test_fault_is_seen_in_front_of_the_viewer.expected = ["404"]


def test_long_prompt_leaves_the_gallery_in_its_place(page):
    page.open()
    page.generate("a very long prompt, with details " * 500)
    page.wait_for_pictures(1)
    page.wait_until_idle()
    height = page.run("return document.querySelector('#current-facts').offsetHeight")
    assert 20 < height < 160, height
