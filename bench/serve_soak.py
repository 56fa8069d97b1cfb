"""Mixed load on `ebb serve` for minutes: clients of each protocol, and those that hang, leave in
the middle of a body, or read an event stream and come back."""

import collections
import json
import os
import random
import socket
import statistics
import threading
import time

from serve_client import Client, job, request_text, serving

SMALL = {"prompt": "soak", "steps": 4, "width": 64, "height": 64}


class Load:
    """Counts what happened; each client is a function that is called again and again."""

    def __init__(self, server):
        self.server, self.port = server, server.port
        self.counts = collections.Counter()
        self.stop = threading.Event()
        self.faults = []

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

    def count(self, status):
        self.counts[str(status)] += 1
        if status >= 500 or status in (400, 422):
            raise RuntimeError(f"status {status}")


CLIENTS = {"native": 2, "sdapi": 3, "openai": 2, "cancels": 1, "removes": 1,
           "leaves_in_the_body": 2, "leaves_before_the_answer": 2, "hangs_in_the_header": 6,
           "hangs_in_the_body": 6, "sends_noise": 1, "reconnects": 4, "never_reads": 4}


def soak(program, minutes):
    """Rows of (name, value, unit, limit)."""
    with serving(program, 20) as server:
        load = Load(server)
        threads = [threading.Thread(target=load.again, args=(getattr(load, name),), daemon=True)
                   for name, number in CLIENTS.items() for _ in range(number)]
        idle, memory, pings = server.memory_mb(), [], []
        for thread in threads:
            thread.start()
        begin, told = time.monotonic(), 0
        client = Client(server.port, "127.0.0.251")
        while (now := time.monotonic() - begin) < minutes * 60:
            before = time.monotonic()
            client.get("/internal/ping")
            pings.append(time.monotonic() - before)
            memory.append(server.memory_mb())
            if now - told > 30:
                told = now
                print(f"  {now:4.0f} s of {minutes * 60:.0f}, {memory[-1]:.1f} MB, "
                      f"{server.descriptors()} descriptors, {len(load.faults)} faults", flush=True)
            time.sleep(0.2)
        yield from after(server, load, threads, idle, memory, pings)


def fifths(memory):
    """The median of each fifth of the time."""
    return [statistics.median(memory[len(memory) * i // 5:len(memory) * (i + 1) // 5])
            for i in range(5)]


def after(server, load, threads, idle, memory, pings):
    load.stop.set()
    client = Client(server.port, "127.0.0.251")
    client.json("DELETE", "/ebb/v1/jobs")
    for thread in threads:
        thread.join(40)
    time.sleep(15)
    print(f"  {dict(load.counts)}")
    for fault in sorted(set(load.faults))[:10]:
        print(f"  {fault}")
    pings.sort()
    yield "soak: memory, before", idle, "MB"
    yield "soak: memory, most", max(memory), "MB", 150
    for name, value in zip(["first", "second", "third", "fourth", "last"], fifths(memory)):
        yield f"soak: memory, median of the {name} fifth", value, "MB"
    yield "soak: memory, when all have left", server.memory_mb(), "MB"
    _, second, *_, last = fifths(memory)  # the first fills what is kept: events, finished jobs
    growth = (last / second - 1) * 100
    yield "soak: memory, growth from the second fifth to the last", growth, "%", 1
    yield "soak: descriptors, when all have left", server.descriptors(), ""
    yield "soak: requests answered or left", sum(load.counts.values()), ""
    yield "soak: faults", len(load.faults), "", 0
    yield "soak: ping, p99", pings[int(len(pings) * 0.99)] * 1e3, "ms", 20
