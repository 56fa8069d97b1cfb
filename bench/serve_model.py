"""Cases of `bench/serve.py --model FILE`: a checkpoint, alone in its folder, on the device that
`ebb serve` finds. What the server adds to the network's own time, and what it gains by making jobs
together. The first picture of each size of batch, which loads and compiles, is never measured."""

import contextlib
import statistics
import subprocess
import tempfile
import time

from serve_client import Client, Held, request_text, row, serving

JOBS = 20  # of two clients


def gpu():
    """What nvidia-smi calls the first; none where there is none."""
    try:
        words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(words, capture_output=True, text=True).stdout
        return names.partition("\n")[0] or None
    except OSError:
        return None


def settings(args, seed, **others):
    return {"prompt": f"{seed} foxes in the snow", "seed": seed, "steps": args.steps,
            "size": f"{args.side}x{args.side}", **others}


@contextlib.contextmanager
def serving_model(args, *flags):
    """A server that has made its first picture."""
    with serving(args.program, 0, *flags, engine="models", models=args.model.parent) as server:
        finished(args, server, [1])
        yield server


def finished(args, server, seeds, **others):
    """A job for each seed, of two clients in turn; all of them once the last has ended."""
    clients = [Client(server.port, address=f"127.0.0.{i}", timeout=600) for i in (1, 2)]
    names = [clients[i % 2].post("/ebb/v1/jobs", settings(args, seed, **others))["id"]
             for i, seed in enumerate(seeds)]
    jobs = [clients[0].wait(name, 600) for name in names]
    for job in jobs:
        if job["status"] != "completed":
            raise RuntimeError(f"a job of {args.model}: {job['error']}")
    return jobs


def case_model_batch(args):
    """Images a second of 4 requests, one by one and made together, in turns."""
    rates, sizes = {"one by one": [], "together": []}, set()
    with serving_model(args) as one, \
            serving_model(args, "--max-batch", "4", "--batch-window", "200") as many:
        for turn in range(8):
            for name, server in zip(rates, (one, many)):
                begin = time.monotonic()
                jobs = finished(args, server, range(4 * turn, 4 * turn + 4))
                if turn > 1:
                    rates[name].append(4 / (time.monotonic() - begin))
                if server is many and turn > 1:
                    sizes |= {image["batch"] for job in jobs for image in job["images"]}
    for name, values in rates.items():
        yield row(f"{args.model.stem} {args.side}: 4 requests {name}", statistics.median(values),
                  "1/s", least=min(values), most=max(values), batches=sorted(sizes))
    one, many = (statistics.median(values) for values in rates.values())
    yield row(f"{args.model.stem} {args.side}: together over one by one", many / one, "x")


def generated_seconds(args, count):
    with tempfile.TemporaryDirectory() as folder:
        body = settings(args, 1, n=count, batch=1, prompt="a fox")
        words = [word for name, value in body.items() for word in (f"--{name}", str(value))]
        begin = time.monotonic()
        subprocess.run([str(args.program), "generate", "--model", str(args.model), "--out",
                        f"{folder}/out", *words], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - begin


def case_model_jobs(args):
    """Two clients' jobs against as many pictures of one `ebb generate`, in turns. All of one
    prompt, which the command encodes once."""
    served, commanded = [], []
    with serving_model(args) as server:
        for _ in range(3):
            jobs = finished(args, server, range(JOBS), prompt="a fox")
            # from the end of the first to that of the last
            ends = sorted(job["completed"] for job in jobs)
            served.append((ends[-1] - ends[0]) / (JOBS - 1))
            commanded.append((generated_seconds(args, JOBS) - generated_seconds(args, 1)) /
                             (JOBS - 1))
    job, picture = statistics.median(served), statistics.median(commanded)
    yield row(f"{args.model.stem} {args.side}: a job of two clients", job * 1e3, "ms", all=served)
    yield row(f"{args.model.stem} {args.side}: a picture of ebb generate", picture * 1e3, "ms",
              all=commanded)
    yield row(f"{args.model.stem} {args.side}: jobs of the server over ebb generate's pictures",
              picture / job * 100, "%")


def case_model_watched(args):
    """Time of a step with and without 64 event streams and previews, in turns."""
    streams = [request_text("GET", "/ebb/v1/events")] * 64
    polls = [request_text("GET", "/sdapi/v1/progress")]
    alone, watched, previewed = [], [], []

    def step(server, seed):
        job, = finished(args, server, [seed])
        return (job["completed"] - job["started"]) / args.steps

    with serving_model(args) as server:
        for turn in range(6):
            alone.append(step(server, turn))
            with Held(server.port, streams):
                watched.append(step(server, turn))
            with Held(server.port, streams), Held(server.port, polls, every=0.1, network=1):
                previewed.append(step(server, turn))
    alone, watched, previewed = (statistics.median(v[1:]) for v in (alone, watched, previewed))
    name = f"{args.model.stem} {args.side}"
    yield row(f"{name}: a step, alone (with the picture's ends)", alone * 1e3, "ms")
    yield row(f"{name}: what 64 event streams add", (watched / alone - 1) * 100, "%", 0.5)
    yield row(f"{name}: what these and previews ten times a second add",
              (previewed / alone - 1) * 100, "%", 3)
