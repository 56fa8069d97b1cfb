#!/usr/bin/env python3
"""Tests `ebb serve --engine fake` with the clients `openai` and `webuiapi` of PyPI themselves.

Usage: clients_test.py PROGRAM

Cases are the functions named `test_*` here; each gets the port of a fresh server. Skipped, with
exit code 77, where neither client is installed; scripts/serve-test installs them.
"""

import base64
import importlib.util
import io
import pathlib
import sys
import threading
import time
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from serve_program import ServeProgram  # noqa: E402

SKIPPED = 77


def image(width, height, colour):
    from PIL import Image
    return Image.new("RGB", (width, height), colour)


def decoded(text):
    from PIL import Image
    out = Image.open(io.BytesIO(base64.b64decode(text)))
    out.load()
    return out


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"{got!r}, expected {expected!r}")


def webui(port):
    import webuiapi
    return webuiapi.WebUIApi(host="127.0.0.1", port=port)


def test_webuiapi_txt2img(port):
    done = webui(port).txt2img(prompt="a fox", negative_prompt="dog", seed=7, steps=3, width=64,
                               height=48, batch_size=2, cfg_scale=5, sampler_name="Euler a")
    equal([one.size for one in done.images], [(64, 48)] * 2)
    equal(done.info["all_seeds"], [7, 8])
    equal(done.info["sampler_name"], "Euler a")
    equal(done.parameters["steps"], 3)
    if "Negative prompt: dog" not in done.images[0].info["parameters"]:
        raise AssertionError(done.images[0].info)


def test_webuiapi_img2img(port):
    api = webui(port)
    done = api.img2img(images=[image(64, 64, "blue")], prompt="a cat", seed=3, steps=2, width=64,
                       height=64, denoising_strength=0.25)
    equal(done.image.size, (64, 64))
    equal(done.info["denoising_strength"], 0.25)
    mean = done.image.resize((1, 1)).getpixel((0, 0))
    if not mean[2] > 170 > 90 > mean[0]:  # the start picture shows through
        raise AssertionError(f"mean {mean}")


def test_webuiapi_progress_and_interrupt(port):
    api, done = webui(port), []
    equal(api.get_progress()["progress"], 0)
    thread = threading.Thread(target=lambda: done.append(api.txt2img(
        prompt="long", steps=500, width=64, height=64)))
    thread.start()
    seen = 0
    for _ in range(200):
        now = api.get_progress()
        if now["state"]["job_count"] and now["progress"] > seen:
            seen = now["progress"]
            if seen > 0.02:
                break
        time.sleep(0.02)
    begin = time.monotonic()
    api.interrupt()
    thread.join(10)
    if not 0.02 < seen < 1 or not done or time.monotonic() - begin > 3:
        raise AssertionError(f"progress {seen}, answers {len(done)}")
    api.util_wait_for_ready(check_interval=0.1)


def test_webuiapi_lists_and_options(port):
    api = webui(port)
    for names in [api.util_get_sampler_names(), api.util_get_scheduler_names()]:
        if not names:
            raise AssertionError("an empty list")
    if "Euler a" not in api.util_get_sampler_names():
        raise AssertionError(api.util_get_sampler_names())
    api.set_options({"CLIP_stop_at_last_layers": 2})
    equal(api.get_options()["CLIP_stop_at_last_layers"], 2)
    equal(api.get_upscalers()[0]["name"], "None")
    picture = api.txt2img(prompt="a fox", steps=2, width=64, height=64).image
    if "Steps: 2" not in api.png_info(picture).info:
        raise AssertionError("png-info says nothing of the steps")
    larger = api.extra_single_image(picture, upscaler_1="Lanczos", upscaling_resize=2)
    equal(larger.image.size, (128, 128))


def openai_client(port):
    import openai
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)


def test_openai_generate(port):
    done = openai_client(port).images.generate(prompt="a fox", n=2, size="64x64",
                                               response_format="b64_json",
                                               extra_body={"ebb": {"steps": 3, "seed": 5}})
    equal([decoded(one.b64_json).size for one in done.data], [(64, 64)] * 2)


def test_openai_edit(port):
    bytes_of = io.BytesIO()
    image(64, 64, "blue").save(bytes_of, "PNG")
    done = openai_client(port).images.edit(image=("a.png", bytes_of.getvalue(), "image/png"),
                                           prompt="a cat", size="64x64")
    equal(decoded(done.data[0].b64_json).size, (64, 64))


def test_openai_stream(port):
    """Partial pictures are how this client shows progress."""
    kinds = []
    for event in openai_client(port).images.generate(prompt="a fox", size="64x64", stream=True,
                                                     partial_images=2, model="gpt-image-1"):
        kinds.append(event.type)
        decoded(event.b64_json)
    equal(kinds[-1], "image_generation.completed")
    if "image_generation.partial_image" not in kinds:
        raise AssertionError(kinds)


def test_openai_errors_and_models(port):
    import openai
    client = openai_client(port)
    equal(list(client.models.list()), [])
    try:
        client.images.generate(prompt="a fox", model="no-such-model")
    except openai.NotFoundError as e:
        equal(e.code, "model_not_found")
    else:
        raise AssertionError("a model that is not there is taken")


def run_case(case, program):
    """What is wrong; empty: nothing."""
    try:
        with ServeProgram(program, "--quiet", step_ms=10) as server:
            case(server.port)
        return ""
    except Exception as e:  # of a client: any
        line = traceback.extract_tb(e.__traceback__)[-1]
        return f"{type(e).__name__}: {e} ({pathlib.Path(line.filename).name}:{line.lineno})"


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    there = [name for name in ["openai", "webuiapi"] if importlib.util.find_spec(name)]
    if not there:
        print("skipped: openai and webuiapi are not installed")
        return SKIPPED
    failed = 0
    for name, case in list(globals().items()):
        if not name.startswith("test_"):
            continue
        if name.split("_")[1] not in there:
            print(f"skipped {name}: the client is not installed")
            continue
        begin = time.monotonic()
        fault = run_case(case, sys.argv[1])
        failed += bool(fault)
        print(f"{'FAILED' if fault else 'ok    '} {name} ({time.monotonic() - begin:.1f} s)",
              f"\n       {fault}" if fault else "", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
