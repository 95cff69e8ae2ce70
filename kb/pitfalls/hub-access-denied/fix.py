"""One process of a host downloads, the others wait for it and then read the local files."""

# part: fixed
import os

import torch.distributed as dist
from huggingface_hub import snapshot_download


def stage(repo: str, folder: str, revision: str) -> str:
    """The local folder with the repository's files; call it on every rank after init."""
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        snapshot_download(repo, revision=revision, local_dir=folder)  # reads HF_TOKEN
    dist.barrier()  # every rank comes here; give the group a timeout longer than the download
    return folder


# end: fixed
