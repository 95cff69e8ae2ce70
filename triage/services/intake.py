"""Texts come in: read as a stream, cleaned, stored, joined to their incident, queued for a scan.

A text passes these steps block by block, so that its size never shows in memory: inflate (gzip) →
UTF-16 to UTF-8 → drop NUL bytes → replace secrets → hash, index and compress. The rows are written
in one transaction after the texts are in storage; the tasks are queued at its commit.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from triage.engine import EvidenceError
from triage.engine.parsers import flight_recorder
from triage.models import ApiToken, Incident, Submission
from triage.services import log_book, people, queue
from triage.services.secrets import new_redactor
from triage.services.storable import clean_json, clean_name
from triage.services.texts import LineIndex, TextWriter, delete_stored

_BLOCK_BYTES = 2**20
# A bomb shows early; a short text that repeats one line may well shrink more than the ratio allows.
_INFLATED_FREELY_BYTES = 10 * 2**20


class ByteStream(Protocol):
    """What a text is read from: an upload, a request's body, an open file."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class NamedStream:
    """A text on its way in."""

    name: str
    stream: ByteStream


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the sender knows of the job; `id` and `attempt` together name an incident."""

    id: str = ""
    attempt: int = 0
    scheduler: str = ""
    gpus: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A text that was left out while others were taken, and why."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class Received:
    """What became of what was sent."""

    incident: Incident
    created: bool
    duplicates: int = 0
    skipped: tuple[Skipped, ...] = ()
    secrets_replaced: int = 0


class IntakeError(Exception):
    """Nothing was taken. `problem` says why, `hint` what to do, `status` is the HTTP status.

    `code` is a short name for machines, `name` the text at fault where there is one.
    """

    def __init__(self, problem: str, *, status: int, hint: str, code: str, name: str = "") -> None:
        self.problem = problem
        self.status = status
        self.hint = hint
        self.code = code
        self.name = name
        super().__init__(f"{problem} {hint}".strip())


class UnusableTextError(IntakeError):
    """This one text cannot be read; others sent with it can."""


@dataclass(slots=True)
class _StoredText:
    name: str
    sha256: str
    size_bytes: int
    line_count: int
    line_index: LineIndex
    secrets: Counter[str]
    stored_at: str


def receive(
    texts: Iterable[NamedStream],
    *,
    who: User | None = None,
    job: JobFacts | None = None,
    token: ApiToken | None = None,
    incident: Incident | None = None,
    title: str = "",
) -> Received:
    """Stores the texts under their incident and queues their scans.

    The incident is the given one, else that of the job and attempt, else the one in which this
    sender sent the very same texts before, else a new one. A text that its incident has already is
    counted in `duplicates` and stored once. Empty texts and files that are no text are left out
    and listed in `skipped` as long as one usable text is among them.

    Raises IntakeError if nothing can be taken or a limit is passed; then nothing is stored.
    """
    job = _clean_job(job or JobFacts())
    stored: list[_StoredText] = []
    skipped: list[Skipped] = []
    refused: list[UnusableTextError] = []
    kept: set[str] = set()
    try:
        for number, text in enumerate(texts, start=1):
            if number > settings.PITSTOP_MAX_TEXTS:
                raise _too_many_texts()
            try:
                stored.append(_store(text))
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise _disk_full() from error
                raise
            except UnusableTextError as error:
                refused.append(error)
                skipped.append(Skipped(error.name, error.problem))
        if not stored:
            raise refused[0] if refused else _empty("")
        with transaction.atomic():
            received, fresh = _file_under_incident(
                stored, skipped, who=who, job=job, token=token, incident=incident, title=title
            )
        kept = fresh
    finally:
        for text_in_storage in stored:
            if text_in_storage.stored_at not in kept:
                delete_stored(text_in_storage.stored_at)
    return received


# ------------------------------------------------------------------------------ rows


def _file_under_incident(
    stored: list[_StoredText],
    skipped: list[Skipped],
    *,
    who: User | None,
    job: JobFacts,
    token: ApiToken | None,
    incident: Incident | None,
    title: str,
) -> tuple[Received, set[str]]:
    """The rows of these texts, and the storage names that they keep."""
    created = False
    if incident is None:
        incident, created = _open_or_join(stored, who=who, job=job, token=token, title=title)
    # Takes the row's lock, so that texts sent at once number themselves one after the other.
    Incident.objects.filter(pk=incident.pk).update(texts_received=F("texts_received"))
    incident.refresh_from_db()
    while incident.merged_into is not None:
        incident = incident.merged_into
        Incident.objects.filter(pk=incident.pk).update(texts_received=F("texts_received"))
        incident.refresh_from_db()
    if incident.gpus is None and job.gpus is not None:
        Incident.objects.filter(pk=incident.pk).update(gpus=job.gpus)
    known = set(incident.submissions.exclude(sha256="").values_list("sha256", flat=True))
    fresh: list[_StoredText] = []
    for text in stored:
        if text.sha256 not in known:
            known.add(text.sha256)
            fresh.append(text)
    if incident.texts_received + len(fresh) > settings.PITSTOP_MAX_TEXTS:
        raise _too_many_texts()
    if fresh:
        _add_submissions(incident, fresh, who=who, token=token)
        secrets: Counter[str] = Counter()
        for text in fresh:
            secrets.update(text.secrets)
        log_book.write(
            incident,
            log_book.RECEIVED,
            {
                "texts": len(fresh),
                "bytes": sum(text.size_bytes for text in fresh),
                "lines": sum(text.line_count for text in fresh),
                "duplicates": len(stored) - len(fresh),
                "secrets": dict(secrets),
                "skipped": [{"name": s.name, "problem": s.problem} for s in skipped],
                "token": token.name if token else "",
            },
            who=who,
        )
    received = Received(
        incident=incident,
        created=created,
        duplicates=len(stored) - len(fresh),
        skipped=tuple(skipped),
        secrets_replaced=sum(text.secrets.total() for text in fresh),
    )
    return received, {text.stored_at for text in fresh}


def _open_or_join(
    stored: list[_StoredText],
    *,
    who: User | None,
    job: JobFacts,
    token: ApiToken | None,
    title: str,
) -> tuple[Incident, bool]:
    facts: dict[str, Any] = {
        "title": clean_name(title) or _title_of(stored, job),
        "scheduler": job.scheduler,
        "gpus": job.gpus,
        "job": dict(job.more),
        "created_by": who,
        "team": people.team_for(who or (token.owner if token else None)),
    }
    if job.id:
        return Incident.objects.get_or_create(job_id=job.id, attempt=job.attempt, defaults=facts)
    return Incident.objects.get_or_create(
        intake_key=_intake_key(stored, who=who, token=token), defaults=facts
    )


def _intake_key(stored: list[_StoredText], *, who: User | None, token: ApiToken | None) -> str:
    """One key for one sender and one set of texts, in whatever order."""
    sender = f"user {who.pk}" if who else f"token {token.pk}" if token else "nobody"
    texts = sorted({text.sha256 for text in stored})
    return hashlib.sha256("\n".join([sender, *texts]).encode()).hexdigest()


def _add_submissions(
    incident: Incident,
    fresh: list[_StoredText],
    *,
    who: User | None,
    token: ApiToken | None,
) -> None:
    submissions = Submission.objects.bulk_create(
        Submission(
            incident=incident,
            position=position,
            name=text.name,
            sent_by=who,
            token=token,
            sha256=text.sha256,
            size_bytes=text.size_bytes,
            line_count=text.line_count,
            line_index=text.line_index,
            secrets_replaced=text.secrets.total(),
            stored_at=text.stored_at,
        )
        for position, text in enumerate(fresh, start=incident.texts_received + 1)
    )
    incident.texts_received += len(fresh)
    incident.evidence_revision += 1
    incident.state = Incident.State.RECEIVED
    incident.error = ""
    incident.save(
        update_fields=["texts_received", "evidence_revision", "state", "error", "updated_at"]
    )
    for submission in submissions:
        queue.enqueue(queue.SCAN_SUBMISSION, submission.pk)


def _title_of(stored: list[_StoredText], job: JobFacts) -> str:
    name = str(job.more.get("name", "")) or job.id or (stored[0].name if len(stored) == 1 else "")
    return clean_name(name)


def _clean_job(job: JobFacts) -> JobFacts:
    return JobFacts(
        id=clean_name(job.id),
        attempt=job.attempt,
        scheduler=clean_name(job.scheduler, 40),
        gpus=job.gpus,
        more=clean_json(dict(job.more)),
    )


# ------------------------------------------------------------------------------ one text


def _store(text: NamedStream) -> _StoredText:
    name = clean_name(text.name)
    redactor = new_redactor()
    with TextWriter() as writer:
        for block in _without_nuls(
            _as_utf8(_checked(_unpickled(_inflated(_blocks(text.stream, name), name), name), name))
        ):
            for piece in redactor.feed(block):
                writer.write(piece)
        for piece in redactor.finish():
            writer.write(piece)
        if writer.is_blank:
            raise _empty(name)
        return _StoredText(
            name=name,
            stored_at=writer.save(),
            sha256=writer.sha256,
            size_bytes=writer.size_bytes,
            line_count=writer.line_count,
            line_index=writer.line_index,
            secrets=redactor.kinds,
        )


def _blocks(stream: ByteStream, name: str) -> Iterator[bytes]:
    """The stream in blocks; the first one is long enough to tell what it is."""
    size_bytes = 0
    waiting = b""
    while block := stream.read(_BLOCK_BYTES):
        size_bytes += len(block)
        if size_bytes > settings.PITSTOP_MAX_UPLOAD_BYTES:
            raise _too_large(name)
        waiting += block
        if len(waiting) >= _SNIFFED_BYTES:
            yield waiting
            waiting = b""
    if waiting:
        yield waiting


def _inflated(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks, inflated if they are gzip; bounded in size and in ratio."""
    first = next(blocks, b"")
    if not first.startswith(b"\x1f\x8b"):
        yield first
        yield from blocks
        return
    consumed = produced = 0
    inflate = zlib.decompressobj(31)
    waiting = first
    while waiting:
        consumed += len(waiting)
        while waiting:
            try:
                text = inflate.decompress(waiting, _BLOCK_BYTES)
            except zlib.error:
                # What came before the fault is a log cut short, as logs are.
                if produced == 0:
                    raise _broken_archive(name) from None
                return
            produced += len(text)
            used = consumed - len(inflate.unconsumed_tail)
            allowed = used * settings.PITSTOP_MAX_DECOMPRESSION_RATIO
            if produced > max(allowed, _INFLATED_FREELY_BYTES):
                raise _bomb(name)
            if produced > settings.PITSTOP_MAX_UPLOAD_BYTES:
                raise _too_large(name)
            if text:
                yield text
            if inflate.eof:
                # Members may follow each other; padding after the last one is none.
                waiting = inflate.unused_data.lstrip(b"\0")
                inflate = zlib.decompressobj(31)
            else:
                waiting = inflate.unconsumed_tail
        waiting = next(blocks, b"")


def _unpickled(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks, or the JSON text of a flight recorder's dump, which PyTorch writes as a pickle.

    It is read by the engine's own reader, which runs nothing; the pickle itself is not stored.
    """
    first = next(blocks, b"")
    if not flight_recorder.is_pickle(first):
        yield first
        yield from blocks
        return
    data = bytearray(first)
    for block in blocks:
        data += block
        if len(data) > flight_recorder.MAX_DUMP_BYTES:
            break
    try:
        text = flight_recorder.pickle_to_json(bytes(data))
    except EvidenceError as error:
        raise _not_text(
            name,
            f"This is a Python pickle, but no flight-recorder dump: {error}.",
            "Send the dumps as PyTorch wrote them (nccl_trace_rank_N), or the log.",
        ) from None
    for start in range(0, len(text), _BLOCK_BYTES):
        yield text[start : start + _BLOCK_BYTES]


_SNIFFED_BYTES = 2**10
_PICTURE = "This is a picture, not a log."
_PACKED = "This is a packed file, not a log."
_TEXT_HINT = "Paste the text itself, or send the log file."
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", _PICTURE, _TEXT_HINT),
    (b"\xff\xd8\xff", _PICTURE, _TEXT_HINT),
    (b"GIF8", _PICTURE, _TEXT_HINT),
    (b"%PDF-", "This is a PDF, not a log.", _TEXT_HINT),
    (b"PK\x03\x04", _PACKED, "Unpack it and send the log files inside, or compress them by gzip."),
    (b"\x28\xb5\x2f\xfd", _PACKED, "Unpack it (zstd -d) and send it plain or compressed by gzip."),
    (b"\xfd7zXZ\x00", _PACKED, "Unpack it (xz -d) and send it plain or compressed by gzip."),
    (b"BZh", _PACKED, "Unpack it (bzip2 -d) and send it plain or compressed by gzip."),
    (b"7z\xbc\xaf\x27\x1c", _PACKED, "Unpack it and send the log files inside."),
    (b"\x1f\x8b", "This file is compressed twice.", "Unpack it once (gzip -d) and send that."),
    (b"\x7fELF", "This is a program or a core dump, not a log.", _TEXT_HINT),
)


def _checked(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks, unless their beginning shows that they are no text."""
    is_checked = False
    for block in blocks:
        if not is_checked and block != bytes(len(block)):
            _refuse_binary(block, name)
            is_checked = True
        yield block


def _refuse_binary(start: bytes, name: str) -> None:
    for magic, problem, hint in _MAGIC:
        if start.startswith(magic):
            raise _not_text(name, problem, hint)
    if start[257:262] == b"ustar":
        raise _not_text(name, _PACKED, "Unpack it (tar -x) and send the log files inside.")
    if _encoding_of(start) is None:
        sample = start[: 2**16].replace(b"\0", b"")
        if len(sample.translate(None, _CONTROLS)) < 0.95 * len(sample):
            raise _not_text(name, "This is a binary file, not a log.", _TEXT_HINT)


# Control characters that no terminal writes; logs have colours, bells, tabs and backspaces.
_CONTROLS = bytes(sorted({*range(1, 32), 127} - set(b"\a\b\t\n\v\f\r\x1b")))


def _encoding_of(start: bytes) -> str | None:
    """UTF-16 or UTF-32 by its mark or by where its NUL bytes stand; None for UTF-8 and kin."""
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if start.startswith(mark):
            return encoding
    sample = start[:4096]
    half = len(sample) // 2
    if half < 8:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > half * 0.6 and even < half * 0.1:
        return "utf-16-le"
    if even > half * 0.6 and odd < half * 0.1:
        return "utf-16-be"
    return None


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    encoding = _encoding_of(first)
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _without_nuls(blocks: Iterator[bytes]) -> Iterator[bytes]:
    # A log cut while its writer goes on begins with gigabytes of them; PostgreSQL refuses them.
    for block in blocks:
        yield block.translate(None, b"\0") if b"\0" in block else block


# ------------------------------------------------------------------------------ errors


def _named(name: str) -> str:
    return f"{name}: " if name else ""


def _size_in_words(size_bytes: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:g} {unit}"
    return f"{size_bytes} bytes"


def _empty(name: str) -> UnusableTextError:
    return UnusableTextError(
        f"{_named(name)}There is no text in it.",
        status=422,
        hint="Paste the end of the log, with the traceback or the last lines before it stopped.",
        code="empty-text",
        name=name,
    )


def _not_text(name: str, problem: str, hint: str) -> UnusableTextError:
    return UnusableTextError(
        f"{_named(name)}{problem}", status=415, hint=hint, code="not-text", name=name
    )


def _broken_archive(name: str) -> UnusableTextError:
    return UnusableTextError(
        f"{_named(name)}It begins like a gzip file, but cannot be unpacked.",
        status=422,
        hint="Check it by `gzip -t FILE`, or send the log uncompressed.",
        code="broken-archive",
        name=name,
    )


def _bomb(name: str) -> IntakeError:
    ratio = settings.PITSTOP_MAX_DECOMPRESSION_RATIO
    return IntakeError(
        f"{_named(name)}It unpacks to more than {ratio} times its size.",
        status=413,
        hint="Unpack it and send the last part of the log, uncompressed.",
        code="archive-bomb",
        name=name,
    )


def _too_large(name: str) -> IntakeError:
    limit = _size_in_words(settings.PITSTOP_MAX_UPLOAD_BYTES)
    return IntakeError(
        f"{_named(name)}It is larger than {limit}, which is the limit for one text.",
        status=413,
        hint="Send its last part, for instance `tail -c 1G FILE`: failures stand at the end.",
        code="too-large",
        name=name,
    )


def _disk_full() -> IntakeError:
    return IntakeError(
        "There is no room left to store it.",
        status=507,
        hint="Tell whoever runs Pitstop that its disk is full; nothing was taken.",
        code="disk-full",
    )


def _too_many_texts() -> IntakeError:
    limit = settings.PITSTOP_MAX_TEXTS
    return IntakeError(
        f"An incident holds at most {limit} texts.",
        status=413,
        hint="Send one text a rank or node, and leave out those of healthy ranks.",
        code="too-many-texts",
    )
