"""`ebb serve --engine fake` for the page's tests."""

import http.client
import subprocess
import tempfile
import time
from pathlib import Path

from webdriver import free_port


class PageServer:
    """A server with a folder of its own; it can be killed and started again at the same port."""

    def __init__(self, program, *flags, step_ms=40, files=None):
        self.folder = tempfile.TemporaryDirectory(prefix="ebb_page_",
                                                  ignore_cleanup_errors=True)
        root = Path(self.folder.name)
        for name in ["models", "out"]:
            (root / name).mkdir()
        for name, data in (files or {}).items():
            (root / "models" / name).write_bytes(data)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.command = [program, "serve", "--engine", "fake", "--step-ms", str(step_ms),
                        "--port", str(self.port), "--models", str(root / "models"),
                        "--out", str(root / "out"), *flags]
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
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        for _ in range(200):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/")
                connection.getresponse().read()
                return
            except OSError:
                time.sleep(0.05)
            if self.process.poll() is not None:
                break
        raise RuntimeError("the server does not start: " +
                           Path(self.log.name).read_text(errors="replace")[-2000:])

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
