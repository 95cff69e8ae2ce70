"""A training actor that leaves a stack and a traceback when it dies."""

from __future__ import annotations

# part: worker
import faulthandler
import logging
import os
import sys

import ray


@ray.remote(num_gpus=1)
class Trainer:
    """Logs to its own file; a segfault prints its Python stack to stderr."""

    def __init__(self, log_dir: str) -> None:
        faulthandler.enable(file=sys.stderr, all_threads=True)
        os.makedirs(log_dir, exist_ok=True)
        logging.basicConfig(filename=f"{log_dir}/actor-{os.getpid()}.log", level=logging.INFO)

    def fit(self, config: dict) -> float:
        """Train; an exception is logged here before Ray wraps it."""
        try:
            return self._fit(config)
        except BaseException:
            logging.exception("training stopped")
            raise

    def _fit(self, config: dict) -> float:
        return float(config["lr"])


# end: worker
