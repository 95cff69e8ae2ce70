"""One reproduction from its script to the engine's verdict, and what two runs prove."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable

import pytest
from django.core.management import CommandError, call_command

from kb.catalog import Catalog, Pitfall, load_pitfall
from kb.catalog.proof import digest_of
from triage.management.commands import reproduce as reproduce_command
from triage.management.commands import verify as verify_command
from triage.models import Verification
from triage.reproduction import (
    Capability,
    NoSandboxError,
    OptionError,
    checked_options,
    reproduce,
    runner,
    sandbox,
    verify,
)

Make = Callable[..., tuple[Pitfall, Catalog]]
NOW = datetime.datetime(2026, 11, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.fixture
def torchless(monkeypatch: pytest.MonkeyPatch, capability: Capability) -> Capability:
    """These scripts need no torch: any Python will do."""
    if not capability.torch:
        monkeypatch.setattr(
            sandbox,
            "probe",
            lambda python: dataclasses.replace(capability, torch="2.13.0", why=""),
        )
    return sandbox.probe(capability.interpreter)


@pytest.mark.sandbox
@pytest.mark.usefixtures("nothing_left", "torchless")
class TestRuns:
    def test_a_broken_run_is_named_by_its_output_alone(self, make_pitfall: Make) -> None:
        outcome = reproduce(*make_pitfall())
        assert outcome.output.startswith("arguments []\nTraceback (most recent call last):\n")
        assert (outcome.exit_status, outcome.stopped, outcome.named) == (1, "", "step-stumbles")
        assert "step-stumbles" not in outcome.output
        assert not outcome.ran_to_its_end

    def test_a_fixed_run_ends_clean(self, make_pitfall: Make) -> None:
        outcome = reproduce(*make_pitfall(), fixed=True)
        assert outcome.output == "arguments ['--fixed']\nran to its end\n"
        assert (outcome.verdict.kind, outcome.ran_to_its_end) == ("clean", True)

    def test_numbers_within_range_reach_the_script(self, make_pitfall: Make) -> None:
        outcome = reproduce(*make_pitfall(), fixed=True, options={"classes": 4, "shm-mb": 3})
        assert outcome.output.splitlines()[0] == "arguments ['--fixed', '--classes', '4']"

    def test_shared_memory_is_as_large_as_asked_for(self, make_pitfall: Make) -> None:
        script = {
            'print("arguments"': 'import os; s = os.statvfs("/dev/shm")\n'
            'print(s.f_blocks * s.f_frsize >> 20)\nprint("arguments"'
        }
        outcome = reproduce(*make_pitfall(script=script), options={"shm-mb": 3})
        assert outcome.output.splitlines()[0] == "3"

    def test_both_badges_need_both_runs(self, make_pitfall: Make) -> None:
        pitfall, catalog = make_pitfall()
        checked = verify(pitfall, catalog, now=NOW)
        assert (checked.proof.reproduced, checked.proof.fix_verified) == (True, True)
        assert checked.proof.broken_lines == ("StumbleError: number 7 is odd",)
        assert checked.proof.fixed_lines == ("arguments ['--fixed']", "ran to its end")
        assert (checked.proof.date, checked.proof.reason) == ("2026-11-03", "")
        assert (checked.proof.device, checked.proof.entry) == ("cpu", digest_of(pitfall))
        assert set(checked.to_json()) == {
            "slug", "device", "torch", "reproduced", "fix_verified", "reason", "seconds"
        }  # fmt: skip

    @pytest.mark.parametrize(
        "case",
        [
            ("injection", {}, {}, (True, False), "only leaves the fault out"),
            ("stand-in", {}, {}, (True, False), "staged by a stand-in"),
            ("cause", {}, {"number + number % 2": "number"}, (True, False), "without 'ran to its"),
            ("cause", {}, {'print("ran to': 'sys.exit()\nprint("ran to'}, (True, False),
             "ended with 0 and without"),
            ("cause", {}, {"number = 7": "number = 8"}, (False, False), "the engine named nothing"),
            ("cause", {}, {"class StumbleError(": "class OtherError(Exception): pass\n\n\n"
                           "class StumbleError(", "raise StumbleError": "raise OtherError"},
             (False, False), "the engine named nothing"),
            ("cause", {'proves = "cause"': 'proves = "cause"\nends = "hang"'}, {}, (False, False),
             "the broken run ended with exit status 1"),
            ("cause", {}, {"number = 7": "number = 7\nif '--fixed' in sys.argv:\n"
                           "    print('StumbleError: number 9 is odd')"}, (True, False),
             "named step-stumbles in the fixed run"),
        ],
        ids=lambda case: case[4],
    )  # fmt: skip
    def test_what_falls_short_says_why(
        self,
        make_pitfall: Make,
        case: tuple[str, dict[str, str], dict[str, str], tuple[bool, bool], str],
    ) -> None:
        proves, toml, script, badges, reason = case
        toml = toml or {'proves = "cause"': f'proves = "{proves}"'}
        checked = verify(*make_pitfall(toml, script), now=NOW)
        assert (checked.proof.reproduced, checked.proof.fix_verified) == badges
        assert reason in checked.proof.reason

    def test_a_hang_is_captured_from_outside(self, make_pitfall: Make) -> None:
        toml = {'proves = "cause"': 'proves = "cause"\nends = "hang"'}
        script = {
            "    raise Stumble": "    import threading\n    threading.Lock().__enter__()\n"
            "    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n    raise Stumble"
        }
        outcome = reproduce(*make_pitfall(toml, script))
        assert outcome.stopped == "hung"
        assert outcome.seconds < 25
        assert "=== pid 2 ppid 1 state S" in outcome.output
        assert "futex" in outcome.output

    def test_a_run_that_takes_too_long_is_no_proof(
        self, make_pitfall: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runner, "_LEAST_LIMIT_S", 1)
        script = {"    raise Stumble": "    import time\n    time.sleep(60)\n    raise Stumble"}
        checked = verify(*make_pitfall(script=script), now=NOW)
        assert not checked.proof.reproduced
        assert checked.proof.reason.startswith("the broken run ran into its time limit")

    def test_the_command_shows_output_and_verdict(
        self,
        make_pitfall: Make,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        _, catalog = make_pitfall()
        monkeypatch.setattr(reproduce_command, "site_catalog", lambda: catalog)
        call_command("reproduce", "step-stumbles", "--classes", "3")
        printed = capsys.readouterr()
        assert printed.out.startswith("arguments ['--classes', '3']\n")
        assert "The step stumbled over a number." in printed.out
        assert "step-stumbles broken: ended with exit status 1" in printed.err
        call_command("reproduce", "step-stumbles", "--fixed", "--json")
        answer = json.loads(capsys.readouterr().out)
        assert (answer["verdict"], answer["exit_status"]) == ("clean", 0)
        with pytest.raises(CommandError, match="classes is a whole number from 1 to 9, not 10"):
            call_command("reproduce", "step-stumbles", "--classes", "10")

    @pytest.mark.django_db
    def test_verify_writes_what_it_saw(
        self,
        make_pitfall: Make,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        pitfall, catalog = make_pitfall()
        monkeypatch.setattr(verify_command, "site_catalog", lambda: catalog)
        call_command("verify", "--json", "--jobs", "2")
        printed = capsys.readouterr()
        answer = json.loads(printed.out)
        assert answer["slug"] == "step-stumbles"
        assert answer["fix_verified"]
        assert "1 entries: 1 failures reproduced, 1 fixes verified" in printed.err
        (proof,) = load_pitfall(pitfall.folder).proofs
        assert (proof.fix_verified, proof.catalog) == (True, catalog.version)
        row = Verification.objects.get()
        assert (row.slug, row.fix_verified, row.entry_digest) == (
            "step-stumbles",
            True,
            proof.entry,
        )

    @pytest.mark.django_db
    def test_verify_ends_with_1_where_an_entry_falls_short(
        self, make_pitfall: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pitfall, catalog = make_pitfall(script={"number = 7": "number = 8"})
        monkeypatch.setattr(verify_command, "site_catalog", lambda: catalog)
        with pytest.raises(SystemExit, match="1"):
            call_command("verify", "step-stumbles")
        assert not load_pitfall(pitfall.folder).proofs[0].reproduced


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classes": 0}, "classes is a whole number from 1 to 9, not 0"),
        ({"classes": 10}, "not 10"),
        ({"classes": True}, "not True"),
        ({"world-size": 2}, "step-stumbles takes classes, shm-mb, not world-size"),
    ],
)
def test_options_out_of_range_are_refused(
    make_pitfall: Make, options: dict[str, int], words: str
) -> None:
    pitfall, _ = make_pitfall()
    with pytest.raises(OptionError, match=words):
        checked_options(pitfall, options)


def test_nothing_is_run_without_a_sandbox(
    make_pitfall: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pitfall, catalog = make_pitfall()
    monkeypatch.setattr(sandbox, "probe", lambda python: Capability(False, "no sandbox here: x"))
    monkeypatch.setattr(runner, "Run", None)
    with pytest.raises(NoSandboxError, match="no sandbox here: x"):
        reproduce(pitfall, catalog)
    monkeypatch.setattr(reproduce_command, "site_catalog", lambda: catalog)
    with pytest.raises(CommandError, match="no sandbox here: x; nothing was run"):
        call_command("reproduce", "step-stumbles")


def test_verify_runs_nothing_without_torch(
    make_pitfall: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, catalog = make_pitfall()
    lacking = Capability(True, "no torch here: No module named 'torch'")
    monkeypatch.setattr(verify_command, "site_catalog", lambda: catalog)
    monkeypatch.setattr(verify_command, "probe", lambda python: lacking)
    monkeypatch.setattr(runner, "Run", None)
    with pytest.raises(CommandError, match=r"no torch here: .*; nothing was run"):
        call_command("verify")


def test_an_entry_without_a_script_cannot_be_run(
    make_pitfall: Make, monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    monkeypatch.setattr(verify_command, "site_catalog", lambda: catalog)
    monkeypatch.setattr(reproduce_command, "site_catalog", lambda: catalog)
    for command in ("verify", "reproduce"):
        with pytest.raises(CommandError, match="gpu-hardware-fault has no reproduction that can"):
            call_command(command, "gpu-hardware-fault")
        with pytest.raises(CommandError, match="no pitfall no-such"):
            call_command(command, "no-such")
    pitfall, own = make_pitfall({'where = "cpu"': 'where = "gpu1"'})
    monkeypatch.setattr(verify_command, "site_catalog", lambda: own)
    with pytest.raises(CommandError, match="step-stumbles runs on gpu1: --device gpu1"):
        call_command("verify", pitfall.slug)
