"""`python -m triage.engine train.log`: the diagnosis in a terminal, without Django."""

from __future__ import annotations

import argparse
import sys

from kb.catalog import load_catalog
from triage.engine.terminal import run


def main() -> int:
    """Reads the arguments and prints an answer a file; 2 if a file could not be read."""
    parser = argparse.ArgumentParser(prog="python -m triage.engine")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a log, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--together", action="store_true", help="all files tell of one incident")
    options = parser.parse_args()
    return run(options.files, load_catalog(), as_json=options.json, together=options.together)


if __name__ == "__main__":
    sys.exit(main())
