"""The only place that mounts pages, API and knowledge base."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.urls import include, path

from triage.pages.health import healthz, readyz
from triage.pages.signin import sign_in_once

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("login/once/<str:token>", sign_in_once, name="sign-in-once"),
    path("admin/", admin.site.urls),
]
# guards while parts are being written
if find_spec("triage.api.endpoints"):
    from triage.api import api

    urlpatterns.append(path("api/v1/", api.urls))
if find_spec("kb.urls"):
    urlpatterns.append(path("pitfalls/", include("kb.urls")))
if find_spec("triage.pages.urls"):
    urlpatterns.append(path("", include("triage.pages.urls")))
