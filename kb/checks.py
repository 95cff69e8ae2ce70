"""Every fault of the catalog is an error of `manage.py check`, with its file and key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from kb.catalog import builtin_folder
from kb.catalog.lint import check_folders


def check_catalog(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """An Error for each fault of the entries that come with Pitstop and of the site's own.

    What a curator may judge (warnings of the lint) is shown by `manage.py catalog check` alone.
    """
    if app_configs is not None and "kb" not in {config.label for config in app_configs}:
        return []
    facts = cast("Mapping[str, Collection[str]]", import_string(settings.KB_FACTS))
    _, faults = check_folders([builtin_folder(), *settings.PITSTOP_CATALOG], facts)
    return [
        Error(
            str(fault),
            hint="`manage.py catalog check` runs the examples too.",
            id="kb.E001",
        )
        for fault in faults
        if fault.is_error
    ]
