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
from urllib.parse import parse_qs, unquote

API = "/api/models/"
REPO = r"(?P<repo>(datasets/)?[\w-]+/[\w.-]+)"
RESOLVE = re.compile(rf"/{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
READ = re.compile(
    rf"/api/{REPO}(/(?P<what>revision|tree|paths-info)/(?P<revision>[^/]+))?(?P<rest>.*)"
)
LFS = re.compile(r"/(?P<repo>[\w-]+/[\w.-]+)\.git/info/lfs/objects/batch")
COMMIT = "c" * 40
LARGE = (".safetensors", ".bin", ".png")


class Hub(ThreadingHTTPServer):
    """The server; ``repos`` maps the id of a repository to path and content."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        # id of a repository, after "datasets/" that of a dataset -> revision -> path and content
        self.versions: dict[str, dict[str, dict[str, bytes]]] = {}
        self.objects: dict[str, bytes] = {}
        # id of a repository and name of a branch beside main
        self.branches: set[tuple[str, str]] = set()
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
        path = self.path.partition("?")[0].replace("/api/models/", "/api/")
        match = READ.fullmatch(path)
        if match is None:
            self.resolve()
        elif (found := self.find(match)) is not None:
            files, commit = found
            if match["what"] == "tree":
                top = not match["rest"]
                self.answer(200, list_files(files) if top else [], commit=commit)
            else:
                siblings = [{"rfilename": name} for name in files]
                about = {"id": match["repo"].removeprefix("datasets/"), "sha": commit}
                self.answer(200, {**about, "siblings": siblings, "private": False})

    def find(self, match):
        """Return the files and the commit of a revision; answer, and return None, without."""
        repo, revision = match["repo"], match["revision"] or "main"
        versions = self.server.versions.get(repo, {})
        by_name = {name: (files, to_commit(name)) for name, files in versions.items()}
        by_name |= {commit: (files, commit) for files, commit in by_name.values()}
        if repo in self.server.repos:  # a pushed repository has one version, of any name
            return self.server.repos[repo], COMMIT
        if revision in by_name:
            return by_name[revision]
        code = "RevisionNotFound" if versions else "RepoNotFound"
        self.answer(404, {"error": f"no {repo} at {revision}"}, code=code)
        return None

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        match = READ.fullmatch(path.replace("/api/models/", "/api/"))
        if match is not None and match["what"] == "paths-info":
            if (found := self.find(match)) is not None:
                asked = set(parse_qs(body.decode()).get("paths", [])) or json.loads(body)["paths"]
                self.answer(200, [one for one in list_files(found[0]) if one["path"] in asked])
            return
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
        elif "/branch/" in path:
            repo, _, branch = path.removeprefix(API).partition("/branch/")
            self.server.branches.add((repo, branch))
            self.answer(200, {})
        elif "/commit/" in path:
            repo, _, revision = path.removeprefix(API).partition("/commit/")
            if revision != "main" and (repo, revision) not in self.server.branches:
                error = {"error": f"no {repo} at {revision}"}
                self.answer(404, error, code="RevisionNotFound")
                return
            self.commit(repo, body)
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
        match = RESOLVE.fullmatch(unquote(self.path.partition("?")[0]))
        if match is None:
            self.answer(404, {"error": "no such repository"}, code="RepoNotFound")
        elif (found := self.find(match)) is not None:
            files, commit = found
            if match["path"] in files:
                self.answer(200, files[match["path"]], commit=commit)
            else:
                self.answer(404, {"error": "no such file"}, code="EntryNotFound", commit=commit)

    def answer(self, status, content, *, code=None, commit=COMMIT):
        """Send bytes, or anything else as JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", commit)
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


def to_commit(revision):
    """Make the commit of a revision."""
    return hashlib.sha1(revision.encode()).hexdigest()  # noqa: S324  (a name, not a secret)


def list_files(files):
    """List files as the Hub does."""
    return [
        {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}  # noqa: S324
        for name, data in files.items()
    ]


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
