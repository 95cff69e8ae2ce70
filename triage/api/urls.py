"""Addresses below /api/: version 1, and the page that describes it."""

from __future__ import annotations

from django.urls import path

from triage.api.endpoints import api, docs

urlpatterns = [
    path("v1/", api.urls),
    path("docs", docs, name="api-docs"),
]
