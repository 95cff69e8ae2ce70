"""Addresses of the knowledge base, below /pitfalls/."""

from __future__ import annotations

from django.urls import path

from kb import views

app_name = "kb"
urlpatterns = [
    path("", views.pitfall_list, name="pitfall-list"),
    *(
        path(f"{page.slug}/", views.theme_page, {"page": page}, name=page.slug)
        for page in views.THEME_PAGES
    ),
    path("<slug:slug>/", views.pitfall, name="pitfall"),
]
