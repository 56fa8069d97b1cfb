#!/usr/bin/env python3
"""Measures `ebb serve` with the engine of tests: what the server itself costs; and with a
checkpoint on a device (bench/serve_model.py).

    python bench/serve.py                          # all but the soak and the model's, a minute
    python bench/serve.py --cases overhead start
    python bench/serve.py --cases soak --minutes 10
    python bench/serve.py --model models/sd15.safetensors --side 512

Prints a table, and appends JSON lines to bench/results/serve.jsonl. A figure that is over its limit
(of docs/server.md) is marked; the exit code is 0 only if each case ran. Limits of time are not
judged where others used the machine meanwhile (the soak measures it). Needs nothing but Python.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import serve_model
import serve_soak
from serve_client import Client, Held, ServeProgram, job, request_text, row, serving

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_OTHERS = 0.2  # cores that others may use where times are judged


def quantiles(seconds):
    """Median and 99th percentile in ms."""
    order = sorted(seconds)
    return statistics.median(order) * 1e3, order[min(int(len(order) * 0.99), len(order) - 1)] * 1e3


def timed(call, times):
    out = []
    for _ in range(times):
        begin = time.monotonic()
        call()
        out.append(time.monotonic() - begin)
    return out


def spread(name, seconds, limits, **others):
    """Rows of the median and of the 99th percentile."""
    for what, value, limit in zip(["median", "p99"], quantiles(seconds), limits):
        yield row(f"{name}, {what}", value, "ms", limit, n=len(seconds), **others)


def case_overhead(args):
    """From the request to the picture, with an engine that takes no time."""
    def picture(client, side, format="png"):
        body = {"prompt": "a fox", "steps": 1, "width": side, "height": side, "seed": 1,
                "override_settings": {"samples_format": format}}
        client.post("/sdapi/v1/txt2img", body)

    with serving(args.program) as server:
        client = Client(server.port)
        for side, times, limits in [(8, 300, (3, 10)), (128, 300, (5, None)),
                                    (512, 100, (None, None)), (1024, 30, (None, None))]:
            picture(client, side)
            name = f"a picture of {side}x{side}, asked to answered, with PNG and base64"
            yield from spread(name, timed(lambda: picture(client, side), times), limits)


def case_interrupt(args):
    """From the request until the job is over; steps take 100 ms."""
    step, late, left = 0.1, [], []
    with serving(args.program, 100) as server:
        client, other = Client(server.port), Client(server.port)
        for i in range(20):
            one = client.post("/ebb/v1/jobs", job(1000))["id"]
            time.sleep(0.15 + 0.1 * random.random())
            begin = time.monotonic()
            if i % 2:
                client.json("DELETE", f"/ebb/v1/jobs/{one}")
            else:
                other.post("/sdapi/v1/interrupt", {})
            client.wait(one)
            late.append(time.monotonic() - begin)
        yield row("interrupt, until the job is over, most", max(late) * 1e3, "ms",
                  (step + 0.05) * 1e3, n=len(late))
        for _ in range(10):
            s = socket.create_connection(("127.0.0.1", server.port))
            s.sendall(request_text("POST", "/sdapi/v1/txt2img", {"prompt": "x", "steps": 1000}))
            while client.get("/internal/pending-tasks")["size"] == 0:
                time.sleep(0.005)
            time.sleep(0.2)
            begin = time.monotonic()
            s.close()
            while client.get("/internal/pending-tasks")["size"]:
                time.sleep(0.002)
            left.append(time.monotonic() - begin)
        yield row("a client leaves, until its job is over, most", max(left) * 1e3, "ms",
                  (step + 0.05) * 1e3, n=len(left))


def case_load(args):
    """64 jobs that wait, 64 streams, 184 requests more (of 256 connections)."""
    streams = [request_text("GET", "/ebb/v1/events")] * 64
    requests = [request_text("POST", "/sdapi/v1/txt2img",
                             {"prompt": f"waits {i}", "steps": 1000, "width": 64, "height": 64})
                for i in range(184)]
    with serving(args.program, 50) as server:
        client = Client(server.port)
        before = server.memory_mb()
        yield row("memory, idle", before, "MB")
        yield from spread("ping, idle", timed(lambda: client.get("/internal/ping"), 500),
                          (None, None))
        with Held(server.port, streams) as read, Held(server.port, requests, network=1) as held:
            time.sleep(1)
            refused, waits = held.statuses.get("429", 0), client.get("/internal/pending-tasks")
            alive = len(streams) + len(requests) - held.statuses.get("cut off", 0)
            note = dict(streams=read.statuses.get("200", 0), waits=waits["size"],
                        refused_429=refused, connections=alive)
            yield from spread("ping, under load",
                              timed(lambda: client.get("/internal/ping"), 2000), (None, 20), **note)
            yield from spread("progress, under load",
                              timed(lambda: client.get("/sdapi/v1/progress"), 500), (None, 20))
            full = timed(lambda: expect(429, client.ask("POST", "/ebb/v1/jobs", job())), 100)
            yield from spread("queue full, until 429", full, (5, None))
            yield row("memory, under load", server.memory_mb(), "MB", 150)


def expect(status, answer):
    if answer[0] != status:
        raise RuntimeError(f"status {answer[0]}, expected {status}: {answer[1][:200]}")


def job_seconds(client, steps):
    done = client.wait(client.post("/ebb/v1/jobs", job(steps))["id"])
    return (done["completed"] - done["started"]) / steps


def case_watchers(args):
    """The time of a step (20 ms) with and without those who look, in turns."""
    watchers = [request_text("GET", "/ebb/v1/events")] * 64
    polls = [request_text("GET", "/sdapi/v1/progress")] * 36
    alone, watched = [], []
    with serving(args.program, 20) as server:
        client = Client(server.port)
        job_seconds(client, 10)
        for _ in range(4):
            alone.append(job_seconds(client, 100))
            with Held(server.port, watchers), Held(server.port, polls, every=0.5, network=1):
                watched.append(job_seconds(client, 100))
    one, many = statistics.median(alone) * 1e3, statistics.median(watched) * 1e3
    yield row("a step of 20 ms, alone", one, "ms")
    yield row("a step of 20 ms, 64 streams and 36 who poll with previews", many, "ms")
    yield row("what they add to a step", (many - one) / one * 100, "%", 3)


def case_start(args):
    ping, page = [], []
    for _ in range(10):
        with serving(args.program) as server:
            server.kill()
            begin = time.monotonic()
            ping.append(server.start())
            status, _ = Client(server.port).ask("GET", "/")
            expect(200, (status, b""))
            page.append(time.monotonic() - begin)
    yield row("start to the first ping, most of 10", max(ping) * 1e3, "ms", 200)
    yield row("start to the page, most of 10", max(page) * 1e3, "ms", 300)


def case_kill(args):
    """50 jobs, and kill -9 five times among them: each picture is there once."""
    with serving(args.program, 20) as server:
        client = Client(server.port)
        wanted = [f"job {i:02}" for i in range(50)]
        for prompt in wanted:
            client.post("/ebb/v1/jobs", job(4, prompt=prompt))
        for _ in range(5):
            time.sleep(0.3 + 0.4 * random.random())
            server.kill()
            server.start()
        client = Client(server.port)
        while client.get("/internal/pending-tasks")["size"]:
            time.sleep(0.05)
        time.sleep(0.3)
        made = [p["prompt"] for p in client.get("/ebb/v1/images?limit=200")["images"]]
        yield row("50 jobs, 5 x kill -9: lost", sum(p not in made for p in wanted), "jobs", 0)
        twice = sum(made.count(p) - 1 for p in set(made))
        yield row("50 jobs, 5 x kill -9: made twice", twice, "jobs", 0)


def cpu_seconds(process):
    """What it has computed so far."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def served(server, body):
    """Wall clock and processor, in seconds, of a job."""
    client, before = Client(server.port), cpu_seconds(server.process)
    name = client.post("/ebb/v1/jobs", body)["id"]
    while (done := client.get(f"/ebb/v1/jobs/{name}"))["completed"] is None:
        time.sleep(0.1)
    if done["status"] != "completed":
        raise RuntimeError(f"a job of the model in the box: {done['error']}")
    return done["completed"] - done["started"], cpu_seconds(server.process) - before


def commanded(program, body, folder):
    words = [str(program), "generate", "--out", f"{folder}/{body['n']}"]
    words += [word for name, value in body.items() for word in (f"--{name}", str(value))]
    begin = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} fails")
    return time.monotonic() - begin, used.ru_utime + used.ru_stime


def case_picture(args):
    """Pictures of the model in the box, one at a time by one thread: what one more of them takes in
    a job of the server and in `ebb generate`, and what a request for one takes."""
    few, many, rounds = 1, 21, 5
    body = {"prompt": "a red fox", "steps": 4, "seed": 1, "batch": 1}
    os.environ["OMP_NUM_THREADS"] = "1"
    by = {"server": [], "command": [], "requests": []}
    with ServeProgram(args.program, "--quiet", "--device", "cpu", engine="models") as server, \
            tempfile.TemporaryDirectory() as folder:
        client = Client(server.port)
        while client.get("/ebb/v1/catalogue")["scanning"]:
            time.sleep(0.1)
        served(server, body)  # loads it
        for i in range(rounds):
            ask = {n: served(server, {**body, "n": n}) for n in (few, many)}
            run = {n: commanded(args.program, {**body, "n": n}, f"{folder}/{i}")
                   for n in (few, many)}
            for name, both in [("server", ask), ("command", run)]:
                by[name].append([(b - a) / (many - few) for a, b in zip(both[few], both[many])])
            each = [served(server, {**body, "seed": k}) for k in range(many)]
            by["requests"].append([sum(values) / many for values in zip(*each)])
    for i, clock in enumerate(["wall clock", "processor"]):
        took = {name: [pair[i] * 1e3 for pair in pairs] for name, pairs in by.items()}
        for name, what in [("command", "by `ebb generate`"), ("server", "in a job of the server"),
                           ("requests", "in a job of its own")]:
            yield row(f"one more picture {what}, {clock}", statistics.median(took[name]), "ms",
                      least=min(took[name]), most=max(took[name]))
        more = [a - b for a, b in zip(took["server"], took["command"])]
        yield row(f"what the server adds to a picture, {clock}", statistics.median(more), "ms", 5,
                  least=min(more), most=max(more))


def four_seconds(client, seed):
    """Of 4 requests at once that differ in prompt and seed, until the last is finished."""
    begin = time.monotonic()
    jobs = [client.post("/ebb/v1/jobs", {"prompt": f"{i} foxes", "seed": seed + i, "steps": 8})
            for i in range(4)]
    done = [client.wait(j["id"], 300) for j in jobs]
    expect("completed", (done[-1]["status"], json.dumps(done[-1]["error"]).encode()))
    return time.monotonic() - begin, max(i["batch"] for d in done for i in d["images"])


def case_batch(args):
    """Images a second of 4 requests, one by one and made together, in turns: with the model that
    comes with ebb, and with an engine whose steps of 20 ms take as long for many as for one."""
    for name, step_ms, others in [("the model in the box", 0, {"engine": "models"}),
                                  ("steps of 20 ms whatever the batch", 20, {})]:
        window = ("--max-batch", "4", "--batch-window", "1000")
        with serving(args.program, step_ms, **others) as one, \
                serving(args.program, step_ms, *window, **others) as many:
            clients = [Client(s.port) for s in (one, many)]
            seconds = [[], []]
            for turn in range(8):  # the first two load the model and compile the batch
                for client, to in zip(clients, seconds):
                    spent, batch = four_seconds(client, 100 * turn)
                    if turn > 1:
                        to.append(spent)
            expect(4, (batch, b"the last four were not one batch"))
        rates = [4 / statistics.median(s) for s in seconds]
        yield row(f"4 requests one by one, {name}", rates[0], "1/s", n=len(seconds[0]))
        yield row(f"4 requests together, {name}", rates[1], "1/s", n=len(seconds[1]))


def case_soak(args):
    yield from serve_soak.soak(args.program, args.minutes)


CASES, MODEL_CASES = ({name[5:]: case for name, case in names.items() if name.startswith("case_")}
                      for names in (globals(), vars(serve_model)))


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} threads"
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=[*CASES, *MODEL_CASES])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/ebb")
    parser.add_argument("--minutes", type=float, default=10, help="of the soak")
    parser.add_argument("--model", type=pathlib.Path, help="of the cases model_*, its path")
    parser.add_argument("--side", type=int, default=512, help="of the model's pictures, in pixels")
    parser.add_argument("--steps", type=int, default=20, help="of the model's pictures")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/serve.jsonl")
    args = parser.parse_args()
    cases = {**CASES, **MODEL_CASES}
    args.cases = args.cases or (MODEL_CASES if args.model else [c for c in CASES if c != "soak"])
    if not args.model and (wanted := [c for c in args.cases if c in MODEL_CASES]):
        parser.error(f"--model FILE is missing, for {', '.join(wanted)}")
    failed, facts = False, {"machine": machine(), "time": time.strftime("%F %H:%M")}
    if args.model:
        facts["gpu"] = serve_model.gpu()
    for name in args.cases:
        try:
            for r in cases[name](args):
                judged = r.get("others_cores", 0) <= MOST_OTHERS
                over = judged and r["limit"] is not None and r["value"] > r["limit"]
                limit = "" if r["limit"] is None else f"at most {r['limit']:g}"
                says = "  OVER" if over else "" if judged else "  not judged: the machine is shared"
                print(f"{r['name']:68} {r['value']:10.2f} {r['unit']:5} {limit}{says}", flush=True)
                with args.out.open("a") as out:
                    line = {"bench": "serve", "case": name, **r, "over": over if judged else None,
                            **facts}
                    out.write(json.dumps(line) + "\n")
        except (RuntimeError, OSError) as e:
            failed = True
            print(f"{name}: {e}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
