#!/usr/bin/env bash
# Runs the reproductions for one GPU, broken and fixed, and writes what came of them as one JSON:
#
#     PITSTOP_REPRO_PYTHON=/path/to/python tests/gpu/run.sh [FILE]     (gpu-proofs.json)
#
# That Python has a CUDA build of torch; `python` is the one of this project. One of them fills the
# whole GPU, so nothing else should run on it. Status 0 if all proved what their entries declare,
# and where there is no GPU; else that of `manage.py verify`.
set -euo pipefail
out=$(realpath --canonicalize-missing -- "${1:-gpu-proofs.json}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    echo "there is no GPU here: nothing was run"
    exit 0
fi

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
status=0
python manage.py verify --device gpu1 --json | tee "$lines" || status=$?
python - "$lines" "$out" <<'PY'
import json
import sys
from pathlib import Path

lines, out = map(Path, sys.argv[1:])
entries = [json.loads(line) for line in lines.read_text().splitlines()]
proofs = {
    "reproduced": sum(entry["reproduced"] for entry in entries),
    "fixes_verified": sum(entry["fix_verified"] for entry in entries),
    "entries": sorted(entries, key=lambda entry: entry["slug"]),
}
out.write_text(json.dumps(proofs, indent=2) + "\n")
PY
echo "written to $out"
exit "$status"
