"""Clients of `ebb serve --engine fake`, and those that hold connections open."""

import base64
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import selectors
import socket
import struct
import sys
import time


sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))
from serve_program import ServeProgram  # noqa: E402


def row(name, value, unit, limit=None, **others):
    return {"name": name, "value": round(value, 3), "unit": unit, "limit": limit, **others}


def serving(program, step_ms=0, *flags, engine="fake", **others):
    return ServeProgram(program, "--quiet", *flags, step_ms=step_ms, engine=engine, **others)


class Client:
    """One connection that is kept open."""

    def __init__(self, port, address="127.0.0.1", timeout=60):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout,
                                                     source_address=(address, 0))

    def ask(self, method, path, body=None):
        """The status and the body."""
        data = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        self.connection.request(method, path, data, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def get(self, path):
        return self.json("GET", path)

    def post(self, path, body):
        return self.json("POST", path, body)

    def json(self, method, path, body=None):
        status, data = self.ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {data[:300]}")
        return json.loads(data)

    def wait(self, job, seconds=60):
        """The job, once it is finished."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now = self.get(f"/ebb/v1/jobs/{job}")
            if now["status"] not in ("queued", "generating"):
                return now
            time.sleep(0.005)
        raise RuntimeError(f"job {job} does not end")


def job(steps=1, side=64, prompt="a fox", **others):
    return {"prompt": prompt, "steps": steps, "size": f"{side}x{side}", "seed": 1, **others}


def request_text(method, path, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if data else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n".encode() + data


def form_text(fields):
    """The body of a form and its Content-Type. `fields`: (name, file name or "", bytes)."""
    parts = (b'--soak\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
             % (name.encode(), f'; filename="{file}"'.encode() if file else b"", data)
             for name, file, data in fields)
    return b"".join(parts) + b"--soak--\r\n", "multipart/form-data; boundary=soak"


def graph(steps=4, side=64, upload=None, text="soak"):
    """A graph of ComfyUI's nodes for the model in the box; of a picture that was uploaded."""
    def node(kind, **inputs):
        return {"class_type": kind, "inputs": inputs}

    out = {"1": node("CheckpointLoaderSimple", ckpt_name="box.safetensors"),
           "2": node("CLIPTextEncode", clip=["1", 1], text=text),
           "3": node("CLIPTextEncode", clip=["1", 1], text=""),
           "4": node("EmptyLatentImage", width=side, height=side, batch_size=1),
           "5": node("KSampler", model=["1", 0], positive=["2", 0], negative=["3", 0],
                     latent_image=["4", 0], seed=random.randint(0, 1 << 60), steps=steps, cfg=3,
                     sampler_name="euler", scheduler="normal", denoise=1),
           "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
           "7": node("SaveImage", images=["6", 0], filename_prefix="soak")}
    if upload:
        out["4"] = node("VAEEncode", pixels=["8", 0], vae=["1", 2])
        out["8"] = node("LoadImage", image=upload)
        out["5"]["inputs"]["denoise"] = 0.6
    return out


class WebSocket:
    """The messages of ComfyUI's /ws (RFC 6455), on a socket."""

    def __init__(self, connection, client_id):
        self.socket, self.held = connection, b""
        key = base64.b64encode(os.urandom(16)).decode()
        connection.sendall(f"GET /ws?clientId={client_id} HTTP/1.1\r\nHost: localhost\r\n"
                           "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                           f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
                           .encode())
        while b"\r\n\r\n" not in self.held:
            self.more()
        head, _, self.held = self.held.partition(b"\r\n\r\n")
        self.status = int(head[9:12])

    def more(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the WebSocket was closed")
        self.held += data

    def take(self, size):
        while len(self.held) < size:
            self.more()
        out, self.held = self.held[:size], self.held[size:]
        return out

    def next(self):
        """Of a text message its JSON, else None."""
        kind, size = self.take(2)
        if size == 126:
            size, = struct.unpack(">H", self.take(2))
        elif size == 127:
            size, = struct.unpack(">Q", self.take(8))
        data = self.take(size)
        return json.loads(data) if kind & 15 == 1 else None

    def send(self, kind, data, last=True, said=None):
        """A masked frame; `said`: the length that it claims, below 126."""
        size = len(data) if said is None else said
        self.socket.sendall(bytes([kind | (128 if last else 0), 128 | size]) + bytes(4) + data)


class Held:
    """Connections that are held open by another process, which reads what comes. `requests`: what
    each of them sends; `every`: seconds after which it is sent again, 0: never; `network`: of their
    addresses, another one for each who holds some, as the server counts by address."""

    def __init__(self, port, requests, every=0, network=0):
        self.statuses = multiprocessing.Manager().dict()
        self.begun = multiprocessing.Event()
        self.process = multiprocessing.Process(
            target=hold, args=(port, (requests, every, network), self.begun, self.statuses),
            daemon=True)

    def __enter__(self):
        self.process.start()
        if not self.begun.wait(30):
            raise RuntimeError("the clients do not start")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()


def hold(port, what, begun, statuses):
    """Of a process. 48 connections have an address."""
    requests, every, network = what
    waiting, due = selectors.DefaultSelector(), []
    for i, text in enumerate(requests):
        s = socket.create_connection(("127.0.0.1", port), timeout=20,
                                     source_address=(f"127.0.{network}.{2 + i // 48}", 0))
        s.sendall(text)
        s.setblocking(False)
        waiting.register(s, selectors.EVENT_READ)
        due.append([time.monotonic() + every * (1 + random.random()), s, text])
    begun.set()
    while True:
        for key, _ in waiting.select(0.02):
            data = read(key.fileobj)
            if data is None:
                waiting.unregister(key.fileobj)
                key.fileobj.close()
                statuses["cut off"] = statuses.get("cut off", 0) + 1
            elif data.startswith(b"HTTP/1.1 "):
                status = data[9:12].decode()
                statuses[status] = statuses.get(status, 0) + 1
        for one in due if every else []:
            if one[0] < time.monotonic() and one[1].fileno() >= 0:
                one[0] = time.monotonic() + every
                try:
                    one[1].sendall(one[2])
                except OSError:  # it is cut off, or has no room: read() sees which
                    pass


def read(s):
    """None: it is closed."""
    try:
        return s.recv(1 << 18) or None
    except BlockingIOError:
        return b" "
    except OSError:
        return None
