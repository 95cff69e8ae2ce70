"""Rows → what the API answers."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from triage.models import ApiToken, Finding, Incident, Reproduction, Submission
from triage.services.intake import Received


def received(request: HttpRequest, result: Received) -> dict[str, Any]:
    """What became of texts that were sent."""
    return {
        "id": result.incident.reference,
        "url": _address(request, result.incident),
        "state": result.incident.state,
        "created": result.created,
        "duplicates": result.duplicates,
        "secrets_replaced": result.secrets_replaced,
        "skipped": [{"name": s.name, "problem": s.problem} for s in result.skipped],
    }


def row(request: HttpRequest, incident: Incident) -> dict[str, Any]:
    """An incident in a list; its answer must be loaded already."""
    diagnosis = incident.current_diagnosis
    findings = list(diagnosis.findings.all()) if diagnosis else []
    return {
        "id": incident.reference,
        "url": _address(request, incident),
        "title": incident.title,
        "state": incident.state,
        "verdict": incident.verdict,
        "slug": findings[0].slug if findings else "",
        "sentence": diagnosis.sentence if diagnosis else "",
        "job": {
            **incident.job,
            "id": incident.job_id,
            "attempt": incident.attempt,
            "scheduler": incident.scheduler,
            "gpus": incident.gpus,
        },
        "created_at": incident.created_at,
        "diagnosed_at": incident.diagnosed_at,
        "status": incident.status,
        "severity": incident.severity,
        "owner": incident.owner.get_username() if incident.owner else "",
        "team": incident.team.slug if incident.team else "",
        "is_shared": incident.is_shared,
        "idle_minutes": incident.idle_minutes,
        "gpu_hours_lost": incident.gpu_hours_lost,
        "resolved_at": incident.resolved_at,
        "reopened_count": incident.reopened_count,
        "merged_into": f"INC-{incident.merged_into_id}" if incident.merged_into_id else None,
    }


def whole(request: HttpRequest, incident: Incident) -> dict[str, Any]:
    """An incident with its answer and its texts."""
    diagnosis = incident.current_diagnosis
    findings = list(diagnosis.findings.all()) if diagnosis else []
    positions = diagnosis.texts if diagnosis else []
    address = _address(request, incident)
    return {
        **row(request, incident),
        "advice": findings[0].advice if findings else "",
        "diagnoses": [_finding(found, address, positions) for found in findings],
        "next": diagnosis.next if diagnosis else [],
        "catalog": diagnosis.catalog_version if diagnosis else "",
        "error": incident.error,
        "texts": [_text(text) for text in incident.submissions.light()],
    }


def reproduction(row: Reproduction, *, with_output: bool = True) -> dict[str, Any]:
    """A run, with all that it printed so far unless that is left out."""
    return {
        "id": row.pk,
        "incident": f"INC-{row.incident_id}" if row.incident_id else "",
        "slug": row.slug,
        "fixed": row.fixed,
        "options": row.options,
        "where": row.where,
        "state": row.state,
        "waits_for": row.waits_for,
        "error": row.error,
        "named": row.named,
        "same_failure": row.same_failure,
        "result": row.result,
        "output": row.output if with_output else "",
        "created_at": row.created_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
    }


def token(row: ApiToken) -> dict[str, Any]:
    """A token without its key."""
    return {
        "id": row.pk,
        "name": row.name,
        "prefix": row.prefix,
        "scope": row.scope,
        "owner": row.owner.get_username() if row.owner else "",
        "created_at": row.created_at,
        "last_used_at": row.last_used_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    }


def _address(request: HttpRequest, incident: Incident) -> str:
    return request.build_absolute_uri(incident.get_absolute_url())


def _finding(found: Finding, address: str, positions: list[int]) -> dict[str, Any]:
    return {
        "slug": found.slug,
        "role": found.role,
        "confidence": found.confidence,
        "rank": found.rank,
        "host": found.host,
        "because": found.because,
        "evidence": [
            {
                "line": line["line"],
                "end_line": line["end_line"],
                "text": line["text"],
                "url": f"{address}#T{positions[line['text_index']]}-L{line['line']}",
            }
            for line in found.evidence
        ],
        "values": found.values,
        "explains": found.explains,
        "advice": found.advice,
    }


def _text(text: Submission) -> dict[str, Any]:
    return {
        "position": text.position,
        "name": text.name,
        "state": text.state,
        "bytes": text.size_bytes,
        "lines": text.line_count,
        "bytes_scanned": text.bytes_scanned,
        "secrets_replaced": text.secrets_replaced,
        "error": text.error,
    }
