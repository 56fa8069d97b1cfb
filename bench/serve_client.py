"""Clients of `ebb serve --engine fake`, and those that hold connections open."""

import http.client
import json
import multiprocessing
import pathlib
import random
import selectors
import socket
import sys
import time


sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))
from serve_program import ServeProgram  # noqa: E402


def row(name, value, unit, limit=None, **others):
    return {"name": name, "value": round(value, 3), "unit": unit, "limit": limit, **others}


def serving(program, step_ms=0, *flags, engine="fake"):
    return ServeProgram(program, "--quiet", *flags, step_ms=step_ms, engine=engine)


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
