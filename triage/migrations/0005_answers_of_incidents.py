"""Copies the answer of each current diagnosis to its incident, where lists and reports look."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.models import OuterRef, Subquery, Value
from django.db.models.functions import Coalesce


def copy_answers(apps: Any, schema_editor: Any) -> None:
    """Fills `slug` and `fingerprint` in one statement."""
    incidents = apps.get_model("triage", "Incident").objects.exclude(current_diagnosis=None)
    findings = apps.get_model("triage", "Finding").objects.filter(
        diagnosis=OuterRef("current_diagnosis"), position=0
    )
    diagnoses = apps.get_model("triage", "Diagnosis").objects.filter(
        pk=OuterRef("current_diagnosis")
    )
    incidents.update(
        slug=Coalesce(Subquery(findings.values("slug")), Value("")),
        fingerprint=Coalesce(Subquery(diagnoses.values("fingerprint")), Value("")),
    )


class Migration(migrations.Migration):
    """Data alone."""

    dependencies = [("triage", "0004_life_of_an_incident")]

    operations = [migrations.RunPython(copy_answers, migrations.RunPython.noop)]
