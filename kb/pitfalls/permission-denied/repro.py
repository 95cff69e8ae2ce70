"""A shared cache folder belongs to another run; this user may read it and no more."""

import sys

# part: fixed
import os
import tempfile
from pathlib import Path


def writable_folder(*candidates: str | Path) -> Path:
    """The first of the folders that this user can write to, made if need be; else a private one.

    For caches and outputs: try it with the file system itself, because mode bits say nothing of
    read-only mounts, ACLs and squashed root.
    """
    for folder in map(Path, candidates):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            print(f"{folder} is passed over: {os.strerror(error.errno or 0)}")
    return Path(tempfile.mkdtemp())


# end: fixed

if __name__ == "__main__":
    shared = Path(tempfile.mkdtemp()) / "cache"
    shared.mkdir(mode=0o555)
    folder = writable_folder(shared, Path.cwd() / "cache") if "--fixed" in sys.argv else shared
    with open(folder / "index.json", "w") as file:
        file.write("{}")
    print("index written")
    print("ran to its end")
