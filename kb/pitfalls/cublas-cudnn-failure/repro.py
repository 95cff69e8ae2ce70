"""The GPU is full before the first matrix product; run it alone on a GPU."""

import sys

import torch


# part: fixed
def warm_up_libraries(device: torch.device, fraction: float = 0.95) -> None:
    """Create the cuBLAS and cuDNN handles while there is memory; call it before the model.

    The limit makes PyTorch fail with a clear out-of-memory error before the libraries fail.
    """
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    square = torch.ones(16, 16, device=device)
    image = torch.ones(1, 1, 16, 16, device=device)
    (square @ square).sum().item()
    torch.nn.functional.conv2d(image, image[:, :, :3, :3]).sum().item()


# end: fixed


def fill(device):
    held = []
    for size in (1 << 30, 1 << 26, 1 << 21):
        try:
            while True:
                held.append(torch.empty(size, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            continue  # go on with smaller pieces
    return held


if __name__ == "__main__":
    device = torch.device("cuda", 0)
    square = torch.ones(16, 16, device=device)
    if "--fixed" in sys.argv:
        warm_up_libraries(device)
    held = fill(device)
    print(f"product {(square @ square)[0, 0].item()}, {len(held)} pieces held")
    print("ran to its end")
