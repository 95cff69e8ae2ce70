"""A server that asks for a token, and a job whose environment has none."""

import http.server
import os
import sys
import tempfile
import threading

import torch


class Hub(http.server.BaseHTTPRequestHandler):
    """Stands in for a hub: it answers 401 to whoever shows no token."""

    content = b""

    def do_GET(self):
        granted = self.headers.get("Authorization") == "Bearer of-this-account"
        self.send_response(200 if granted else 401)
        self.send_header("Content-Length", str(len(self.content) if granted else 0))
        self.end_headers()
        self.wfile.write(self.content if granted else b"")

    def log_message(self, *_):
        pass


# part: fixed
import urllib.request
from pathlib import Path


def stored_token() -> str:
    """The hub's token: HF_TOKEN, else the one that `hf auth login` stored; SystemExit without."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    file = Path(home).expanduser() / "token"
    token = os.environ.get("HF_TOKEN") or (file.read_text() if file.exists() else "")
    if not token:
        raise SystemExit(f"no token: HF_TOKEN is not set and {file} is not there")
    return token.strip()


def download(url: str, path: Path) -> Path:
    """The file behind `url`, written to `path`; the token goes with the request."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {stored_token()}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        path.write_bytes(answer.read())
    return path


# end: fixed


def download_without_token(url, path):
    torch.hub.download_url_to_file(url, str(path), progress=False)
    return path


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    os.environ["HF_HOME"] = str(folder)
    (folder / "token").write_text("of-this-account\n")
    torch.save({"weight": torch.ones(2)}, folder / "hub.pt")
    Hub.content = (folder / "hub.pt").read_bytes()
    server = http.server.HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    get = download if "--fixed" in sys.argv else download_without_token
    got = get(f"http://127.0.0.1:{server.server_port}/model/weights.pt", folder / "weights.pt")
    print(f"weights {torch.load(got, weights_only=True)['weight'].tolist()}")
    print("ran to its end")
