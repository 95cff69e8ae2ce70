"""The only place that mounts pages, API and knowledge base."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from triage.pages.health import healthz, readyz
from triage.pages.signin import sign_in_once

urlpatterns = [
    path("", include("triage.pages.urls")),
    path("pitfalls/", include("kb.urls")),
    path("api/", include("triage.api.urls")),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("login/once/<str:token>", sign_in_once, name="sign-in-once"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("admin/", admin.site.urls),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]

if settings.HAS_SINGLE_SIGN_ON:
    urlpatterns.append(path("login/sso/", include("allauth.urls")))

handler400 = "triage.pages.errors.bad_request"
handler403 = "triage.pages.errors.forbidden"
handler404 = "triage.pages.errors.not_found"
