"""A server of `ebb serve --engine fake`, and clients of it that hold connections open."""

import http.client
import json
import multiprocessing
import pathlib
import random
import selectors
import socket
import subprocess
import tempfile
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """With a folder of its own; it can be killed and started again."""

    def __init__(self, program, step_ms=0, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="ebb_serve_", ignore_cleanup_errors=True)
        self.port = free_port()
        self.command = [str(program), "serve", "--engine", "fake", "--step-ms", str(step_ms),
                        "--port", str(self.port), "--quiet",
                        "--out", str(pathlib.Path(self.folder.name) / "out"), *flags]
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        self.folder.cleanup()

    def start(self):
        """Returns the seconds until it answered a ping."""
        begin = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE)
        while time.monotonic() - begin < 20 and self.process.poll() is None:
            try:
                Client(self.port).get("/internal/ping")
                return time.monotonic() - begin
            except OSError:
                time.sleep(0.002)
        raise RuntimeError(f"the server does not start: {self.process.stderr.read1(2000)}")

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()
            self.process = None

    def memory_mb(self):
        """What of it lies in memory."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def threads(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()))


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
    each of them sends; `every`: seconds after which it is sent again, 0: never."""

    def __init__(self, port, requests, every=0):
        self.statuses = multiprocessing.Manager().dict()
        self.begun = multiprocessing.Event()
        self.process = multiprocessing.Process(
            target=hold, args=(port, requests, every, self.begun, self.statuses), daemon=True)

    def __enter__(self):
        self.process.start()
        if not self.begun.wait(30):
            raise RuntimeError("the clients do not start")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()


def hold(port, requests, every, begun, statuses):
    """Of a process. 48 connections have an address, as the server counts them by address."""
    waiting, due = selectors.DefaultSelector(), []
    for i, text in enumerate(requests):
        s = socket.create_connection(("127.0.0.1", port), timeout=20,
                                     source_address=(f"127.0.0.{2 + i // 48}", 0))
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
