"""What the pages' forms take, as the services want it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.utils.datastructures import MultiValueDict

from triage.pages.wording import size_in_words
from triage.services.intake import JobFacts, NamedStream

SCHEDULERS = ("slurm", "kubernetes", "torchrun", "ray", "other")


class FilesInput(forms.ClearableFileInput):
    """A file picker for many files."""

    allow_multiple_selected = True

    def value_from_datadict(
        self, data: Any, files: MultiValueDict[str, UploadedFile], name: str
    ) -> list[UploadedFile]:
        """All files of that name."""
        return files.getlist(name)


class FilesField(forms.Field):
    """Any number of files; judged by intake, which reads them as streams."""

    widget = FilesInput(attrs={"multiple": True})

    def clean(self, value: list[UploadedFile] | None) -> list[UploadedFile]:
        """The files as they came, without the empty row a browser sends for no file."""
        return [file for file in value or [] if file.name or file.size]


class TextsForm(forms.Form):
    """A paste, files, or both."""

    # Not a CharField, which refuses NUL characters: logs have them, and intake drops them.
    text = forms.Field(required=False, widget=forms.Textarea, label="Text")
    uploads = FilesField(required=False)

    def clean_text(self) -> str:
        """The paste, unless it is over the limit."""
        text: str = self.cleaned_data["text"] or ""
        limit_bytes = settings.PITSTOP_MAX_PASTE_BYTES
        if len(text) > limit_bytes or len(text.encode("utf-8", "replace")) > limit_bytes:
            raise forms.ValidationError(
                f"The box takes up to {size_in_words(limit_bytes)}. Drop the log as a file "
                "instead; gzip is fine."
            )
        return text

    def problem(self) -> str:
        """The first complaint about a field, with the field's name."""
        name, messages = next(iter(self.errors.items()))
        label = self.fields[name].label or name
        return f"{label}: {messages[0]}"

    def texts(self) -> Iterator[NamedStream]:
        """What was pasted first, then the files."""
        pasted = self.cleaned_data["text"]
        files = self.cleaned_data["uploads"]
        if pasted.strip() or not files:
            # Browsers send form text with \r\n; logs are read with the line ends they had.
            yield NamedStream(
                "", io.BytesIO(pasted.replace("\r\n", "\n").encode("utf-8", "replace"))
            )
        for file in files:
            yield NamedStream(file.name or "", file)


class TriageForm(TextsForm):
    """The front page's form: texts, and what is known of the job."""

    job_id = forms.CharField(required=False, max_length=200, label="Job id")
    attempt = forms.IntegerField(required=False, min_value=0, max_value=10_000, label="Attempt")
    gpus = forms.IntegerField(required=False, min_value=1, max_value=1_000_000, label="GPUs")
    scheduler = forms.ChoiceField(
        required=False,
        label="Started by",
        choices=[("", "unknown"), *((name, name) for name in SCHEDULERS)],
    )

    @property
    def job_fields(self) -> list[forms.BoundField]:
        """The fields about the job, which the page folds away."""
        return [self[name] for name in ("job_id", "attempt", "gpus", "scheduler")]

    def job(self) -> JobFacts:
        """The facts that were given."""
        facts = self.cleaned_data
        return JobFacts(
            id=facts["job_id"],
            attempt=facts["attempt"] or 0,
            scheduler=facts["scheduler"],
            gpus=facts["gpus"],
        )
