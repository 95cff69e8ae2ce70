"""A native library takes the room for thread-local data that late libraries share."""

import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


# part: fixed
def preload_openmp() -> None:
    """Start this program again with torch's own OpenMP runtime loaded before anything else."""
    runtime = next(Path(find_spec("torch").origin).parent.glob("lib/libgomp*.so*"))
    if str(runtime) not in os.environ.get("LD_PRELOAD", ""):
        os.environ["LD_PRELOAD"] = f"{runtime}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")
        os.execv(sys.executable, sys.orig_argv)


# end: fixed

if "--fixed" in sys.argv:
    preload_openmp()
source = Path("decoder.c")
source.write_text("""
static __thread char scratch[SIZE] __attribute__((tls_model("initial-exec")));
char* scratch_of_this_thread(void) { return scratch; }
""")


def load_decoder(size):
    library = f"./decoder-{size}.so"
    command = ["gcc", "-shared", "-fPIC", f"-DSIZE={size}", source, "-o", library]
    subprocess.run(command, check=True)
    try:
        return ctypes.CDLL(library)
    except OSError:  # more than this C library keeps for late ones
        return None


size = next(size for size in range(2048, 0, -64) if load_decoder(size))
print(f"the decoder holds {size} bytes a thread")

import torch

print(f"torch {torch.__version__} with {torch.get_num_threads()} threads")
print("ran to its end")
