"""What web and worker processes ask of their settings before they serve."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def refuse_ephemeral_key() -> None:
    """Nothing; raises ImproperlyConfigured where each process would sign with a key of its own."""
    if settings.SECRET_KEY_IS_EPHEMERAL and not settings.DEBUG:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set. Set it to 50 random characters, the same for web, worker and "
            "beat; `python manage.py up` makes one by itself."
        )
