"""A Hugging Face hub of one repository, on this machine: the few requests that huggingface_hub makes."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextlib.contextmanager
def hub(name: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve the files of a folder as `name`; gives the address and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            api = path.removeprefix(f"/api/models/{name}")
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            if api in ("", "/revision/main", f"/revision/{COMMIT}"):
                listed = [{"rfilename": str(file.relative_to(folder))} for file in files]
                self.reply(json.dumps({"id": name, "modelId": name, "sha": COMMIT, "siblings": listed}).encode(), body)
                return
            if api == f"/tree/{COMMIT}":
                about = [(str(file.relative_to(folder)), file.stat().st_size) for file in files]
                listed = [{"type": "file", "path": path, "size": size, "oid": COMMIT} for path, size in about]
                self.reply(json.dumps(listed).encode(), body)
                return
            file = folder / path.removeprefix(f"/{name}/resolve/{COMMIT}/").removeprefix(f"/{name}/resolve/main/")
            if path.startswith(f"/{name}/resolve/") and file.is_file():
                self.reply(file.read_bytes(), body)
                return
            code = "EntryNotFound" if path.startswith(f"/{name}/resolve/") else "RepoNotFound"
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def reply(self, content: bytes, body: bool) -> None:
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
