"""The web's entry point: `uvicorn triage.config.asgi:application`."""

from __future__ import annotations

import os
import warnings

from django.core.asgi import get_asgi_application

from triage.config.serving import refuse_ephemeral_key

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.config.settings")

# Whitenoise hands each static file over as a synchronous stream. Django reads such a stream in one
# piece, which for files of our size is what we want, and warns of it at every file.
warnings.filterwarnings(
    "ignore", message="StreamingHttpResponse must consume synchronous iterators"
)

refuse_ephemeral_key()
application = get_asgi_application()

# Models and settings exist only now. The first page should not wait for the catalog.
from triage.services.catalog import current_catalog  # noqa: E402

current_catalog()
