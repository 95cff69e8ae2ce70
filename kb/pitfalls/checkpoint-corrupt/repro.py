"""A run is killed while it saves; the next one loads what is there."""

import os
import resource
import signal
import sys

import torch


# part: fixed
def save_atomically(state, path):
    """After a kill at any moment `path` is either the old file or the complete new one."""
    temporary = f"{path}.tmp.{os.getpid()}"
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# end: fixed

save = save_atomically if "--fixed" in sys.argv else torch.save
state = {"step": 100, "weights": torch.ones(1_000_000)}
save(state, "last.pt")

run = os.fork()
if run == 0:
    # The kernel ends this process in the middle of the file, as a preemption would.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    save(state | {"step": 200}, "last.pt")
    os._exit(0)
_, status = os.waitpid(run, 0)
print(f"the run that saved step 200 ended: {signal.Signals(os.WTERMSIG(status)).name}")

print(f"resumed at step {torch.load('last.pt')['step']}")
print("ran to its end")
