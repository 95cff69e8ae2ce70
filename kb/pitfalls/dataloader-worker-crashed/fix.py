"""Find the sample that kills a worker, and keep native thread pools out of workers."""

from typing import Any

from torch.utils.data import DataLoader, Dataset


# part: quiet
def quiet_native_threads(worker_id: int) -> None:
    """Worker start-up: no thread pools of OpenCV, and a stack dump if the worker crashes."""
    import faulthandler

    faulthandler.enable()
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(0)
    cv2.ocl.setUseOpenCL(False)


def build_loader(dataset: Dataset, **options: Any) -> DataLoader:
    return DataLoader(
        dataset,
        worker_init_fn=quiet_native_threads,
        multiprocessing_context="spawn",
        persistent_workers=True,
        **options,
    )


# end: quiet
