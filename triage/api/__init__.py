"""The REST API under /api/v1/: `api` is what config mounts."""

from triage.api.endpoints import api

__all__ = ["api"]
