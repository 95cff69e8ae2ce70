"""OpenID Connect from the button to the account, against a provider of the test's own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

# Runs with the settings of a site that has single sign-on: they are read when Django starts.
_VISIT = """
import json, sys, urllib.request
import django
django.setup()
from django.core.management import call_command
from django.contrib.auth.models import User
from django.test import Client
from triage.models import AuditEntry
call_command("migrate", verbosity=0)
User.objects.create_user("noor", "noor@example.org", "x")

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None

def at_the_provider(address):
    try:
        urllib.request.build_opener(Stay).open(address)
    except urllib.error.HTTPError as answer:
        return answer.headers["Location"]

def come_in():
    client = Client()
    start = client.post("/login/sso/oidc/sso/login/?process=login")
    back = at_the_provider(start["Location"])
    return client, client.get(back.removeprefix("http://testserver"))

page = Client().get("/login/")
client, landed = come_in()
again, _ = come_in()
forged = client.get("/login/sso/oidc/sso/login/callback/?code=x&state=forged")
print(json.dumps({
    "button": "Sign in by Example ID" in page.content.decode(),
    "policy": page["Content-Security-Policy"],
    "landed": [landed.status_code, landed.get("Location", "")],
    "home": client.get("/").status_code,
    "people": sorted(User.objects.values_list("username", "email", "is_superuser")),
    "roles": list(User.objects.exclude(profile=None).values_list("username", "profile__role")),
    "audit": list(AuditEntry.objects.order_by("pk").values_list("kind", "data")),
    "forged": forged.status_code,
    "own_signup": client.get("/login/sso/signup/").status_code,
}))
"""


class Provider(ThreadingHTTPServer):
    """Says that whoever comes is Noor."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.challenges: dict[str, str] = {}
        self.key = secrets.token_urlsafe(32)


class _Answers(BaseHTTPRequestHandler):
    server: Provider

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """Its configuration, its sign-in page that sends back at once, and the claims."""
        asked = urlsplit(self.path)
        at = self.server.address
        if asked.path == "/.well-known/openid-configuration":
            self._json({
                "issuer": at, "authorization_endpoint": f"{at}/authorize",
                "token_endpoint": f"{at}/token", "userinfo_endpoint": f"{at}/me",
                "jwks_uri": f"{at}/keys",
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            })  # fmt: skip
        elif asked.path == "/authorize":
            wanted = {key: values[0] for key, values in parse_qs(asked.query).items()}
            code = secrets.token_urlsafe(8)
            self.server.challenges[code] = wanted["code_challenge"]
            self.send_response(302)
            answer = urlencode({"code": code, "state": wanted["state"]})
            self.send_header("Location", f"{wanted['redirect_uri']}?{answer}")
            self.end_headers()
        elif self.headers["Authorization"] == "Bearer the-token":
            self._json({
                "sub": "42", "preferred_username": "noor", "email": "noor@example.org",
                "email_verified": True,
            })  # fmt: skip
        else:
            self.send_error(401)

    def do_POST(self) -> None:
        """The token, for who knows the secret and the verifier of the code."""
        length = int(self.headers["Content-Length"])
        sent = {k: v[0] for k, v in parse_qs(self.rfile.read(length).decode()).items()}
        digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        known = self.server.challenges.pop(sent["code"], "")
        if challenge != known or sent["client_secret"] != "shared secret":
            self.send_error(400)
            return
        claims = {"iss": self.server.address, "aud": "pitstop", "sub": "42"}
        token = jwt.encode(claims | {"exp": 4_000_000_000, "iat": 0}, self.server.key)
        self._json({"access_token": "the-token", "token_type": "Bearer", "id_token": token})

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that listens."""
    server = Provider()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_who_comes_from_the_provider_has_an_account_of_their_own(
    provider: Provider, tmp_path: Path
) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL")}
    environment |= {
        "DJANGO_SETTINGS_MODULE": "triage.config.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
        "PITSTOP_DATA": str(tmp_path),
        "ALLOWED_HOSTS": "testserver",
        "DEBUG": "1",
        "PITSTOP_OIDC_URL": provider.address,
        "PITSTOP_OIDC_CLIENT_ID": "pitstop",
        "PITSTOP_OIDC_SECRET": "shared secret",
        "PITSTOP_OIDC_NAME": "Example ID",
    }
    done = subprocess.run(
        [sys.executable, "-c", _VISIT],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["button"]
    assert f"form-action 'self' {provider.address}" in seen["policy"]
    assert seen["landed"] == [302, "/"]
    assert seen["home"] == 200
    # Not the account that had the name and the mail before; and the second time the same one.
    assert seen["people"] == [
        ["noor", "noor@example.org", False], ["noor2", "noor@example.org", False],
    ]  # fmt: skip
    assert seen["roles"] == [["noor2", "viewer"]]
    added, first, second = seen["audit"]
    assert added == ["person_added", {"about": "noor2", "role": "viewer", "by": "Example ID"}]
    for row in (first, second):
        assert row == ["signed_in", {"who": "noor2", "by": "single sign-on"}]
    assert seen["forged"] == 403
    assert seen["own_signup"] in (302, 404)
