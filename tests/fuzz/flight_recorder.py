"""Any bytes as a flight-recorder dump: read or refused, and JSON says what the pickle says."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

from kb.catalog import Catalog, load_catalog
from triage.engine import Evidence, EvidenceError, diagnose, flight, scan
from triage.engine.evidence import FlightDump
from triage.engine.parsers import flight_recorder

_CATALOG = load_catalog()
_OWN = Path(__file__).resolve().parents[1] / "data/flight_recorder"


def check(data: bytes) -> None:
    """Reads the bytes as a pickle and as JSON, and compares what was read with itself."""
    for read in (_from_pickle, _from_json):
        dump = read(data)
        if dump is not None:
            flight.compare([dump, dump])
            flight.standing([dump])
            flight.has_open_call(dump)
    evidence = scan(io.BytesIO(data), catalog=_CATALOG, name="nccl_trace_rank_3")
    document = json.dumps(evidence.to_json(), allow_nan=False)
    diagnose([Evidence.from_json(json.loads(document)), evidence], _CATALOG)


def _from_pickle(data: bytes) -> FlightDump | None:
    try:
        dump = flight_recorder.read_pickle(data)
        text = flight_recorder.pickle_to_json(data)
    except EvidenceError:
        return None
    assert flight_recorder.read_json(text) == dump
    return dump


def _from_json(data: bytes) -> FlightDump | None:
    try:
        return flight_recorder.read_json(data)
    except EvidenceError:
        return None


def seeds(catalog: Catalog) -> Iterator[bytes]:
    """The dumps of the catalog and of our own run, as JSON and as pickles of each protocol."""
    paths = [e.path for p in catalog for e in (*p.positives, *p.near_misses)]
    for path in [*paths, *sorted(_OWN.glob("*"))]:
        data = path.read_bytes()
        if flight_recorder.is_pickle(data):
            yield data
        elif flight_recorder.is_json_dump(data):
            yield data
            document = json.loads(data)
            if isinstance(document, dict) and isinstance(document.get("entries"), list):
                document["entries"] = document["entries"][:2]
            yield json.dumps(document).encode()
            yield from (pickle.dumps(document, protocol) for protocol in (2, 4, 5))


if __name__ == "__main__":
    from driver import start

    start(__file__)
