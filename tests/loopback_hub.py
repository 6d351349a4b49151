"""A Hub on this machine, as far as pushing and loading a model needs one; it keeps files in memory.

Source: the requests that huggingface_hub sends, and https://github.com/git-lfs/git-lfs/blob/main/docs/api.
"""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

API = "/api/models/"
# A pushed repository is read at any name of a revision: there is only one.
RESOLVE = re.compile(r"/(?P<repo>[\w-]+/[\w.-]+)/resolve/[^/]+/(?P<path>.+)")
LFS = re.compile(r"/(?P<repo>[\w-]+/[\w.-]+)\.git/info/lfs/objects/batch")
COMMIT = "c" * 40
LARGE = (".safetensors", ".bin", ".png")


class Hub(ThreadingHTTPServer):
    """The server; ``repos`` maps the id of a repository to path and content."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        """Stay silent."""

    def do_HEAD(self):
        self.resolve()

    def do_GET(self):
        path = self.path.partition("?")[0]
        if not path.startswith(API):
            self.resolve()
        elif (repo := "/".join(path.removeprefix(API).split("/")[:2])) not in self.server.repos:
            self.answer(404, {"error": "no such repository"}, code="RepoNotFound")
        elif "/tree/" in path:
            files = self.server.repos[repo].items()
            tree = [{"type": "file", "path": name, "size": len(data)} for name, data in files]
            top = path.partition("/tree/")[2].count("/") == 0
            self.answer(200, [{**entry, "oid": COMMIT} for entry in tree] if top else [])
        else:
            siblings = [{"rfilename": name} for name in self.server.repos[repo]]
            self.answer(200, {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked.get('organization') or 'user'}/{asked['name']}"
            self.server.repos.setdefault(repo, {})
            self.answer(200, {"url": f"{self.server.url}/{repo}", "id": repo})
        elif path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for file in json.loads(body)["files"]
            ]
            self.answer(200, {"files": files})
        elif LFS.fullmatch(path):
            upload = {"upload": {"href": f"{self.server.url}/upload"}}
            objects = [
                {**wanted, "actions": upload, "authenticated": True}
                for wanted in json.loads(body)["objects"]
            ]
            self.answer(200, {"transfer": "basic", "objects": objects})
        elif "/commit/" in path:
            self.commit("/".join(path.removeprefix(API).split("/")[:2]), body)
        else:
            self.answer(404, {"error": f"unexpected {path}"})

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.objects[hashlib.sha256(data).hexdigest()] = data
        self.answer(200, {})

    def commit(self, repo, body):
        """Take over the files of a commit: one JSON object on a line each."""
        files = self.server.repos[repo]
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            elif entry["key"] == "deletedFile":
                files.pop(value["path"], None)
        self.answer(
            200, {"commitOid": COMMIT, "commitUrl": f"{self.server.url}/{repo}/commit/{COMMIT}"}
        )

    def resolve(self):
        """Send a file of a repository."""
        match = RESOLVE.fullmatch(self.path.partition("?")[0])
        files = self.server.repos.get(match["repo"]) if match else None
        if match is None or files is None:
            self.answer(404, {"error": "no such repository"}, code="RepoNotFound")
        elif match["path"] not in files:
            self.answer(404, {"error": "no such file"}, code="EntryNotFound")
        else:
            self.answer(200, files[match["path"]])

    def answer(self, status, content, *, code=None):
        """Send bytes, or anything else as JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        if not isinstance(content, bytes):
            self.send_header("Content-Type", "application/json")
        if code is not None:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", str(content["error"]))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def serve():
    """Serve an empty Hub."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
