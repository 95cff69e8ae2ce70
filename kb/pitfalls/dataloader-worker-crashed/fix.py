"""Find the sample that kills a worker, and keep native thread pools out of workers."""

from typing import Any

from torch.utils.data import DataLoader, Dataset


# part: search
import multiprocessing


def _load(dataset: Dataset, start: int, stop: int, reached: Any) -> None:
    for index in range(start, stop):
        reached.value = index
        dataset[index]


def find_deadly_samples(dataset: Dataset, length: int) -> list[int]:
    """Indices whose loading kills the process (not those that raise an exception)."""
    context = multiprocessing.get_context("fork")
    deadly, start = [], 0
    while start < length:
        reached = context.Value("q", start)
        child = context.Process(target=_load, args=(dataset, start, length, reached))
        child.start()
        child.join()
        if child.exitcode is None or child.exitcode >= 0:
            if child.exitcode == 0:
                break
            print(f"sample {reached.value} raised an exception, see above")
        else:
            deadly.append(reached.value)
        start = reached.value + 1
    return deadly


# end: search


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
