"""Reproductions that people ask for: the catalog's own script, run with an incident's numbers.

Nothing that somebody sent is ever run: a run is an entry of the catalog and a few whole numbers
within the ranges that the entry declares.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from kb.catalog import Catalog, Option, Pitfall
from kb.catalog.badges import badges_of
from triage.models import ApiToken, Incident, Reproduction, Submission
from triage.reproduction import (
    NoSandboxError,
    OptionError,
    Outcome,
    checked_options,
    reproduce,
)
from triage.services import leases, log_book, queue, verifications, workers
from triage.services.catalog import current_catalog
from triage.services.storable import clean_json

logger = logging.getLogger(__name__)

#: Characters kept of an output: its head and, mostly, its end.
MAX_OUTPUT_CHARS = 200_000
_HEAD_CHARS = 50_000
#: Of a run at work the page gets the end of its output.
MAX_LIVE_CHARS = 32_000
#: More than this many at once is a mistake of some script.
MAX_PENDING = 50

#: Where an incident shows the numbers that reproductions take: keys of captured values and of the
#: job's facts, and the words that evidence lines have for them.
_KEYS = {
    "world-size": ("world_size", "nproc", "gpus"),
    "num-workers": ("num_workers", "workers"),
    "classes": ("classes", "num_classes", "n_classes"),
    "shm-mb": ("shm_mb", "shm_mib"),
}
_WORDS = {
    "world-size": re.compile(r"world_size\s*[=:]?\s*(\d{1,6})"),
    "num-workers": re.compile(
        r"num_workers\s*[=:]\s*(\d{1,6})|will create (\d{1,6}) worker processes"
    ),
    "classes": re.compile(r"(?:num_|n_)classes\s*[=:]?\s*(\d{1,6})"),
    "shm-mb": re.compile(r"\b(?:shm|/dev/shm)\s+(\d{1,6})(?:M|MiB|MB)\b"),
}


class RefusedError(Exception):
    """A request that cannot be granted: status, short code, a sentence, and what to do."""

    def __init__(self, status: int, code: str, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.status = status
        self.code = code
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An option with the incident's number, if it shows one; `value` is that within the range."""

    option: Option
    seen: int | None

    @property
    def value(self) -> int | None:
        """What to run with; None leaves it to the script."""
        if self.seen is None:
            return None
        return min(max(self.seen, self.option.lowest), self.option.highest)


def nearest(incident: Incident, catalog: Catalog) -> Pitfall | None:
    """The entry with a script that comes closest to this incident; None if none does.

    Its answer; else what else was seen in it; else what those explain, or are explained by.
    """
    slugs = _named(incident)
    entries = [p for slug in slugs if (p := catalog.get(slug))]
    for pitfall in [*entries, *_kin(entries, catalog)]:
        if pitfall.reproduction is not None and pitfall.reproduction.is_runnable:
            return pitfall
    return None


def suggested(incident: Incident | None, pitfall: Pitfall) -> list[Suggestion]:
    """The options of the entry's script, each with the number that the incident shows."""
    options = pitfall.reproduction.options if pitfall.reproduction else ()
    if not options:
        return []
    seen = _numbers(incident) if incident is not None else {}
    return [Suggestion(option, seen.get(option.name)) for option in options]


def torch_of(incident: Incident) -> str:
    """The torch version that the job gave, or that a text shows; "" if none does."""
    if isinstance(given := incident.job.get("torch"), str) and given:
        return given[:40]
    shown = incident.submissions.filter(state=Submission.State.SCANNED).values_list(
        "evidence__torch_version", flat=True
    )
    return next((str(version) for version in shown if version), "")


def ask(
    incident: Incident | None,
    slug: str = "",
    *,
    fixed: bool = False,
    options: Mapping[str, int] | None = None,
    who: User | None = None,
    token: ApiToken | None = None,
) -> Reproduction:
    """A reproduction that is queued, or that waits for a worker who can do it.

    Without a slug it is the incident's nearest one. The same request as one that is pending is that
    one. Raises RefusedError.
    """
    catalog = current_catalog()
    pitfall = _wanted(incident, slug, catalog)
    reproduction = pitfall.reproduction
    assert reproduction is not None
    try:
        given = checked_options(pitfall, options or {})
    except OptionError as error:
        raise RefusedError(422, "invalid-option", f"{error}.") from error
    with transaction.atomic():
        if incident is not None:
            # Takes the row's lock: two clicks are one request.
            Incident.objects.select_for_update().get(pk=incident.pk)
        same = Reproduction.objects.pending().filter(
            incident=incident, slug=pitfall.slug, fixed=fixed, options=given, cancel_requested=False
        )
        if (found := same.first()) is not None:
            return found
        if Reproduction.objects.pending().count() >= MAX_PENDING:
            raise RefusedError(
                429,
                "too-many-reproductions",
                f"{MAX_PENDING} reproductions are waiting or running.",
                "Try again when some have ended, or cancel those nobody needs.",
            )
        route = workers.route(reproduction)
        row = Reproduction.objects.create(
            incident=incident,
            slug=pitfall.slug,
            fixed=fixed,
            options=given,
            where=reproduction.where,
            state=Reproduction.State.QUEUED if route.queue else Reproduction.State.WAITING,
            waits_for=route.waits_for,
            asked_by=who,
            token=token,
        )
        _tell(row, log_book.REPRODUCTION_ASKED, {"waits_for": route.waits_for}, who=who)
        if route.queue:
            queue.enqueue(queue.RUN_REPRODUCTION, row.pk, queue=route.queue)
    return row


def cancel(row: Reproduction, who: User | None = None) -> Reproduction:
    """The row, cancelled; one that runs ends within a second or two. Raises RefusedError."""
    now = timezone.now()
    with transaction.atomic():
        mine = Reproduction.objects.filter(pk=row.pk)
        ended = mine.filter(state__in=["waiting", "queued"]).update(
            state=Reproduction.State.CANCELLED, cancel_requested=True, ended_at=now, waits_for=""
        )
        asked = ended or mine.filter(state="running", cancel_requested=False).update(
            cancel_requested=True
        )
        if asked:
            _tell(row, log_book.REPRODUCTION_CANCELLED, {}, who=who)
    row.refresh_from_db()
    if not asked and not (row.is_pending and row.cancel_requested):
        raise RefusedError(409, "already-ended", "This reproduction has ended already.")
    return row


def queue_owed() -> int:
    """Queues again what is owed and nobody holds, or says what it waits for; how many were queued.

    What was cancelled while its worker was lost ends here.
    """
    now = timezone.now()
    catalog = current_catalog()
    queued = 0
    for row in Reproduction.objects.owed(now).defer("output").order_by("pk")[:MAX_PENDING]:
        free = Reproduction.objects.filter(pk=row.pk).owed(now)
        if row.cancel_requested:
            free.update(state=Reproduction.State.CANCELLED, ended_at=now, lease_owner="")
            continue
        pitfall = catalog.get(row.slug)
        if pitfall is None or pitfall.reproduction is None:
            error = "The catalog no longer has this reproduction."
            free.update(state=Reproduction.State.FAILED, error=error, ended_at=now)
            continue
        route = workers.route(pitfall.reproduction)
        free.update(
            state=Reproduction.State.QUEUED if route.queue else Reproduction.State.WAITING,
            waits_for=route.waits_for,
        )
        if route.queue:
            queue.enqueue(queue.RUN_REPRODUCTION, row.pk, queue=route.queue)
            queued += 1
    return queued


def run(pk: int) -> bool:
    """Runs this reproduction if that is owed and nobody else is at it; whether this call did it."""
    owner = leases.claim(Reproduction, pk)
    if owner is None:
        return False
    row = Reproduction.objects.select_related("incident").get(pk=pk)
    catalog = current_catalog()
    pitfall = catalog.get(row.slug)
    if row.attempts > leases.MAX_ATTEMPTS:
        cut_off = f"It was cut off {leases.MAX_ATTEMPTS} times, as when a worker is stopped."
        return _fail(row, owner, cut_off)
    if pitfall is None:
        return _fail(row, owner, "The catalog no longer has this entry.")
    if not _was_told(row, log_book.REPRODUCTION_STARTED):
        _tell(row, log_book.REPRODUCTION_STARTED, {})
    live = _Live()
    cancelled = threading.Event()
    try:
        with leases.kept(
            lambda: leases.held(Reproduction, pk, owner),
            cancelled,
            changes=live.changes,
            is_cancelled=Reproduction.objects.filter(pk=pk, cancel_requested=True).exists,
        ):
            outcome = reproduce(
                pitfall,
                catalog,
                fixed=row.fixed,
                options=row.options,
                on_output=live.add,
                cancelled=cancelled,
            )
    except NoSandboxError as error:
        leases.hand_back(Reproduction, pk, owner, str(error))
        return False
    except SoftTimeLimitExceeded:
        return _fail(row, owner, "It took longer than any run may and was stopped.")
    except Exception as error:
        logger.exception("%s failed", row)
        return _fail(row, owner, f"{type(error).__name__}: {error}")
    return _store(row, owner, outcome, pitfall)


class _Live:
    """The end of an output while it grows: the run fills it, the keeper of the lease fetches it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._has_news = False

    def add(self, piece: str) -> None:
        with self._lock:
            self._text = (self._text + piece)[-MAX_LIVE_CHARS:]
            self._has_news = True

    def changes(self) -> dict[str, Any]:
        with self._lock:
            if not self._has_news:
                return {}
            self._has_news = False
            return {"output": clean_json(self._text)}


def _store(row: Reproduction, owner: str, outcome: Outcome, pitfall: Pitfall) -> bool:
    result = outcome.to_json()
    result.pop("output")
    result["ending"] = outcome.ending
    result["ran_to_its_end"] = outcome.ran_to_its_end
    is_cancelled = outcome.stopped == "cancelled"
    # Anew: it may have been diagnosed again, or its texts destroyed, while this ran.
    incident = row.incident and Incident.objects.filter(pk=row.incident.pk).first()
    same = None if row.fixed or is_cancelled else _is_same(incident, outcome.named)
    with transaction.atomic():
        stored = leases.held(Reproduction, row.pk, owner).update(
            state=Reproduction.State.CANCELLED if is_cancelled else Reproduction.State.DONE,
            ended_at=timezone.now(),
            output=bounded(clean_json(outcome.output)),
            result=clean_json(result),
            named=outcome.named,
            same_failure=same,
            error="",
            **leases.FREE,
        )
        if not stored:
            logger.info("%s: run by another meanwhile", row)
            return False
        if is_cancelled:
            return True
        facts = {
            "named": outcome.named,
            "verdict": outcome.verdict.kind,
            "same_failure": same,
            "ran_to_its_end": outcome.ran_to_its_end,
            "ending": outcome.ending,
            "torch": outcome.capability.torch,
            "duration_ms": int(outcome.seconds * 1000),
        }
        _tell(row, log_book.REPRODUCTION_ENDED, facts)
        if row.fixed and outcome.ran_to_its_end and outcome.verdict.kind == "clean":
            _ask_for_proof(pitfall)
    return True


def _ask_for_proof(pitfall: Pitfall) -> None:
    """A fix that held here is worth a badge: `verify` says whether it earns one."""
    today = timezone.now().date()
    badges = badges_of(pitfall, verifications.proofs_of(pitfall), today=today)
    if badges.reproduced.state != "good" and verifications.ask(pitfall) is not None:
        transaction.on_commit(verifications.queue_next)


def _fail(row: Reproduction, owner: str, error: str) -> bool:
    with transaction.atomic():
        failed = leases.held(Reproduction, row.pk, owner).update(
            state=Reproduction.State.FAILED,
            error=error,
            ended_at=timezone.now(),
            **leases.FREE,
        )
        if failed:
            _tell(row, log_book.REPRODUCTION_ENDED, {"error": error})
    return False


def bounded(output: str) -> str:
    """The output, its middle left out where it is long."""
    if len(output) <= MAX_OUTPUT_CHARS:
        return output
    tail = output[_HEAD_CHARS - MAX_OUTPUT_CHARS :]
    left_out = len(output) - _HEAD_CHARS - len(tail)
    return f"{output[:_HEAD_CHARS]}\n[… {left_out} characters left out …]\n{tail}"


def _was_told(row: Reproduction, kind: str) -> bool:
    """Whether the log book has this step: a run that found no sandbox begins once more."""
    return (
        row.incident is not None
        and row.incident.log_book.filter(kind=kind, data__run=row.pk).exists()
    )


def _tell(row: Reproduction, kind: str, data: Mapping[str, Any], who: User | None = None) -> None:
    if row.incident is None:
        return
    about = {"run": row.pk, "slug": row.slug, "fixed": row.fixed, "options": row.options}
    log_book.write(row.incident, kind, {**about, **data}, who=who)


def _wanted(incident: Incident | None, slug: str, catalog: Catalog) -> Pitfall:
    if slug:
        pitfall = catalog.get(slug)
        if pitfall is None:
            raise RefusedError(422, "unknown-pitfall", f"There is no pitfall {slug}.")
    else:
        pitfall = nearest(incident, catalog) if incident is not None else None
        if pitfall is None:
            raise RefusedError(
                409,
                "nothing-to-reproduce",
                "No entry with a reproduction comes near this incident.",
                "Name one: a pitfall's page says whether it has a reproduction.",
            )
    if pitfall.reproduction is None or not pitfall.reproduction.is_runnable:
        reason = pitfall.reproduction.reason if pitfall.reproduction else ""
        raise RefusedError(
            409, "no-reproduction", f"{pitfall.slug} has no reproduction to run.", reason
        )
    return pitfall


def _named(incident: Incident) -> list[str]:
    diagnosis = incident.current_diagnosis
    return [finding.slug for finding in diagnosis.findings.all()] if diagnosis else []


def _is_same(incident: Incident | None, named: str) -> bool | None:
    if incident is None:
        return None
    slugs = _named(incident)
    return slugs[0] == named if slugs else None


def _kin(entries: Iterable[Pitfall], catalog: Catalog) -> Iterator[Pitfall]:
    for entry in entries:
        if entry.role == "symptom":
            # What may have caused it: nearer than what else it would explain.
            yield from (p for p in catalog.active if entry.slug in p.explains)
        yield from (p for slug in entry.explains if (p := catalog.get(slug)))


def _numbers(incident: Incident) -> dict[str, int]:
    """The numbers that the incident shows, by the option that takes them."""
    found: dict[str, int] = {}
    diagnosis = incident.current_diagnosis
    findings = list(diagnosis.findings.all()) if diagnosis else []
    facts = [dict(incident.job), *(finding.values for finding in findings)]
    for name, keys in _KEYS.items():
        numbers = (_whole(fact.get(key)) for fact in facts for key in keys)
        number = next((n for n in numbers if n is not None), None)
        if number is not None:
            found[name] = number
    read = incident.submissions.filter(state=Submission.State.SCANNED).values_list(
        "evidence__world_size", "evidence__ranks"
    )
    for world_size, ranks in read:
        size = world_size or (max(ranks) + 1 if ranks and len(ranks) > 1 else 0)
        if size and "world_size" not in incident.job:
            found["world-size"] = max(size, found.get("world-size", 0))
    if incident.gpus and "world-size" not in found:
        found["world-size"] = incident.gpus
    text = "\n".join(line.get("text", "") for f in findings for line in f.evidence)
    for name, pattern in _WORDS.items():
        if name not in found and (match := pattern.search(text)):
            found[name] = int(next(group for group in match.groups() if group))
    return found


def _whole(value: Any) -> int | None:
    text = str(value).strip() if isinstance(value, int | str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None
