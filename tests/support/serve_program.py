"""`ebb serve` as a process of tests and benches."""

import http.client
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ServeProgram:
    """With a folder of its own; it can be killed and started again at the same port. `files`: of
    its models, by name; `models`: another folder of them."""

    def __init__(self, program, *flags, engine="fake", step_ms=40, files=None, models=None):
        self.folder = tempfile.TemporaryDirectory(prefix="ebb_serve_", ignore_cleanup_errors=True)
        root = Path(self.folder.name)
        for name in ["models", "out"]:
            (root / name).mkdir()
        for name, data in (files or {}).items():
            (root / "models" / name).write_bytes(data)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.command = [str(program), "serve", "--engine", engine, "--port", str(self.port),
                        "--models", str(models or root / "models"), "--out", str(root / "out"),
                        *flags]
        if engine == "fake":
            self.command += ["--step-ms", str(step_ms)]
        self.log = open(root / "log", "wb")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        self.log.close()
        self.folder.cleanup()

    def start(self):
        """Returns the seconds until it answered."""
        begin = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        while time.monotonic() - begin < 20 and self.process.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                connection.request("GET", "/internal/ping")
                connection.getresponse().read()
                return time.monotonic() - begin
            except OSError:
                time.sleep(0.002)
            finally:
                connection.close()
        raise RuntimeError("the server does not start: " +
                           Path(self.log.name).read_text(errors="replace")[-2000:])

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    # ---- of the process
    def memory_mb(self):
        """What of it lies in memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0

    def descriptors(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
