"""A page in headless Chromium, over the pipe of its DevTools; no driver and no port are needed.

    python tests/browser.py report.html FOLDER

takes pictures of a page in three widths, light and dark, to be looked at.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDTHS = (375, 768, 1280)
# Chromium reads commands from descriptor 3 and writes answers to 4.
LAUNCH = """import os, sys
os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"""
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Page:
    """A tab; messages of the console and the network are kept."""

    def __init__(self, commands, answers):
        self._commands = commands
        self._answers = answers
        self._count = 0
        self._session = None
        self.problems = []
        self.requests = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Send a command and wait for its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._count:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self):
        """Read a message; keep events that a reader should see."""
        parts = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("Chromium went away")
            parts += byte
        message = json.loads(parts)
        name, params = message.get("method"), message.get("params", {})
        if name == "Log.entryAdded":
            self.problems.append(params["entry"]["text"])
        elif name in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.problems.append(json.dumps(params))
        elif name == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif name == "Page.loadEventFired":
            self._loaded = True
        return message

    def open(self, path, width=1280, scheme="light"):
        """Open a file as a screen of this width sees it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self._loaded = False
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not self._loaded:
            self._read()

    def evaluate(self, expression):
        """Evaluate JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["text"])
        return found["result"].get("value")

    def picture(self, path):
        """Write a PNG of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browse():
    """Start Chromium; give a page of it."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
    os.close(theirs_in)
    os.close(theirs_out)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, high), *command],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in high:
            os.close(end)
        with os.fdopen(ours_out, "wb") as commands, os.fdopen(ours_in, "rb") as answers:
            try:
                yield Page(commands, answers)
            finally:
                process.kill()
                process.wait()


def main(path, folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    with browse() as page:
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                page.open(path, width, scheme)
                page.picture(Path(folder) / f"{width}-{scheme}.png")
                wide = page.evaluate("document.documentElement.scrollWidth")
                print(width, scheme, wide, page.problems)


if __name__ == "__main__":
    main(*sys.argv[1:])
