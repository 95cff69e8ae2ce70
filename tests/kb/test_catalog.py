"""Every example of every entry through the whole catalog: each entry's guard the others."""

from __future__ import annotations

import pytest

from kb.catalog import Catalog, Example, load_catalog
from triage.engine import diagnose, scan

# A slug is never renamed or reused, so these stay.
FIRST_SLUGS = (
    "amp-overflow-skips",
    "backward-twice",
    "checkpoint-corrupt",
    "checkpoint-device",
    "checkpoint-key-mismatch",
    "checkpoint-optimizer-mismatch",
    "checkpoint-weights-only",
    "collective-desync",
    "collective-rank-conditional",
    "collective-slow-rank",
    "collective-uneven-inputs",
    "compile-backend-failure",
    "compile-graph-break",
    "compile-recompile-limit",
    "cublas-cudnn-failure",
    "cuda-async-error-misattributed",
    "cuda-device-side-assert",
    "cuda-driver-too-old",
    "cuda-fabric-manager",
    "cuda-illegal-memory-access",
    "cuda-launch-failure",
    "cuda-no-kernel-image",
    "cuda-not-available",
    "cuda-oom-fragmentation",
    "cuda-oom-graph-retention",
    "cuda-out-of-memory",
    "data-not-sharded",
    "dataloader-bad-arguments",
    "dataloader-collate-mismatch",
    "dataloader-cuda-in-fork",
    "dataloader-fork-deadlock",
    "dataloader-host-memory-growth",
    "dataloader-oversubscribed",
    "dataloader-pin-memory-failure",
    "dataloader-shm-bus-error",
    "dataloader-too-many-open-files",
    "dataloader-unpicklable-spawn",
    "dataloader-worker-crashed",
    "dataloader-worker-oom-killed",
    "ddp-marked-ready-twice",
    "ddp-model-mismatch",
    "ddp-unused-parameters",
    "ddp-wrap-before-device",
    "device-mismatch",
    "disk-full",
    "dtype-mismatch",
    "eval-mode-stuck",
    "extension-abi-mismatch",
    "extension-build-failure",
    "file-not-found",
    "gloo-failure",
    "gpu-hardware-fault",
    "grad-accumulation-not-normalised",
    "grad-scaler-misuse",
    "host-memory-error",
    "host-oom-killed",
    "hub-access-denied",
    "inplace-modified",
    "loss-nan",
    "lr-scheduler-order",
    "main-guard-missing",
    "missing-module",
    "mkl-openmp-conflict",
    "nccl-cuda-error",
    "nccl-duplicate-gpu",
    "nccl-ib-error",
    "nccl-invalid-usage",
    "nccl-memlock",
    "nccl-remote-error",
    "nccl-system-error",
    "nccl-watchdog-timeout",
    "no-grad-fn",
    "numpy-abi-mismatch",
    "permission-denied",
    "port-in-use",
    "process-segfault",
    "python-exception",
    "rendezvous-failure",
    "sampler-epoch-not-set",
    "scheduler-killed",
    "shape-mismatch",
    "torchrun-child-failed",
    "triton-out-of-resources",
    "zero-grad-misuse",
)
REVIEWED_FROM_THE_START = (
    "collective-desync",
    "collective-rank-conditional",
    "collective-slow-rank",
    "collective-uneven-inputs",
    "cuda-device-side-assert",
    "dataloader-fork-deadlock",
    "dataloader-shm-bus-error",
    "nccl-watchdog-timeout",
)

EXAMPLES = [
    pytest.param(example, id=f"{pitfall.slug}/{example.path.name}")
    for pitfall in load_catalog().active
    for example in pitfall.examples
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_answered_as_its_entry_expects(catalog: Catalog, example: Example) -> None:
    with example.path.open("rb") as stream:
        verdict = diagnose([scan(stream, catalog=catalog, name=example.path.name)], catalog)
    first = verdict.diagnoses[0] if verdict.diagnoses else None
    told = [(d.slug, d.role, d.confidence, d.rank, d.because) for d in verdict.diagnoses]
    assert (first.slug if first else "none") == example.expect, told
    if example.rank is not None:
        assert first is not None
        assert first.rank == example.rank, told


def test_the_first_entries_stay(catalog: Catalog) -> None:
    assert len(FIRST_SLUGS) == 84
    assert set(FIRST_SLUGS) <= {pitfall.slug for pitfall in catalog}


def test_entries_are_reviewed(catalog: Catalog) -> None:
    reviewed = {p.slug for p in catalog if p.status in ("reviewed", "verified")}
    assert len(reviewed) >= 30
    assert set(REVIEWED_FROM_THE_START) <= reviewed
    assert {p.slug for p in catalog if p.fatal} <= reviewed


def test_every_answer_of_an_example_is_an_active_entry(catalog: Catalog) -> None:
    active = {pitfall.slug for pitfall in catalog.active} | {"none"}
    assert {e.expect for pitfall in catalog for e in pitfall.examples} <= active
