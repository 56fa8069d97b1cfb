"""Mixed load on `ebb serve` for minutes: clients of each protocol, jobs made together, the view of
training, 100 that watch, and those that hang, leave in the middle of a body or of a message, or
read an event stream and come back."""

import collections
import json
import os
import pathlib
import random
import socket
import statistics
import tempfile
import threading
import time
import uuid

from serve_client import (Client, Held, WebSocket, form_text, graph, job, request_text, row,
                          serving)

SMALL = {"prompt": "soak", "steps": 4, "width": 64, "height": 64}


class Load:
    """Counts what happened; each client is a function that is called again and again."""

    def __init__(self, server):
        self.server, self.port = server, server.port
        self.counts = collections.Counter()
        self.stop = threading.Event()
        self.faults = []
        self.steps = []  # seconds of one, of jobs of 50 steps

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30,
                                        source_address=(f"127.0.0.{random.randint(2, 250)}", 0))

    def client(self):
        return Client(self.port, f"127.0.0.{random.randint(2, 250)}")

    def again(self, call):
        name = call.__name__
        while not self.stop.is_set():
            try:
                call()
                self.counts[name] += 1
            except Exception as e:  # any is a finding
                if not self.stop.is_set():
                    self.faults.append(f"{name}: {type(e).__name__} {e}")
                time.sleep(0.2)

    # ---- clients that behave
    def native(self):
        client = self.client()
        status, data = client.ask("POST", "/ebb/v1/jobs", job(4, prompt="soak", n=2))
        self.count(status)
        if status == 202:
            time.sleep(0.5)
            client.get("/ebb/v1/images?limit=20")

    def sdapi(self):
        client = self.client()
        self.count(client.ask("POST", "/sdapi/v1/txt2img", SMALL)[0])
        client.get("/sdapi/v1/progress")

    def openai(self):
        body = {"prompt": "soak", "size": "64x64", "ebb": {"steps": 3}, "n": 1}
        self.count(self.client().ask("POST", "/v1/images/generations", body)[0])

    def easy_diffusion(self):
        client = self.client()
        task = f"task-{random.randint(0, 10**9)}"
        status, _ = client.ask("POST", "/v1/sdapi/v1/txt2img", {**SMALL, "force_task_id": task})
        self.count(429 if status == 500 else status)  # it reads no other
        client.post("/v1/internal/progress", {"id_task": task})

    def options(self):
        client = self.client()
        self.count(client.ask("POST", "/sdapi/v1/options", {"CLIP_stop_at_last_layers": 2})[0])
        for path in ["/sdapi/v1/options", "/sdapi/v1/samplers", "/v1/models", "/ebb/v1/catalogue"]:
            client.get(path)
        time.sleep(0.5)

    def sdcpp(self):
        client = self.client()
        status, data = client.ask("POST", "/sdcpp/v1/img_gen",
                                  {"prompt": "soak", "width": 64, "height": 64,
                                   "sample_params": {"sample_steps": 3}})
        self.count(status)
        end = time.monotonic() + 60
        while status == 202 and time.monotonic() < end:
            status, _ = client.ask("GET", f"/sdcpp/v1/jobs/{json.loads(data)['id']}")
            time.sleep(0.5)
            if random.random() < 0.3:
                break

    def edits(self):
        """A form, with a picture of the gallery."""
        client = self.client()
        pictures = client.get("/ebb/v1/images?limit=1")["images"]
        if not pictures:
            return time.sleep(0.2)
        status, picture = client.ask("GET", pictures[0]["url"])
        if status != 200:  # it has been removed
            return None
        status, _ = self.form(client, "/v1/images/edits", [
            ("prompt", "", b"soak"), ("size", "", b"64x64"), ("image", "a.png", picture)])
        return self.count(status)

    def form(self, client, path, fields):
        body, kind = form_text(fields)
        client.connection.request("POST", path, body, {"Content-Type": kind})
        answer = client.connection.getresponse()
        return answer.status, answer.read()

    def comfy(self):
        """A prompt whose end its WebSocket tells, and its picture."""
        name = uuid.uuid4().hex
        with self.socket() as s:
            socket_of = WebSocket(s, name)
            if socket_of.status == 503:  # 64 read streams
                return time.sleep(0.2)
            status, data = self.client().ask("POST", "/prompt",
                                             {"prompt": graph(), "client_id": name})
            self.count(status)
            if status != 200:
                return time.sleep(0.2)
            prompt = json.loads(data)["prompt_id"]
            while True:
                message = socket_of.next()
                if (message and message["type"] == "executing" and message["data"]["node"] is None
                        and message["data"]["prompt_id"] == prompt):
                    break
        client = self.client()
        history = client.get(f"/history/{prompt}")
        images = [i for node in history[prompt]["outputs"].values() for i in node["images"]] \
            if history else []  # 100 later ones: it is forgotten
        for image in images:
            client.ask("GET", f"/view?filename={image['filename']}&type=output")
        return None

    def comfy_edit(self):
        """An upload, and a prompt of it that is polled."""
        client = self.client()
        pictures = client.get("/ebb/v1/images?limit=1")["images"]
        status, picture = client.ask("GET", pictures[0]["url"]) if pictures else (404, b"")
        if status != 200:
            return time.sleep(0.2)
        name = f"soak {random.randint(0, 200)}.png"
        self.count(self.form(client, "/upload/image", [
            ("image", name, picture), ("type", "", b"input"), ("overwrite", "", b"true")])[0])
        status, data = client.ask("POST", "/prompt", {"prompt": graph(upload=name)})
        self.counts[str(status)] += 1  # 400 where 64 others were uploaded since
        end = time.monotonic() + 60
        while status == 200 and time.monotonic() < end:
            if client.get(f"/history/{json.loads(data)['prompt_id']}"):
                break
            time.sleep(0.2)
        client.get("/queue"), client.get("/object_info"), client.get("/history")
        return None

    def alike(self):
        """Four that can be made together, of four clients."""
        clients = [self.client() for _ in range(4)]
        answers = [c.ask("POST", "/ebb/v1/jobs", job(6, prompt=f"alike {i}", guidance=5))
                   for i, c in enumerate(clients)]
        for client, (status, data) in zip(clients, answers):
            self.count(status)
            if status == 202:
                done = self.finished(client, json.loads(data)["id"])
                self.counts["made together"] += any(i["batch"] > 1 for i in done["images"])
        time.sleep(0.5)

    @staticmethod
    def finished(client, name):
        """The job; without pictures where 100 others were finished behind it meanwhile."""
        while (answer := client.ask("GET", f"/ebb/v1/jobs/{name}"))[0] == 200:
            done = json.loads(answer[1])
            if done["completed"]:
                return done
            time.sleep(0.05)
        return {"images": []}

    def training(self):
        client = self.client()
        for run in client.get("/ebb/v1/training")["runs"]:
            one = client.get(f"/ebb/v1/training/{run['id']}")
            for sample in one["samples"][:2]:
                client.ask("GET", sample["url"])
        time.sleep(0.5)

    def measures_steps(self):
        client = self.client()
        status, data = client.ask("POST", "/ebb/v1/jobs", job(50, prompt="measured"))
        if status == 202:
            done = client.wait(json.loads(data)["id"], 120)
            if done["status"] == "completed":
                self.steps.append((done["completed"] - done["started"]) / 50)
        time.sleep(5)

    def cancels(self):
        client = self.client()
        status, data = client.ask("POST", "/ebb/v1/jobs", job(500, prompt="cancelled"))
        self.count(status)
        time.sleep(0.3)
        if status == 202:
            client.json("DELETE", f"/ebb/v1/jobs/{json.loads(data)['id']}")

    def removes(self):
        """Keeps the gallery small, as the disk is."""
        client = self.client()
        for one in client.get("/ebb/v1/images?limit=200")["images"][20:]:
            client.ask("DELETE", one["url"])
        time.sleep(1)

    # ---- clients that do not
    def leaves_in_the_body(self):
        text = request_text("POST", "/sdapi/v1/img2img", {**SMALL, "init_images": ["A" * 400000]})
        with self.socket() as s:
            s.sendall(text[:random.randint(1, len(text) - 1)])
        time.sleep(0.05)

    def leaves_before_the_answer(self):
        with self.socket() as s:
            s.sendall(request_text("POST", "/sdapi/v1/txt2img", {**SMALL, "steps": 200}))
            time.sleep(0.1 + 0.3 * random.random())

    def hangs_in_the_header(self):
        with self.socket() as s:
            s.sendall(b"GET /internal/ping HTTP/1.1\r\nHost: ")
            s.recv(100)  # until the server ends it

    def hangs_in_the_body(self):
        with self.socket() as s:
            s.sendall(request_text("POST", "/ebb/v1/jobs", job())[:-5])
            s.recv(100)

    def sends_noise(self):
        with self.socket() as s:
            s.sendall(os.urandom(200) + b"\r\n\r\n")
            s.recv(1000)
        time.sleep(0.05)

    def reconnects(self):
        """Reads events for a while, leaves, and asks for what it missed."""
        seen = 0
        for _ in range(3):
            with self.socket() as s:
                s.sendall(b"GET /ebb/v1/events HTTP/1.1\r\nHost: localhost\r\n"
                          + (b"Last-Event-ID: %d\r\n" % seen if seen else b"") + b"\r\n")
                end = time.monotonic() + 0.5 + random.random()
                s.settimeout(0.5)
                while time.monotonic() < end:
                    try:
                        data = s.recv(1 << 16)
                    except TimeoutError:
                        continue
                    for line in data.split(b"\n"):
                        if line.startswith(b"id: ") and line[4:].strip().isdigit():
                            seen = int(line[4:])

    def never_reads(self):
        with self.socket() as s:
            s.sendall(request_text("GET", "/ebb/v1/events"))
            time.sleep(10 * random.random())

    def breaks_a_message(self):
        """Of a WebSocket: fragments and lengths that are wrong, and leaves in the middle."""
        with self.socket() as s:
            socket_of = WebSocket(s, "soak")
            if socket_of.status != 101:
                return time.sleep(0.2)
            socket_of.send(*random.choice([(1, b"x" * 100, False), (9, b"ping"), (2, b"x")]))
            socket_of.send(random.choice([0, 1, 3, 8]), b"y" * 20, said=random.randint(0, 125))
            time.sleep(0.2)
        return None

    def count(self, status):
        self.counts[str(status)] += 1
        if status >= 500 or status in (400, 422):
            raise RuntimeError(f"status {status}")


CLIENTS = {"native": 2, "sdapi": 3, "openai": 2, "easy_diffusion": 1, "options": 1, "sdcpp": 1,
           "edits": 1, "comfy": 2, "comfy_edit": 1, "alike": 1, "training": 2,
           "measures_steps": 1, "cancels": 1, "removes": 1, "breaks_a_message": 1,
           "leaves_in_the_body": 2, "leaves_before_the_answer": 2, "hangs_in_the_header": 6,
           "hangs_in_the_body": 6, "sends_noise": 1, "reconnects": 4, "never_reads": 4}


WATCHERS = [request_text("GET", "/ebb/v1/events")] * 50
POLLERS = [request_text("GET", "/sdapi/v1/progress")] * 50


class Training:
    """Folders of `ebb train` that grow, as those of runs do."""

    def __init__(self, root, picture):
        self.runs = [pathlib.Path(root) / name for name in ("one", "two")]
        self.step, self.picture = 0, picture
        for run in self.runs:
            (run / "samples").mkdir(parents=True)
            (run / "config.json").write_text('{"train":{"steps":1000000,"batch":8}}')

    def grow(self):
        """50 steps more of each."""
        lines = [json.dumps({"step": s, "loss": 1 / (s + 1), "lr": 1e-3, "seconds": s / 10})
                 for s in range(self.step, self.step + 50)]
        self.step += 50
        for run in self.runs:
            with (run / "metrics.jsonl").open("a") as metrics:
                metrics.write("\n".join(lines) + "\n")
            if self.step % 1000 == 0:
                (run / f"samples/step-{self.step:08}.png").write_bytes(self.picture)
                for old in sorted((run / "samples").iterdir())[:-30]:
                    old.unlink()


class Machine:
    """What others compute beside the server and its clients, in cores."""

    def __init__(self, *processes):
        self.own = [*processes, os.getpid()]
        self.begin = time.monotonic(), self.others()

    def others(self):
        fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        busy = sum(map(int, fields)) - int(fields[3]) - int(fields[4])  # idle, waiting for disks
        return (busy - sum(map(self.ticks, self.own))) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def ticks(process):
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def cores_of_others(self):
        then, used = self.begin
        return max(0, (self.others() - used) / (time.monotonic() - then))


MODEL = pathlib.Path(__file__).resolve().parents[1] / "share/ebb/box.safetensors"
FLAGS = ("--max-batch", "4", "--batch-window", "20")


def soak(program, minutes):
    """Rows; that of the memory has what it was each minute."""
    with tempfile.TemporaryDirectory() as runs, \
            serving(program, 20, *FLAGS, "--runs", runs,
                    files={MODEL.name: MODEL.read_bytes()}) as server:
        load = Load(server)
        threads = [threading.Thread(target=load.again, args=(getattr(load, name),), daemon=True)
                   for name, number in CLIENTS.items() for _ in range(number)]
        client = Client(server.port, "127.0.0.251")
        done = client.wait(client.post("/ebb/v1/jobs", job(50, prompt="alone"))["id"])
        alone = (done["completed"] - done["started"]) / 50
        training = Training(runs, client.ask("GET", done["images"][0]["url"])[1])
        idle, memory, pings = server.memory_mb(), [], []
        opened = server.descriptors()  # with this client's connection
        with Held(server.port, WATCHERS) as read, \
                Held(server.port, POLLERS, every=0.5, network=1) as polls:
            for thread in threads:
                thread.start()
            machine = Machine(server.process.pid, read.process.pid, polls.process.pid)
            watch(server, load, training, minutes * 60, memory, pings)
            others = round(machine.cores_of_others(), 2)
        yield from after(server, load, threads, (idle, memory, pings, minutes * 60, others))
        client.connection.close()
        yield from left(server, opened)
        yield row("soak: a step of 20 ms, before", alone * 1e3, "ms")
        if len(load.steps) < 5:
            raise RuntimeError("too few jobs were measured: --minutes must be more")
        first, *_, last = fifths(load.steps)
        yield row("soak: a step of 20 ms, median of the first fifth", first * 1e3, "ms")
        yield row("soak: a step of 20 ms, median of the last fifth", last * 1e3, "ms")
        slower = (last / first - 1) * 100
        yield row("soak: step, slower from the first fifth to the last", slower, "%", 1,
                  others_cores=others)


def watch(server, load, training, seconds, memory, pings):
    begin, told = time.monotonic(), 0
    client = Client(server.port, "127.0.0.251")
    while (now := time.monotonic() - begin) < seconds:
        before = time.monotonic()
        client.get("/internal/ping")
        pings.append(time.monotonic() - before)
        memory.append(server.memory_mb())
        training.grow()
        if now - told > 30:
            told = now
            print(f"  {now:4.0f} s of {seconds:.0f}, {memory[-1]:.1f} MB, "
                  f"{server.descriptors()} descriptors, {len(load.faults)} faults", flush=True)
        time.sleep(0.2)


def fifths(values):
    """The median of each fifth of the time."""
    return [statistics.median(values[len(values) * i // 5:len(values) * (i + 1) // 5] or [0])
            for i in range(5)]


def left(server, opened):
    """Descriptors beside those of the beginning; one client is connected, as then."""
    client = Client(server.port, "127.0.0.251")
    client.get("/internal/ping")
    time.sleep(1)  # others are closed
    now = server.descriptors()
    yield row("soak: descriptors, before", opened, "")
    yield row("soak: descriptors, more when all have left", now - opened, "", 0)


def after(server, load, threads, measured):
    idle, memory, pings, seconds, others = measured
    load.stop.set()
    client = Client(server.port, "127.0.0.251")
    client.json("DELETE", "/ebb/v1/jobs")
    for thread in threads:
        thread.join(40)
    client.connection.close()
    time.sleep(15)
    print(f"  {dict(load.counts)}")
    for fault in sorted(set(load.faults))[:10]:
        print(f"  {fault}")
    pings.sort()
    part = max(1, int(60 * len(memory) / seconds))
    each_minute = [round(statistics.mean(memory[i:i + part]), 2)
                   for i in range(0, len(memory), part)]
    yield row("soak: memory, before", idle, "MB", each_minute=each_minute)
    yield row("soak: memory, most", max(memory), "MB", 150)
    for name, value in zip(["first", "second", "third", "fourth", "last"], fifths(memory)):
        yield row(f"soak: memory, median of the {name} fifth", value, "MB")
    _, second, *_, last = fifths(memory)  # the first fills what is kept: events, finished jobs
    yield row("soak: memory, when all have left", server.memory_mb(), "MB", round(last * 1.05, 1))
    growth = (last / second - 1) * 100
    yield row("soak: memory, growth from the second fifth to the last", growth, "%", 1)
    turns = sum(n for name, n in load.counts.items() if hasattr(load, name))
    yield row("soak: turns of clients", turns, "")
    together = load.counts["made together"]
    yield row("soak: jobs made together", together, "")
    yield row("soak: no job was made together with another", int(together == 0), "", 0)
    yield row("soak: faults", len(load.faults), "", 0)
    yield row("soak: cores that others used", others, "")
    yield row("soak: ping, p99", pings[int(len(pings) * 0.99)] * 1e3, "ms", 20,
              others_cores=others)
