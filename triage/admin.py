"""Django's admin, for API tokens only: made by `manage.py token`, looked at and revoked here."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from triage.models import ApiToken
from triage.services import tokens


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin):
    """Lists tokens without their keys, which are not kept; nothing is made or edited here."""

    list_display = (
        "name", "prefix", "scope", "owner", "created_at", "last_used_at", "expires_at",
        "revoked_at",
    )  # fmt: skip
    list_filter = ("scope",)
    search_fields = ("name", "prefix")
    actions = ("revoke",)

    @admin.action(description="Revoke the selected tokens")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Ends the life of the selected tokens."""
        for token in queryset:
            tokens.revoke(token)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody: a key is shown once, by the command that makes it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Nobody: a token's scope is part of what was promised with it."""
        return False
