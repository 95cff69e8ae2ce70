"""Reads the text of a failed training run and says what went wrong.

The method, in the order of the modules: `lines` turns bytes into lines without colours, bars and
prefixes; `multipattern` finds candidate lines for all catalog patterns in one pass; the `parsers`
read tracebacks, collectives, stack dumps, launcher reports and numbers; `stack_tree` groups
processes by where they wait; `episodes` parts the failures of a long log; `facts` answers questions
that no pattern can; `signatures` puts hits and facts together into matches; `ranking` puts the root
before its consequences. scan() is a map over the texts of an incident, diagnose() the reduce over
what it yields. Pure Python: no database, no Django; the catalog comes in as a value.
"""

from triage.engine.evidence import Evidence, EvidenceError
from triage.engine.limits import Limits
from triage.engine.pipeline import diagnose, scan
from triage.engine.verdict import Diagnosis, EvidenceLine, Verdict

__all__ = [
    "Diagnosis",
    "Evidence",
    "EvidenceError",
    "EvidenceLine",
    "Limits",
    "Verdict",
    "diagnose",
    "scan",
]
