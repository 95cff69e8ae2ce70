"""One of two workers ends with a status of its own and says nothing."""

import os
import subprocess
import sys

if "LOCAL_RANK" in os.environ:  # a worker
    if os.environ["LOCAL_RANK"] == "1" and "--fixed" not in sys.argv:
        os._exit(7)
    sys.exit()

launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
launched = subprocess.run([*launcher, __file__, *sys.argv[1:]], check=False)
if launched.returncode == 0:
    print("ran to its end")
sys.exit(launched.returncode)
