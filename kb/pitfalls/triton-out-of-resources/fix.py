"""Configurations that do not fit this GPU are pruned before they are compiled."""

# part: fixed
import torch
import triton

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32}, num_stages=stages, num_warps=4)
    for m, n in ((128, 128), (64, 128), (64, 64), (32, 64))
    for stages in (4, 3, 2, 1)
]


def keep_fitting(configs: list, named_args: dict, **kwargs: object) -> list:
    """Those whose operand tiles, times their stages, fit into a block's shared memory."""
    limit = torch.cuda.get_device_properties("cuda").shared_memory_per_block_optin
    width = named_args["a_ptr"].element_size()
    return [
        c
        for c in configs
        if (c.kwargs["BLOCK_M"] + c.kwargs["BLOCK_N"]) * c.kwargs["BLOCK_K"] * width * c.num_stages
        <= limit
    ]


tuned = triton.autotune(
    configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": keep_fitting}
)  # @tuned above the @triton.jit kernel whose first argument is a_ptr
# end: fixed
