"""What the pages about people, teams and tokens take."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.contrib.auth.models import User

from triage.models import Profile, Team
from triage.services import people, tokens
from triage.services.people import Right

_ROLE_WORDS = {
    "viewer": "viewer: reads",
    "responder": "responder: sends texts, works on incidents",
    "curator": "curator: writes catalog entries too",
    "admin": "admin: looks after people, teams and tokens too",
}
_LIVES = ((30, "30 days"), (90, "90 days"), (365, "a year"), (0, "until it is revoked"))


class PersonForm(forms.Form):
    """A new account."""

    username = forms.CharField(
        label="Name", max_length=150, validators=[User.username_validator], strip=True
    )
    email = forms.EmailField(label="Mail", required=False)
    role = forms.ChoiceField(label="Role", choices=list(_ROLE_WORDS.items()), initial="responder")


class RoleForm(forms.Form):
    """Another role for somebody."""

    role = forms.ChoiceField(label="Role", choices=list(_ROLE_WORDS.items()))


class TeamForm(forms.Form):
    """A team's name."""

    name = forms.CharField(label="Name", max_length=80)


class MemberForm(forms.Form):
    """Somebody who joins a team."""

    person = forms.ModelChoiceField(
        label="Person", queryset=User.objects.none(), to_field_name="username"
    )

    def __init__(self, *args: Any, team: Team, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["person"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = (
            User.objects.filter(is_active=True).exclude(teams=team).order_by("username")
        )


class ProfileForm(forms.ModelForm):
    """What somebody says of themself."""

    time_zone = forms.CharField(label="Time zone", max_length=64, required=False)

    class Meta:
        model = Profile
        fields = ("time_zone",)

    def clean_time_zone(self) -> str:
        """A name of the zone database, or nothing: as the browser has it."""
        name = str(self.cleaned_data["time_zone"]).strip()
        if name and name not in available_timezones():
            raise forms.ValidationError("No such zone; a name is like Europe/Zurich.")
        return name


class TokenForm(forms.Form):
    """A new key to the API."""

    name = forms.CharField(label="What for", max_length=100)
    scope = forms.ChoiceField(label="Scope")
    days = forms.TypedChoiceField(label="Lives", coerce=int, initial=90)

    def __init__(self, *args: Any, person: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        words = {
            "submit": "submit: sends texts, reads what it sent",
            "read": "read: reads what you may read",
            "write": "write: changes incidents, destroys texts",
            "admin": "admin: lists and revokes tokens",
        }
        scope, days = self.fields["scope"], self.fields["days"]
        assert isinstance(scope, forms.ChoiceField)
        assert isinstance(days, forms.ChoiceField)
        scope.choices = [(name, words[name]) for name in tokens.scopes_for(person)]
        is_admin = people.may(person, Right.ADMINISTER)
        days.choices = [(d, word) for d, word in _LIVES if d or is_admin]
