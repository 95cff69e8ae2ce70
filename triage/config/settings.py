"""Django settings, from the environment only.

With nothing set it runs on SQLite, a memory cache and eager tasks (tests, runserver);
`manage.py up` sets DATABASE_URL, REDIS_URL and the rest for the processes that it starts.
"""

from __future__ import annotations

import os
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
from csp.constants import NONE, SELF

BASE_DIR = Path(__file__).resolve().parent.parent.parent
DATA_DIR = Path(os.environ.get("PITSTOP_DATA") or BASE_DIR / "var").resolve()

_LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
_SECRET_KEY_FILE = DATA_DIR / "secret_key"


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in {"1", "true", "yes", "on"}


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)


def _words(name: str) -> list[str]:
    return [word for word in os.environ.get(name, "").replace(",", " ").split() if word]


# -- Keys, hosts, cookies -------------------------------------------------------------------------

DEBUG = _is_on("DEBUG")

# `up` writes the file once. Without key and file, commands and tests get a key of their own;
# web and worker refuse it (triage/config/serving.py), since two processes would not agree on it.
SECRET_KEY = os.environ.get("SECRET_KEY", "")
if not SECRET_KEY and _SECRET_KEY_FILE.is_file():
    SECRET_KEY = _SECRET_KEY_FILE.read_text(encoding="ascii").strip()
SECRET_KEY_IS_EPHEMERAL = not SECRET_KEY
if SECRET_KEY_IS_EPHEMERAL:
    SECRET_KEY = secrets.token_urlsafe(48)

ALLOWED_HOSTS = _words("ALLOWED_HOSTS") or _LOCAL_HOSTS

# Anything but this machine is reached through TLS, unless a trusted network says otherwise.
_behind_tls = not set(ALLOWED_HOSTS) <= set(_LOCAL_HOSTS) and not _is_on("PITSTOP_PLAIN_HTTP")
SESSION_COOKIE_SECURE = _behind_tls
CSRF_COOKIE_SECURE = _behind_tls
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "triage.pages.errors.csrf_failure"
CSRF_TRUSTED_ORIGINS = [
    f"https://{'*' + host if host.startswith('.') else host}"
    for host in ALLOWED_HOSTS
    if host not in _LOCAL_HOSTS and host != "*"
]
SESSION_COOKIE_AGE = int(timedelta(days=14).total_seconds())
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        # Swagger UI draws its icons from data: addresses.
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

# -- Parts ----------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "axes",
    "csp",
    "django_htmx",
    "ninja",
    "kb",
    "triage",
]

MIDDLEWARE = [
    "triage.config.logs.RequestLogMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "triage.pages.time_zones.TimeZoneMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "triage.config.urls"
ASGI_APPLICATION = "triage.config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "triage.pages.context.appearance",
                "triage.pages.context.rights",
                "triage.pages.context.single_sign_on",
            ],
        },
    },
]

# -- People ---------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"

# Ten wrong passwords of one name from one address: five minutes' rest. Counted per pair, so that a
# stranger cannot lock somebody else out.
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=5)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_LOCKOUT_CALLABLE = "triage.pages.signin.locked_out"
AXES_VERBOSE = False

# Single sign-on by OpenID Connect, where all three are set; the URL is that of the issuer.
PITSTOP_OIDC_URL = os.environ.get("PITSTOP_OIDC_URL", "")
PITSTOP_OIDC_CLIENT_ID = os.environ.get("PITSTOP_OIDC_CLIENT_ID", "")
PITSTOP_OIDC_SECRET = os.environ.get("PITSTOP_OIDC_SECRET", "")
PITSTOP_OIDC_NAME = os.environ.get("PITSTOP_OIDC_NAME", "") or "single sign-on"
# What somebody may who comes in by it for the first time; an admin gives more.
PITSTOP_OIDC_ROLE = os.environ.get("PITSTOP_OIDC_ROLE", "") or "viewer"
HAS_SINGLE_SIGN_ON = bool(PITSTOP_OIDC_URL and PITSTOP_OIDC_CLIENT_ID and PITSTOP_OIDC_SECRET)
if HAS_SINGLE_SIGN_ON:
    INSTALLED_APPS += [
        "allauth",
        "allauth.account",
        "allauth.socialaccount",
        "allauth.socialaccount.providers.openid_connect",
    ]
    MIDDLEWARE.append("allauth.account.middleware.AccountMiddleware")
    AUTHENTICATION_BACKENDS.append("allauth.account.auth_backends.AuthenticationBackend")
    # Passwords stay with this site's own sign-in page, which counts wrong ones.
    SOCIALACCOUNT_ONLY = True
    ACCOUNT_EMAIL_VERIFICATION = "none"
    # A mail that somebody has here already does not keep the provider's person out.
    ACCOUNT_UNIQUE_EMAIL = False
    SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
    SOCIALACCOUNT_ADAPTER = "triage.pages.single_sign_on.Adapter"
    SOCIALACCOUNT_AUTO_SIGNUP = True
    SOCIALACCOUNT_STORE_TOKENS = False
    SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "APPS": [
                {
                    "provider_id": "sso",
                    "name": PITSTOP_OIDC_NAME,
                    "client_id": PITSTOP_OIDC_CLIENT_ID,
                    "secret": PITSTOP_OIDC_SECRET,
                    "settings": {"server_url": PITSTOP_OIDC_URL},
                }
            ],
        }
    }
    # The form that starts it is answered by a redirect to the provider.
    _provider = urlsplit(PITSTOP_OIDC_URL)
    CONTENT_SECURITY_POLICY["DIRECTIVES"]["form-action"].append(
        f"{_provider.scheme}://{_provider.netloc}"
    )

# A sign-in link is used from the terminal it was printed on; an hour covers a slow start.
PASSWORD_RESET_TIMEOUT = 3_600

# -- Database, cache, queue -----------------------------------------------------------------------

DATABASES: dict[str, Any] = {
    "default": dj_database_url.parse(
        os.environ.get("DATABASE_URL") or f"sqlite:///{DATA_DIR / 'db.sqlite3'}"
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        # Web and workers write side by side: readers never wait (WAL), a writer takes its lock at
        # BEGIN and waits for the other instead of failing at its first write.
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = os.environ.get("REDIS_URL", "")
if REDIS_URL:
    CACHES: dict[str, Any] = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
            "KEY_PREFIX": "pitstop",
            # A Redis that accepts and never answers must not hold a page.
            "OPTIONS": {"socket_timeout": 3},
        }
    }
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

CELERY_TASK_ALWAYS_EAGER = not REDIS_URL
CELERY_TASK_EAGER_PROPAGATES = True
# kombu names a Redis behind a Unix socket by another scheme than redis-py does.
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1) if REDIS_URL else "memory://"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A message unacknowledged for this long goes to another worker. Longer than any task may run; the
# sweep finds the work of a killed worker much sooner.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 900,
    "global_keyprefix": "pitstop:",
    "socket_connect_timeout": 3,
}
CELERY_TASK_DEFAULT_QUEUE = "triage"
# Reproductions have workers of their own; services/workers.py sends those that need a GPU to `gpu`.
CELERY_TASK_ROUTES = {
    "triage.tasks.run_reproduction": {"queue": "cpu"},
    "triage.tasks.run_verification": {"queue": "cpu"},
}
# The database is the truth, the queue a hint: no results are kept in Redis.
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# On SIGQUIT a worker finishes what it can in this time and gives the rest back to the queue.
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 3.0
# A leak in a parser or a matcher is bounded by the life of the process.
CELERY_WORKER_MAX_TASKS_PER_CHILD = 1_000
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

SWEEP_EVERY_S = 10
# Proofs are good for a month, and a changed entry is verified again within this time.
ASK_VERIFICATIONS_EVERY_S = 3_600
WRITE_REPORTS_EVERY_S = 3_600
CELERY_BEAT_SCHEDULE = {
    # `expires`: sweeps that pile up while no worker runs are dropped but for the newest.
    "sweep": {
        "task": "triage.tasks.sweep",
        "schedule": SWEEP_EVERY_S,
        "options": {"expires": SWEEP_EVERY_S},
    },
    "ask-due-verifications": {
        "task": "triage.tasks.ask_due_verifications",
        "schedule": ASK_VERIFICATIONS_EVERY_S,
        "options": {"expires": ASK_VERIFICATIONS_EVERY_S},
    },
    # Looked for each hour: a beat that was down at midnight of the first writes the month later.
    "write-reports": {
        "task": "triage.tasks.write_reports",
        "schedule": WRITE_REPORTS_EVERY_S,
        "options": {"expires": WRITE_REPORTS_EVERY_S},
    },
}

# -- Limits ---------------------------------------------------------------------------------------

# A paste is held in memory by browser and form; a longer text comes as a file.
PITSTOP_MAX_PASTE_BYTES = 10 * 2**20
# A week of one rank's log. Larger texts are another kind of data.
PITSTOP_MAX_UPLOAD_BYTES = _number("PITSTOP_MAX_UPLOAD_BYTES", 5 * 2**30)
# One text a rank for the largest jobs seen.
PITSTOP_MAX_TEXTS = 4_096
# No message is longer; a longer line is base64 or a dumped tensor: its rest is skipped.
PITSTOP_MAX_LINE_BYTES = 64 * 2**10
# Logs shrink 10 to 60 times. Beyond this it is a bomb.
PITSTOP_MAX_DECOMPRESSION_RATIO = 200
# 5 GiB at the slowest rate measured, with room; then the worker is needed by others.
PITSTOP_SCAN_LIMIT_S = 600
# Evidence is small by then: a diagnosis that takes longer hangs.
PITSTOP_DIAGNOSE_LIMIT_S = 60
# A broken and a fixed run, three times as slow as declared; below the queue's patience.
PITSTOP_REPRODUCTION_LIMIT_S = 600
# Evidence of thousands of texts is merged in memory.
PITSTOP_MAX_EVIDENCE_BYTES = 2 * 2**20
# Half a year covers a paper's deadline and its rebuttal; then only evidence stays.
PITSTOP_KEEP_TEXTS_DAYS = 180
# Nobody works at one incident for longer without a break: a timer that does was forgotten.
PITSTOP_TIMER_CAP_S = 8 * 3_600
# A worker renews its lease while it works; a silent one has lost its work after this long.
PITSTOP_LEASE_S = 30

# A form's fields are read into memory: a paste and what JSON or form encoding adds to it. A paste
# somewhat too long still reaches the form, which says so in words.
DATA_UPLOAD_MAX_MEMORY_SIZE = 3 * PITSTOP_MAX_PASTE_BYTES
DATA_UPLOAD_MAX_NUMBER_FILES = PITSTOP_MAX_TEXTS
FILE_UPLOAD_MAX_MEMORY_SIZE = 2**20
FILE_UPLOAD_PERMISSIONS = 0o600

# -- Files ----------------------------------------------------------------------------------------

STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(DATA_DIR / "texts")},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_URL = "/static/"
# Straight from the packages: no step to collect them, none to forget.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

# kb shows what triage decides with: one catalog, handed over by name since kb imports no triage.
KB_CATALOG = "triage.services.catalog.current_catalog"
# The engine's facts, by which the check of the catalog knows a misspelt one.
KB_FACTS = "triage.engine.facts.FACT_VALUES"
# What this site saw of an entry's reproduction, beside the proofs that the catalog came with.
KB_PROOFS = "triage.services.verifications.proofs_of"
# What people said of an entry's answers and fixes.
KB_EXPERIENCE = "triage.services.feedback.experience_of"
# Folders of a site's own entries, parted as PATH is.
PITSTOP_CATALOG = [
    Path(folder) for folder in os.environ.get("PITSTOP_CATALOG", "").split(os.pathsep) if folder
]

# -- Language, time, logs -------------------------------------------------------------------------

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"without_secrets": {"()": "triage.config.logs.WithoutSecrets"}},
    "formatters": {"json": {"()": "triage.config.logs.JsonLines"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "json",
            "filters": ["without_secrets"],
        }
    },
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django": {"handlers": [], "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        # Every refused request is in the request log already, with its status.
        "django.request": {"level": "ERROR"},
        # A task says what it did when it ends; that it was sent and received goes without saying.
        "celery.beat": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
    },
}
