"""What a signature's guards, its `none`, count as another cause."""

from __future__ import annotations

from collections.abc import Callable

from triage.engine import Verdict

LOOP = """\
for images, labels in train_loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
"""


def slugs(verdict: Verdict) -> list[str]:
    return [diagnosis.slug for diagnosis in verdict.diagnoses]


def test_a_warning_that_was_dealt_with_guards_nothing(ask: Callable[..., Verdict]) -> None:
    handled = "WARNING: ImportError: cannot import name 'fused_adam' from 'apex'; falling back\n"
    assert slugs(ask(LOOP + handled)) == ["zero-grad-misuse"]


def test_an_error_that_ended_the_program_does(ask: Callable[..., Verdict]) -> None:
    assert "zero-grad-misuse" not in slugs(ask(LOOP + "ImportError: cannot import name 'adam'\n"))
