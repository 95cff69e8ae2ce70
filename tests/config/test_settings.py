"""Settings from the environment: what each choice brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from triage.config.serving import refuse_ephemeral_key

ROOT = Path(__file__).resolve().parents[2]


def _settings(*names: str, **environment: str) -> dict[str, Any]:
    """These settings as a fresh process sees them with nothing but this environment."""
    program = (
        "import json, sys; from triage.config import settings as s; "
        "print(json.dumps({n: getattr(s, n) for n in sys.argv[1:]}, default=str))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *names],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_with_nothing_set_it_runs_on_this_machine_alone() -> None:
    found = _settings(
        "DEBUG", "ALLOWED_HOSTS", "SESSION_COOKIE_SECURE", "CELERY_TASK_ALWAYS_EAGER", "DATABASES",
        "CACHES",
    )  # fmt: skip
    assert found["DEBUG"] is False
    assert found["ALLOWED_HOSTS"] == ["localhost", "127.0.0.1", "[::1]"]
    assert found["SESSION_COOKIE_SECURE"] is False
    assert found["CELERY_TASK_ALWAYS_EAGER"] is True
    assert found["DATABASES"]["default"]["ENGINE"] == "django.db.backends.sqlite3"
    assert "WAL" in found["DATABASES"]["default"]["OPTIONS"]["init_command"]
    assert found["CACHES"]["default"]["BACKEND"].endswith("LocMemCache")


def test_other_hosts_are_reached_through_tls_unless_the_network_is_trusted() -> None:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "CSRF_TRUSTED_ORIGINS")
    hosts = "pitstop.example.org .lab.example.org localhost"
    behind_tls = _settings(*names, ALLOWED_HOSTS=hosts)
    assert behind_tls == {
        "SESSION_COOKIE_SECURE": True,
        "CSRF_COOKIE_SECURE": True,
        "CSRF_TRUSTED_ORIGINS": ["https://pitstop.example.org", "https://*.lab.example.org"],
    }
    trusted = _settings(*names, ALLOWED_HOSTS=hosts, PITSTOP_PLAIN_HTTP="1")
    assert (trusted["SESSION_COOKIE_SECURE"], trusted["CSRF_COOKIE_SECURE"]) == (False, False)


def test_outside_services_come_from_two_addresses() -> None:
    found = _settings(
        "DATABASES", "CELERY_BROKER_URL", "CELERY_TASK_ALWAYS_EAGER", "CACHES",
        DATABASE_URL="postgres://someone:word@db:5433/incidents", REDIS_URL="unix:///run/r.sock",
    )  # fmt: skip
    database = found["DATABASES"]["default"]
    assert (database["HOST"], database["PORT"], database["NAME"]) == ("db", 5433, "incidents")
    assert "init_command" not in database.get("OPTIONS", {})
    assert found["CELERY_BROKER_URL"] == "redis+socket:///run/r.sock"
    assert found["CELERY_TASK_ALWAYS_EAGER"] is False
    assert found["CACHES"]["default"]["LOCATION"] == "unix:///run/r.sock"


def test_key_comes_from_the_environment_else_from_the_data_folder(tmp_path: Path) -> None:
    data = {"PITSTOP_DATA": str(tmp_path)}
    names = ("SECRET_KEY", "SECRET_KEY_IS_EPHEMERAL")
    first, second = _settings(*names, **data), _settings(*names, **data)
    assert first["SECRET_KEY_IS_EPHEMERAL"] is True
    assert first["SECRET_KEY"] != second["SECRET_KEY"]
    (tmp_path / "secret_key").write_text("of-the-folder\n")
    assert _settings(*names, **data)["SECRET_KEY"] == "of-the-folder"
    given = _settings(*names, **data, SECRET_KEY="given")
    assert given == {"SECRET_KEY": "given", "SECRET_KEY_IS_EPHEMERAL": False}


def test_web_and_worker_refuse_a_key_that_each_makes_for_itself(settings: Any) -> None:
    settings.SECRET_KEY_IS_EPHEMERAL = True
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY is not set"):
        refuse_ephemeral_key()
    settings.SECRET_KEY_IS_EPHEMERAL = False
    refuse_ephemeral_key()
