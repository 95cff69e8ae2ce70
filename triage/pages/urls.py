"""Addresses of the pages about incidents."""

from __future__ import annotations

from django.urls import path, register_converter

from triage.models import Incident
from triage.pages import (
    feedback_views,
    incident_actions,
    list_views,
    people_views,
    report_views,
    time_views,
    views,
)
from triage.reports.render import FORMS


class IncidentNumber:
    """`INC-123`, in whatever case it was typed, as the number 123."""

    regex = r"[Ii][Nn][Cc]-[0-9]{1,18}"

    def to_python(self, value: str) -> int:
        """The number in the reference."""
        number = Incident.number_of(value)
        if number is None:
            raise ValueError(value)
        return number

    def to_url(self, value: int | str) -> str:
        """The reference of a number; a reference stays."""
        return value if isinstance(value, str) else f"INC-{value}"


register_converter(IncidentNumber, "incident")

app_name = "triage"
urlpatterns = [
    path("", views.home, name="home"),
    path("samples/<slug:name>/", views.sample, name="sample"),
    path("theme/", views.theme, name="theme"),
    path("me/", people_views.account, name="account"),
    path("me/password/", people_views.password, name="password"),
    path("tokens/", people_views.token_list, name="token-list"),
    path("tokens/<int:pk>/revoke", people_views.token_revoke, name="token-revoke"),
    path("people/", people_views.person_list, name="person-list"),
    path("people/<int:pk>/", people_views.person_change, name="person-change"),
    path("people/<int:pk>/link", people_views.person_link, name="person-link"),
    path("teams/", people_views.team_list, name="team-list"),
    path("teams/<slug:slug>/", people_views.team, name="team"),
    path("teams/<slug:slug>/change", people_views.team_change, name="team-change"),
    path("reports/", report_views.report_list, name="report-list"),
    path("reports/<str:month>/", report_views.report, name="report"),
    *(
        path(
            f"reports/<str:month>/report.{form}",
            report_views.report_file,
            {"form": form},
            name="report-file",
        )
        for form in FORMS
    ),
    path("time/", time_views.mine, name="my-time"),
    path("time/entries.csv", time_views.entries_csv, name="time-csv"),
    path("time/<int:pk>/change", time_views.change, name="time-change"),
    path("i/<incident:number>/timer", time_views.timer, name="incident-timer"),
    path("i/<incident:number>/time", time_views.add, name="incident-time"),
    path("audit/", people_views.audit_list, name="audit-list"),
    path("incidents/", list_views.incident_list, name="incident-list"),
    path("incidents/bulk", incident_actions.bulk, name="incident-bulk"),
    path("incidents/undo", incident_actions.undo, name="undo"),
    path("curate/feedback", feedback_views.feedback_list, name="feedback-list"),
    path("i/<incident:number>", views.incident, name="incident"),
    path("i/<incident:number>/status", views.incident_status, name="incident-status"),
    path("i/<incident:number>/log", views.incident_log, name="incident-log"),
    path("i/<incident:number>/texts/<int:position>/raw", views.incident_raw, name="incident-raw"),
    path("i/<incident:number>/texts", views.incident_add, name="incident-add"),
    path("i/<incident:number>/minimal", views.incident_minimal, name="incident-minimal"),
    path(
        "i/<incident:number>/reproductions",
        views.incident_reproductions,
        name="incident-reproductions",
    ),
    path(
        "i/<incident:number>/reproductions/<int:run>/cancel",
        views.incident_reproduction_cancel,
        name="incident-reproduction-cancel",
    ),
    path("i/<incident:number>/change", incident_actions.change, name="incident-change"),
    path("i/<incident:number>/take", incident_actions.take, name="incident-take"),
    path("i/<incident:number>/notes", incident_actions.notes, name="incident-notes"),
    path("i/<incident:number>/notes/<int:pk>", incident_actions.note, name="incident-note"),
    path("i/<incident:number>/merge", incident_actions.merge, name="incident-merge"),
    path("i/<incident:number>/unmerge", incident_actions.unmerge, name="incident-unmerge"),
    path("i/<incident:number>/split", incident_actions.split, name="incident-split"),
    path("i/<incident:number>/feedback", feedback_views.give, name="incident-feedback"),
    path("i/<incident:number>/destroy", views.incident_destroy, name="incident-destroy"),
]
