"""`python -m triage.engine train.log`: the diagnosis in a terminal, without Django."""

from __future__ import annotations

import sys

from triage.engine.terminal import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m triage.engine"))
