"""What people do with the texts of an incident: destroy them."""

from __future__ import annotations

from functools import partial

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from triage.models import Incident, Submission
from triage.services import leases, log_book, merging, queue
from triage.services.texts import delete_stored


def destroy_texts(
    incident: Incident,
    who: User | None = None,
    *,
    positions: list[int] | None = None,
    reason: str = "",
) -> int:
    """Destroys these texts of the incident (all, unless `positions` says which); returns how many.

    Whatever quotes them goes with them: stored text, evidence, diagnoses with their lines. A scan
    or diagnosis at work on them drops what it finds. The rest of the incident is diagnosed again;
    with no text left it is `destroyed`. The log book keeps who did it, and when.
    """
    with transaction.atomic():
        # Takes the row's lock: no text joins and no diagnosis is stored meanwhile.
        Incident.objects.filter(pk=incident.pk).update(
            evidence_revision=F("evidence_revision") + 1, **leases.FREE
        )
        doomed = incident.submissions.exclude(state=Submission.State.DESTROYED)
        if positions is not None:
            doomed = doomed.filter(position__in=positions)
        rows = list(doomed.values_list("pk", "position", "stored_at"))
        if not rows:
            transaction.set_rollback(True)
            return 0
        Submission.objects.filter(pk__in=[pk for pk, _, _ in rows]).update(
            state=Submission.State.DESTROYED,
            name="",
            sha256="",
            stored_at="",
            line_index=[],
            evidence=None,
            error="",
            **leases.FREE,
        )
        incident.diagnoses.all().delete()
        merging.forget_quotes(incident)
        incident.refresh_from_db()
        incident.current_diagnosis = None
        incident.verdict = incident.slug = incident.fingerprint = ""
        incident.diagnosed_at = None
        incident.intake_key = None
        incident.error = ""
        left = incident.submissions.exclude(state=Submission.State.DESTROYED)
        if not left.exists():
            incident.state = Incident.State.DESTROYED
            incident.title = ""
            incident.diagnosed_revision = incident.evidence_revision
        elif left.pending().exists():
            incident.state = Incident.State.SCANNING
        else:
            incident.state = Incident.State.DIAGNOSING
            queue.enqueue(queue.DIAGNOSE_INCIDENT, incident.pk)
        incident.save()
        log_book.write(
            incident,
            log_book.DESTROYED,
            {"texts": [position for _, position, _ in rows], "reason": reason},
            who=who,
        )
        for _, _, stored_at in rows:
            transaction.on_commit(partial(delete_stored, stored_at))
    return len(rows)
