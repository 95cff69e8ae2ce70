"""Opinions on answers and fixes: one a person, changeable, counted, and the order they make."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kb.catalog.experience import Tally, order_fixes
from tests.factories import BUS_ERROR, make_incident, make_user, send
from triage.models import Feedback, Incident, Team, TimeEntry
from triage.services import feedback, recurrence, response
from triage.services.catalog import current_catalog
from triage.services.feedback import Opinion
from triage.services.response import ChangeError

pytestmark = [pytest.mark.django_db, pytest.mark.services]

SLUG = "dataloader-shm-bus-error"


@pytest.fixture
def incident(work: Callable[[], Any]) -> Incident:
    with work():
        incident = send(BUS_ERROR).incident
    incident.refresh_from_db()
    return incident


def fix_titles() -> list[str]:
    pitfall = current_catalog().get(SLUG)
    assert pitfall is not None
    return [fix.title for fix in pitfall.fixes]


def test_one_opinion_a_person_that_can_change_and_be_withdrawn(incident: Incident) -> None:
    ada = make_user(username="ada")
    feedback.give(incident, Opinion(is_good=True), who=ada)
    feedback.give(incident, Opinion(is_good=True), who=ada)
    assert Feedback.objects.count() == 1
    feedback.give(incident, Opinion(is_good=False, other_slug="cuda-oom-graph-retention"), who=ada)
    (row,) = feedback.standing(incident)
    assert (row.is_good, row.other_slug, row.slug) == (False, "cuda-oom-graph-retention", SLUG)
    said = feedback.experiences([SLUG])[SLUG]
    assert said.answers == Tally(0, 1)
    assert said.instead == [("cuda-oom-graph-retention", 1)]
    assert feedback.withdraw(incident, who=ada)
    assert not feedback.withdraw(incident, who=ada)
    assert feedback.standing(incident) == []
    assert [row.kind for row in incident.log_book.order_by("pk")][-3:] == [
        "feedback", "feedback", "feedback_withdrawn",
    ]  # fmt: skip


def test_fixes_are_counted_over_all_incidents(incident: Incident) -> None:
    first, second = fix_titles()[:2]
    for number in range(3):
        person = make_user()
        feedback.give(incident, Opinion(is_good=number > 0, fix_title=second), who=person)
    feedback.give(incident, Opinion(is_good=False, fix_title=first), who=make_user())
    pitfall = current_catalog().get(SLUG)
    assert pitfall is not None
    said = feedback.experience_of(pitfall)
    assert said.fixes == {second: Tally(2, 3), first: Tally(0, 1)}
    assert said.fixes[second].worked == "worked 2 of 3 times"
    ordered = [rated.fix.title for rated in order_fixes(pitfall.fixes, said)]
    assert ordered[0] == second
    assert ordered[-1] == first
    (disputed,) = feedback.disputed(Incident.objects.all())
    assert (disputed.slug, disputed.wrong, disputed.failed_fixes) == (SLUG, 0, 2)


def test_counting_asks_once_for_many_entries(
    incident: Incident, django_assert_num_queries: Callable[[int], Any]
) -> None:
    feedback.give(incident, Opinion(is_good=True), who=make_user())
    with django_assert_num_queries(1):
        assert set(feedback.experiences([SLUG, "cuda-oom-graph-retention"])) == {
            SLUG,
            "cuda-oom-graph-retention",
        }


@pytest.mark.parametrize(
    ("opinion", "problem"),
    [
        (Opinion(is_good=True, fix_title="buy a new cluster"), "no fix"),
        (Opinion(is_good=False, other_slug="no-such-thing"), "no entry"),
        (Opinion(is_good=True, fix_title="x", slug="no-such-thing"), "no entry"),
    ],
)
def test_what_the_catalog_has_not_is_refused(
    incident: Incident, opinion: Opinion, problem: str
) -> None:
    with pytest.raises(ChangeError, match=problem):
        feedback.give(incident, opinion, who=make_user())
    assert not Feedback.objects.exists()


def test_an_incident_without_an_answer_has_nothing_to_judge() -> None:
    with pytest.raises(ChangeError, match="no answer yet"):
        feedback.give(make_incident(), Opinion(is_good=True), who=make_user())


def test_seen_before_tells_how_often_what_helped_and_what_it_cost(work: Callable[[], Any]) -> None:
    ada = make_user()
    found = []
    with work():
        for rank in (1, 2, 3):
            text = BUS_ERROR.replace("rank3", f"rank{rank}")
            found.append(send(text).incident)
    first, second, third = (Incident.objects.get(pk=i.pk) for i in found)
    assert recurrence.seen_before(first, Incident.objects.all()) is None
    response.change(first, {"gpus": 8, "idle_minutes": 90, "status": "resolved"}, who=ada)
    feedback.give(first, Opinion(is_good=True, fix_title=fix_titles()[1]), who=ada)
    now = timezone.now()
    TimeEntry.objects.create(
        incident=first, person=ada, source="hand", started_at=now, ended_at=now, minutes=45
    )
    TimeEntry.objects.create(
        incident=second, person=ada, source="timer", started_at=now,
        ended_at=now + timedelta(minutes=15), minutes=15,
    )  # fmt: skip
    seen = recurrence.seen_before(third, Incident.objects.all())
    assert seen is not None
    assert (seen.times, seen.same_failure, seen.last, seen.last_resolved) == (2, 2, second, first)
    assert (seen.fix, seen.fix_incident) == (fix_titles()[1], first)
    assert (seen.people_minutes, seen.gpu_minutes) == (60, 720)


def test_seen_before_shows_nobody_what_they_may_not_see(work: Callable[[], Any]) -> None:
    team = Team.objects.create(name="a", slug="a")
    with work():
        hidden = send(BUS_ERROR).incident
        shown = send(BUS_ERROR.replace("rank3", "rank1")).incident
    Incident.objects.filter(pk=hidden.pk).update(team=team)
    shown.refresh_from_db()
    visible = Incident.objects.of_teams(Team.objects.none())
    assert recurrence.seen_before(shown, visible) is None
