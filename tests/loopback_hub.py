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

import yaml

API = "/api/models/"
# A pushed repository is read at any name of a revision: there is only one.
RESOLVE = re.compile(r"/(?P<repo>[\w-]+/[\w.-]+)/resolve/[^/]+/(?P<path>.+)")
LFS = re.compile(r"/(?P<repo>[\w-]+/[\w.-]+)\.git/info/lfs/objects/batch")
COMMIT = "c" * 40
LARGE = (".safetensors", ".bin", ".png")
HEADER = re.compile(r"^---\n(.*?)\n---\n", re.DOTALL)
# The Hub's schema of a card. Source: https://github.com/huggingface/hub-docs, modelcard.md
METADATA = {
    "base_model": (str, list),
    "datasets": list,
    "language": (str, list),
    "library_name": str,
    "license": str,
    "metrics": list,
    "model-index": list,
    "pipeline_tag": str,
    "tags": list,
}


class Hub(ThreadingHTTPServer):
    """The server; ``repos`` maps the id of a repository to path and content."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}
        # end of a path -> status and reason with which a POST to it is refused
        self.refused: dict[str, tuple[int, str]] = {}

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
        refusals = [found for end, found in self.server.refused.items() if path.endswith(end)]
        if not self.headers.get("Authorization"):
            refusals = [(401, "Invalid username or password.")]
        if refusals:
            self.answer(refusals[0][0], {"error": refusals[0][1]})
        else:
            self.post(path, body)

    def post(self, path, body):
        """Accept uploads; everybody who may write may write to ``user``."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked.get('organization') or 'user'}/{asked['name']}"
            if not repo.startswith("user/"):
                self.answer(403, {"error": "You do not have the rights to create this model"})
                return
            self.server.repos.setdefault(repo, {})
            self.answer(200, {"url": f"{self.server.url}/{repo}", "id": repo})
        elif path == "/api/validate-yaml":
            errors = check_card(json.loads(body)["content"])
            messages = [{"message": error} for error in errors]
            self.answer(400 if errors else 200, {"errors": messages, "warnings": []})
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
        if status >= 400 and "error" in content:
            self.send_header("X-Error-Message", content["error"])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def check_card(text):
    """List the errors in the metadata of a card that the Hub would find."""
    found = HEADER.match(text)
    if found is None:
        return ["no metadata"]
    metadata = yaml.safe_load(found[1])
    errors = [f"unknown {key}" for key in metadata if key not in METADATA]
    errors += [
        f"{key}: {value!r}"
        for key, value in metadata.items()
        if not isinstance(value, METADATA.get(key, object)) or not value
    ]
    for model in metadata.get("model-index", []):
        for result in model["results"] if model.get("name") else [{}]:
            parts = (result.get("task", {}), "type"), (result.get("dataset", {}), "type")
            parts += ((result.get("dataset", {}), "name"),)
            errors += [f"model-index: no {key}" for part, key in parts if not part.get(key)]
            values = [metric.get("value") for metric in result.get("metrics", [])]
            if not values or not all(isinstance(value, int | float) for value in values):
                errors.append(f"model-index: values {values}")
    return errors


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
