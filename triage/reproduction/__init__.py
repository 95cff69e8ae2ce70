"""Runs the catalog's reproductions in a sandbox and lets the engine read what they print.

`sandbox` shuts a script in and says what this machine can run; `capture` takes the stacks of a tree
that hangs, from outside; `runner` runs one script and has its output diagnosed; `proofs` runs an
entry broken and fixed, and says what that proves. Plain Python, as the engine. Only the catalog's
own scripts are run, with numbers within the ranges that their entries declare.
"""

from triage.reproduction.proofs import Checked, verify
from triage.reproduction.runner import (
    OptionError,
    Outcome,
    checked_options,
    memory_limit_mib,
    reproduce,
)
from triage.reproduction.sandbox import (
    Capability,
    NoSandboxError,
    interpreter,
    probe,
    why_unlikely,
)

__all__ = [
    "Capability",
    "Checked",
    "NoSandboxError",
    "OptionError",
    "Outcome",
    "checked_options",
    "interpreter",
    "memory_limit_mib",
    "probe",
    "reproduce",
    "verify",
    "why_unlikely",
]
