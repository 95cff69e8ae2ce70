"""Import what the program imports, then list libraries that are loaded more than once."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path


def duplicate_libraries() -> dict[str, list[str]]:
    """Base name of a shared library -> its paths, where this process has mapped several."""
    loaded: dict[str, set[str]] = defaultdict(set)
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[1] + line.partition("/")[2]
        if ".so" in path:
            name = re.sub(r"(?:-[0-9a-f]{8})?\.so.*", "", Path(path).name)
            loaded[name].add(path)
    return {name: sorted(paths) for name, paths in sorted(loaded.items()) if len(paths) > 1}


if __name__ == "__main__":
    import torch  # noqa: F401  and here the program's own imports, in its own order

    for name, paths in duplicate_libraries().items():
        print(name, *paths, sep="\n    ")
