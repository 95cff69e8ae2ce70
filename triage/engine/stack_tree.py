"""Who waits where: the role of each thread of a stack dump, and processes grouped by equal stack.

Everything here is read off frames, names, the dump's own idle or active, and wait channels. It
says what a process was doing at that moment; whether that is the failure is for `facts` to say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from triage.engine.episodes import Course
from triage.engine.evidence import Evidence, Frame, StackDump, Thread
from triage.engine.flight import names as rank_names
from triage.engine.regex import regex

_MAX_GROUPS = 64
_MAX_LISTED = 64
_MAX_FRAMES = 32


class Role(StrEnum):
    """What a thread is there for, or is at; the value is the word in the JSON form."""

    COLLECTIVE = "collective"
    CHECKPOINT = "checkpoint"
    DATA = "data"
    LOADER_WAIT = "loader-wait"
    WORKER_LOCKED = "worker-locked"
    WORKER_IO = "worker-io"
    WORKER_FETCHING = "worker-fetching"
    WORKER_IDLE = "worker-idle"
    PIN_MEMORY = "pin-memory"
    QUEUE_FEEDER = "queue-feeder"
    GPU_WAIT = "gpu-wait"
    BUILD_LOCK = "build-lock"
    COMPILE = "compile"
    COMPILE_POOL = "compile-pool"
    ENDED = "ended"
    OPTIMIZER = "optimizer"
    BACKWARD = "backward"
    FORWARD = "forward"
    EVALUATION = "evaluation"
    USER = "user-code"
    LAUNCHER = "launcher"
    WATCHDOG = "watchdog"
    HELPER = "helper"
    KERNEL = "kernel"
    UNKNOWN = "unknown"


#: A collective that only its wait in C++ shows.
UNNAMED = "a collective"
#: The path of a frame that /proc/PID/stack shows.
KERNEL_PATH = "[kernel]"
#: Roles in which a process does the work of a training run itself.
WORKING = frozenset(
    {
        Role.COMPILE, Role.OPTIMIZER, Role.BACKWARD, Role.FORWARD, Role.EVALUATION, Role.USER,
        Role.CHECKPOINT, Role.DATA,
    }
)  # fmt: skip
#: Roles of a DataLoader worker that owes a batch.
OWES_A_BATCH = frozenset({Role.WORKER_LOCKED, Role.WORKER_IO, Role.WORKER_FETCHING})
_OF_THE_JOB = frozenset(
    {
        Role.COLLECTIVE, Role.CHECKPOINT, Role.DATA, Role.LOADER_WAIT, Role.GPU_WAIT, Role.COMPILE,
        Role.OPTIMIZER, Role.BACKWARD, Role.FORWARD, Role.EVALUATION, Role.ENDED,
    }
)  # fmt: skip
_WORKERS = OWES_A_BATCH | {Role.WORKER_IDLE}
_ASIDE = frozenset({Role.QUEUE_FEEDER, Role.WATCHDOG, Role.HELPER, Role.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one thread stands.

    `op` is the collective it is in, `caller` the function outside libraries that led there, `place`
    that function's path:line. `waits` is None where the dump does not tell waiting from working.
    """

    role: Role
    op: str = ""
    caller: str = ""
    place: str = ""
    waits: bool | None = None


# ------------------------------------------------------------------------------- one thread

_COLLECTIVES = regex(
    r"(?:^|[.:])(?P<op>barrier|monitored_barrier|all_reduce|all_reduce_coalesced|"
    r"all_gather(?:_into_tensor|_object|_coalesced)?|_all_gather_base|"
    r"reduce_scatter(?:_tensor)?|_reduce_scatter_base|broadcast(?:_object_list)?|"
    r"all_to_all(?:_single)?|reduce|gather(?:_object)?|scatter(?:_object_list)?|send|recv|"
    r"isend|irecv|batch_isend_irecv|wait_for_everyone|synchronize|allreduce|allgather|"
    r"_store_based_barrier|_verify_params_across_processes|_sync_module_states)$"
)
_COMMUNICATES = regex(
    r"distributed|accelerate|c10d|deepspeed/comm|horovod|/comm\.py$|/dist(?:_utils)?(?:/|\.py$)|"
    r"mmengine|lightning|megatron|/parallel_state|p2p_communication"
)
_NATIVE_COLLECTIVE = regex(
    r"(?:c10d::(?:ops::)?|gloo::|ProcessGroup\w*::|^p?nccl)"
    r"(?P<op>[Bb]arrier|[Aa]ll_?[Rr]educe|[Aa]ll_?[Gg]ather|[Rr]educe_?[Ss]catter|[Bb]road[Cc]ast|"
    r"[Aa]ll_?[Tt]o_?[Aa]ll|[Ss]end|[Rr]ecv)\b"
)
_NATIVE_OPS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}  # fmt: skip
_WORK_WAIT = regex(r"c10d::Work::wait|Work(?:NCCL|Gloo|MPI|UCC)?::(?:wait|synchronize)\w*$")
_GPU_WAIT = regex(
    r"^(?:p?cu(?:da)?(?:Stream|Device|Event|Ctx)Synchronize|hip(?:Stream|Device|Event)Synchronize)"
)
_LOCK_FRAMES = regex(
    r"(?:^|[.:])(?:acquire|_acquireLock|__enter__|lock|_acquire_restore|futex\w*|pthread_mutex_lock\w*|"
    r"___?pthread_mutex_lock|__lll_lock_wait\w*|pthread_cond_wait\S*|___?pthread_cond_wait\S*|"
    r"__futex_abstimed_wait\w*|__GI___futex\w*|__new_sem_wait\w*|sem_wait|do_futex_wait\S*|"
    r"gomp_\w+|__kmp_\w+|PyThread_acquire_lock\w*|lock_PyThread_acquire_lock|syscall)$"
)
_IO_FRAMES = regex(
    r"(?:^|[.:_])(?:recv\w*|read\w*|__GI___libc_(?:read|recv\w*|pread\w*)|__libc_(?:read|recv\w*)|"
    r"p?read64|connect|accept|urlopen|getresponse|SSL_read|sleep|open64|fstat\w*|download\w*)$"
)
_IO_PATHS = regex(
    r"(?:^|/)(?:socket|ssl|http/client|urllib/\w+|urllib3/\S+|requests/\S+|botocore/\S+|boto3/\S+|"
    r"s3fs/\S+|gcsfs/\S+|fsspec/\S+|aiohttp/\S+|pymongo/\S+|redis/\S+|lmdb/\S+|h5py/\S+|"
    r"subprocess)(?:\.py)?$"
)
_IO_CHANNELS = regex(
    r"wait_woken|sk_wait|inet_|tcp_|unix_stream|skb_|pipe_|io_schedule|folio_|wait_on_|nfs|rpc_|"
    r"fuse|request_wait|cl_|ll_|cv_wait|uninterruptible|jbd2|ext4|xfs|balance_dirty|blkdev|poll|ep_|do_wait|"
    r"hrtimer_nanosleep|__x64_sys_(?:read|recv)"
)
_LOCK_CHANNELS = regex(r"_*(?:do_)?futex|rwsem_|down_|flock|posix_lock|locks_lock")
_FETCHING = frozenset(
    {"fetch", "__getitem__", "__getitems__", "__iter__", "collate", "collate_fn", "default_collate"}
)
_CHECKPOINT = regex(
    r"(?i)^_?(?:async_)?(?:save|load|write|dump|restore|upload)_?\w*"
    r"(?:checkpoint|ckpt|state|model|weights|snapshot|pretrained)\w*$|^(?:from|save)_pretrained$|"
    r"^checkpoint$"
)
# What prepares a whole data set, or brings a model: work that no step has.
_PREPARES = regex(
    r"(?:^|/)(?:datasets/(?:arrow_dataset|builder|load|fingerprint|download/\S+|utils/\S+)|"
    r"huggingface_hub/\S+|requests/\S+|wandb/\S+)\.py$"
)
# What reads data, as each step may.
_READS = regex(
    r"(?:^|/)(?:datasets/(?:arrow_reader|iterable_dataset|formatting/\S+)|tokenizers/\S+|"
    r"tokenization_utils\w*|webdataset/\S+|streaming/base/\S+|pyarrow/\S+|pandas/io/\S+|h5py/\S+|"
    r"zarr/\S+|lmdb/\S+|decord/\S+|PIL/Image|PIL/ImageFile|tarfile|gzip|ssl|http/client|"
    r"urllib3/\S+|botocore/\S+|fsspec/\S+|s3fs/\S+|gcsfs/\S+|torch/utils/data/_utils/fetch)"
    r"(?:\.py)?$"
)
_STORAGE_CHANNELS = regex(
    r"(?:folio_|io_schedule|wait_on_|nfs|rpc_|fuse|request_wait|cl_|ll_|cv_wait|jbd2|ext4|xfs|"
    r"balance_dirty|blkdev|uninterruptible)"
)
_CHECKPOINT_FILES = regex(
    r"torch/serialization\.py$|torch/distributed/checkpoint/|safetensors|checkpoint_engine"
)
_COMPILES = regex(
    r"torch/_inductor/(?:scheduler|graph|compile_fx|async_compile|codegen/\S+|ir|lowering)\.py$|"
    r"triton/compiler/|triton/backends/|torch/_dynamo/(?:symbolic_convert|convert_frame|"
    r"output_graph|bytecode_transformation)\.py$|torch/utils/cpp_extension\.py$|"
    r"torch/_inductor/runtime/triton_heuristics\.py$"
)
_COMPILE_FUNCTIONS = regex(
    r"^(?:_?compile\w*|transform|codegen|inner|step|run|load|aot_\w+|precompile|benchmark_all_\w+|"
    r"autotune_\w+|make_\w+|_jit_compile|_run_ninja_build|_write_ninja_\w+|call_function|wait)$"
)
_EVALUATION = regex(
    r"(?i)^_?(?:evaluat\w*|evaluation\w*|validat\w*|validation\w*|eval_\w+|test_\w+|run_eval\w*|"
    r"generate\w*|predict\w*|inference\w*|prediction_\w+)$"
)
_OPTIMIZERS = regex(r"/optim(?:izers?|ization)?[/_.]|/ops/adam/|bitsandbytes|grad_scaler")
_WATCHDOG = regex(
    r"(?i)watchdog|heartbeat|nccl_?(?:comm)?_?monitor|KeepAliveTimer|desync|pt_nccl_|tcpstore"
)
_LAUNCHER = regex(
    r"torch/distributed/(?:elastic|launcher|run|launch)|accelerate/commands|deepspeed/launcher|"
    r"torch/multiprocessing/spawn\.py|ray/_private/worker|lightning/\S*launchers"
)
_COMPILE_POOL = regex(r"compile_worker|subproc_pool|_inductor/compile_worker")
_WAIT_FILES = regex(
    r"(?:^|/)(?:connection|queues?|selectors|threading|socket|popen_\w+|subprocess)\.py$"
)
_STANDARD = regex(
    r"<frozen|(?:.{0,400}/python3[^/]{0,10}/)?(?:selectors|threading|subprocess|queue|socket|signal|runpy|contextlib|"
    r"functools|multiprocessing/\w+|concurrent/futures/\w+|asyncio/\w+|importlib/\S+)\.py$"
)
# What a process does once the run's own code is through with its work.
_ENDS = {
    "destroy_process_group": "torch/distributed/distributed_c10d.py",
    "_exit_function": "multiprocessing/util.py",
    "_shutdown": "threading.py",
    "_python_exit": "concurrent/futures/thread.py",
}
_LOCK_LINE = regex(r"(?i)^(?:async )?with \S{0,60}(?:lock|mutex|sem)\w*\b|\.acquire\(")
# The rank within a node, as torch.distributed.launch and DeepSpeed pass it.
_RANK_PASSED = regex(r"--local[_-]rank[= ](?P<rank>\d{1,4})\b")
_NEW_START = regex(r"(?:^|/)multiprocessing/(?:spawn|forkserver)\.py$")
_WAIT_FUNCTIONS = frozenset({"wait", "select", "poll", "get", "_poll", "_recv", "accept", "sleep"})
# A system call that does nothing but wait: by these a native dump tells.
_NATIVE_WAIT = regex(
    r"(?:^|_)(?:futex\w*|epoll_wait|poll|ppoll|select|pselect\w*|clock_nanosleep|nanosleep|accept4?|"
    r"sem_\w*wait\w*|cond_(?:timed)?wait\S*|abstimed_wait\w*|lll_lock_wait\w*|recv\w*|wait4|"
    r"do_futex_wait\S*)(?:$|@)|^(?:syscall|PyThread_acquire_lock\w*)$"
)


# py-spy cuts paths short: what these begin with is Python's own, or an installed package.
_LIBRARIES = frozenset(
    {
        "selectors", "threading", "socket", "ssl", "queue", "subprocess", "concurrent",
        "asyncio", "http", "urllib", "runpy", "contextlib", "functools", "importlib",
        "logging", "json", "pickle", "copy", "tempfile", "shutil", "zipfile", "tarfile",
        "gzip", "os", "posixpath", "typing", "weakref", "multiprocessing", "inspect",
        "socketserver", "signal", "random", "torch", "torchvision", "torchaudio", "numpy",
        "scipy", "pandas", "PIL", "cv2", "transformers", "accelerate", "datasets",
        "lightning", "pytorch_lightning", "lightning_fabric", "deepspeed", "megatron_core",
        "apex", "triton", "safetensors", "tqdm", "wandb", "tensorboard", "ray", "mmengine",
        "mmcv", "fsspec", "s3fs", "gcsfs", "aiohttp", "requests", "urllib3", "botocore",
        "boto3", "h5py", "lmdb", "horovod", "bitsandbytes", "flash_attn", "xformers",
        "peft",
    }
)  # fmt: skip


def is_own(frame: Frame) -> bool:
    """Whether the frame is in the run's own Python code."""
    if frame.is_library or _is_native(frame) or "torchinductor_" in frame.path:
        return False
    first = frame.path.split("/", maxsplit=1)[0]
    return first.removesuffix(".py") not in _LIBRARIES


_OF_COMPILER = regex(r"@.*|\.(?:constprop|isra|part|cold|lto_priv)\b.*|\(anonymous namespace\)::")


def function_name(name: str) -> str:
    """The function alone, without its class, its arguments, its version and where it is nested."""
    if "@" in name or ".c" in name or ".i" in name or ".p" in name or "(a" in name or ".l" in name:
        name = _OF_COMPILER.sub("", name)
    return name.split("(", maxsplit=1)[0].rsplit(".", 1)[-1]


def is_worker(thread: Thread) -> bool:
    """Whether the thread runs a DataLoader worker's loop."""
    return any(
        frame.function.endswith("_worker_loop") or frame.path.endswith("_utils/worker.py")
        for frame in thread.frames
    )


def is_started_anew(thread: Thread) -> bool:
    """Whether the process was started by spawn or forkserver, which copy no lock that is held."""
    return any(_NEW_START.search(frame.path) for frame in thread.frames)


def waits_for_a_batch(thread: Thread) -> bool:
    """Whether the thread is inside the DataLoader, waiting for what a worker owes."""
    if not thread.frames or is_worker(thread):
        return False
    functions = {function_name(frame.function) for frame in thread.frames}
    if functions & {"_try_get_data", "_get_data", "_get_batch"}:
        return True
    return bool(_WAIT_FILES.search(thread.frames[0].path)) and any(
        function_name(f.function) == "__next__" and f.path.endswith("utils/data/dataloader.py")
        for f in thread.frames
    )


def standing_of(thread: Thread, *, trusts_state: bool = True, is_alone: bool = False) -> Standing:
    """Role, collective, caller and place of one thread.

    `trusts_state` is False where the dump's idle and active are known to be wrong, as py-spy
    prints them across a pid namespace. `is_alone`: the process has no other thread.
    """
    alike = replace(thread, line=0, thread_id="")
    return _standing(alike, trusts_state=trusts_state, is_alone=is_alone)


# Of the threads of a large dump most are alike.
@lru_cache(maxsize=512)
def _standing(thread: Thread, *, trusts_state: bool, is_alone: bool) -> Standing:
    frames = thread.frames
    waits = _waits(thread, trusts_state)
    if is_worker(thread):
        # A forked worker's outer frames are its parent's.
        frames = _inside_loop(frames)
    own = next((f for f in frames if is_own(f)), None)
    caller = function_name(own.function) if own else ""
    place = _place(own) if own else ""
    if frames and all(f.path == KERNEL_PATH for f in frames):
        return Standing(Role.KERNEL, frames[0].function, "", "", True)
    if role := _service_role(thread):
        return Standing(role, "", caller, place, waits)
    if is_worker(thread):
        return Standing(_worker_role(thread, frames, waits, is_alone), "", caller, place, waits)
    if waits_for_a_batch(thread):
        return Standing(Role.LOADER_WAIT, "", caller, place, True)
    op, after = _collective(frames)
    if op:
        own = next((f for f in frames[after:] if is_own(f)), own)
        caller = function_name(own.function) if own else ""
        return Standing(Role.COLLECTIVE, op, caller, _place(own) if own else "", waits)
    return Standing(_role_of_work(frames, own, thread), "", caller, place, waits)


def _inside_loop(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames that a DataLoader worker's loop called."""
    for index, frame in enumerate(frames):
        if frame.function.endswith("_worker_loop"):
            return frames[:index]
    return frames


def _place(frame: Frame) -> str:
    return f"{frame.path}:{frame.line}" if frame.line else frame.path


def _waits(thread: Thread, trusts_state: bool) -> bool | None:
    channel = thread.wait_channel
    if channel and channel not in ("0", "-"):
        return True
    if trusts_state and thread.state == "idle":
        return True
    if trusts_state and thread.state.startswith("active"):
        return False
    top = thread.frames[0] if thread.frames else None
    if top is not None and _is_native(top) and _NATIVE_WAIT.search(function_name(top.function)):
        return True
    return None


def _is_native(frame: Frame) -> bool:
    return not frame.path.endswith((".py", ">")) and "ipython" not in frame.path


def _service_role(thread: Thread) -> Role | None:
    """Threads and processes that a run keeps beside the work."""
    frames, name = thread.frames, thread.name
    if _WATCHDOG.search(name) or any(
        _WATCHDOG.search(f.function) for f in frames if _is_native(f) or "elastic" in f.path
    ):
        return Role.WATCHDOG
    if name == "QueueFeederThread" or any(
        f.function.endswith("_feed") and f.path.endswith("queues.py") for f in frames
    ):
        return Role.QUEUE_FEEDER
    if name == "pt_data_pin" or any(f.path.endswith("_utils/pin_memory.py") for f in frames):
        return Role.PIN_MEMORY
    if any(_COMPILE_POOL.search(f.path) for f in frames):
        busy = any(_COMPILES.search(f.path) for f in frames)
        return Role.COMPILE if busy else Role.COMPILE_POOL
    # A launcher that called the run's own code in this process is no more than its caller.
    inner = next((f for f in frames if not (_is_native(f) or _STANDARD.match(f.path))), None)
    if inner is not None and _LAUNCHER.search(inner.path) and inner.function != "_wrap":
        return Role.LAUNCHER
    if any(f.path.endswith(_ENDS.get(function_name(f.function), "\0")) for f in frames):
        return Role.ENDED
    return None


def _worker_role(
    thread: Thread, frames: Sequence[Frame], waits: bool | None, is_alone: bool
) -> Role:
    """Idle workers sleep in index_queue.get; one that owes a batch works, waits or is stuck."""
    top = thread.frames[0]
    if not any(function_name(f.function) in _FETCHING for f in frames):
        return Role.WORKER_IDLE
    if thread.wait_channel and thread.wait_channel not in ("0", "-"):
        if _LOCK_CHANNELS.match(thread.wait_channel):
            return Role.WORKER_LOCKED
        return Role.WORKER_IO if _IO_CHANNELS.search(thread.wait_channel) else Role.WORKER_FETCHING
    if waits is False:
        return Role.WORKER_FETCHING
    # A thread that waits for another of its process, and there is none: fork left it behind.
    if is_alone and waits and _is_plain_wait(top) and not is_started_anew(thread):
        return Role.WORKER_LOCKED
    innermost = [f for f in frames[:6] if _is_native(f)] or [top]
    if any(_IO_PATHS.search(f.path) for f in frames[:4]) or any(
        _IO_FRAMES.search(function_name(f.function)) for f in innermost
    ):
        return Role.WORKER_IO
    if any(_LOCK_FRAMES.search(function_name(f.function)) for f in innermost) or (
        function_name(top.function) == "wait" and top.path.endswith("threading.py")
    ):
        return Role.WORKER_LOCKED
    # `with lock:` has no frame of its own: a sleeper whose innermost frame is the dataset's.
    if is_own(top) and (waits or _LOCK_LINE.search(top.code)):
        return Role.WORKER_LOCKED
    return Role.WORKER_FETCHING


def _collective(frames: Sequence[Frame]) -> tuple[str, int]:
    """The outermost name of the collective that the thread is in, and the frame behind it."""
    for index, frame in enumerate(frames):
        if _is_native(frame):
            if found := _NATIVE_COLLECTIVE.search(frame.function):
                native = found["op"].lower().replace("_", "")
                op, _ = _collective_in_python(frames, index)
                return op or _NATIVE_OPS.get(native, native), index + 1
            if _WORK_WAIT.search(frame.function) and not _is_in_backward(frames[index:]):
                op, after = _collective_in_python(frames, index)
                return op or UNNAMED, after or index + 1
            continue
        if op := _python_collective(frame):
            return op, index + 1
    return "", 0


def _is_in_backward(frames: Sequence[Frame]) -> bool:
    """Whether the autograd engine waits here: for the gradients' own reduction."""
    return any("autograd::Engine" in f.function or "run_backward" in f.function for f in frames)


def _collective_in_python(frames: Sequence[Frame], start: int) -> tuple[str, int]:
    for index, frame in enumerate(frames[start:], start):
        if not _is_native(frame) and (op := _python_collective(frame)):
            return op, index + 1
    return "", 0


def _python_collective(frame: Frame) -> str:
    found = _COLLECTIVES.search(frame.function)
    if found is None or not _COMMUNICATES.search(frame.path):
        return ""
    return found["op"]


def _role_of_work(frames: Sequence[Frame], own: Frame | None, thread: Thread) -> Role:
    functions = [function_name(frame.function) for frame in frames]
    if any(
        name in ("_engine_run_backward", "run_backward", "backward")
        and ("autograd" in f.path or "_tensor.py" in f.path or "/tensor.py" in f.path)
        for f, name in zip(frames, functions, strict=True)
    ) or any("autograd::Engine::" in f.function for f in frames):
        return Role.BACKWARD
    if any(_GPU_WAIT.search(name) for name in functions) or (
        "synchronize" in functions and any("torch/cuda" in f.path for f in frames[:3])
    ):
        return Role.GPU_WAIT
    if any(f.path.endswith("file_baton.py") for f in frames):
        return Role.BUILD_LOCK
    if any(
        _CHECKPOINT_FILES.search(f.path) or _CHECKPOINT.match(name)
        for f, name in zip(frames, functions, strict=True)
        if "utils/checkpoint.py" not in f.path and not _is_native(f)
    ):
        return Role.CHECKPOINT
    if any(
        _COMPILES.search(f.path) and _COMPILE_FUNCTIONS.match(name)
        for f, name in zip(frames, functions, strict=True)
    ):
        return Role.COMPILE
    if any(
        _OPTIMIZERS.search(f.path) and f.is_library and name != "zero_grad"
        for f, name in zip(frames, functions, strict=True)
    ):
        return Role.OPTIMIZER
    if any(_PREPARES.search(f.path) or _READS.search(f.path) for f in frames) or (
        _STORAGE_CHANNELS.match(thread.wait_channel)
    ):
        return Role.DATA
    if any(
        _EVALUATION.match(name)
        for f, name in zip(frames, functions, strict=True)
        if not _is_native(f)
    ):
        return Role.EVALUATION
    if any("nn/modules/" in f.path or f.path.endswith("nn/functional.py") for f in frames):
        return Role.FORWARD
    if thread.name in ("", "MainThread", "main") and own is not None:
        return Role.USER
    top = frames[0] if frames else None
    if top is None:
        return Role.UNKNOWN
    is_wait = function_name(top.function) in _WAIT_FUNCTIONS and _WAIT_FILES.search(top.path)
    if own is not None and not is_wait:
        return Role.USER
    if is_wait or _NATIVE_WAIT.search(function_name(top.function)):
        return Role.HELPER
    return Role.UNKNOWN


# ------------------------------------------------------------------------------ one process


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a dump: its main thread, and where that stands.

    `stood_still`: an earlier dump shows it at the same lines, too. `outlived`: the process printed
    the dump of itself, and its steps go on behind it.
    """

    text_index: int
    stack: StackDump
    thread: Thread
    standing: Standing
    rank: int | None = None
    stood_still: bool = False
    outlived: bool = False

    @property
    def is_training(self) -> bool:
        """Whether the process is one of the job's own: no worker, launcher or compile pool."""
        role = self.standing.role
        return role not in _WORKERS and role not in (
            Role.LAUNCHER, Role.COMPILE_POOL, Role.HELPER, Role.KERNEL, Role.UNKNOWN, Role.WATCHDOG,
            Role.QUEUE_FEEDER, Role.PIN_MEMORY,
        )  # fmt: skip


def processes(evidences: Sequence[Evidence]) -> list[Process]:
    """The processes of all texts, in order; of several dumps of one process the last.

    Without those whose run went on after the dump: where they stood, they did not stay.
    """
    return [p for p in _last_dumps(evidences) if not p.outlived]


def _last_dumps(evidences: Sequence[Evidence]) -> list[Process]:
    latest: dict[object, Process] = {}
    for index, evidence in enumerate(evidences):
        course = Course(evidence) if evidence.progress else None
        for number, stack in enumerate(evidence.stacks):
            if (found := _main(stack)) is None:
                continue
            main, standing = found
            key: object = (index, stack.rank, stack.pid, stack.command, main.thread_id)
            if stack.pid is None and not (is_timer(stack) and main.thread_id):
                key = (index, number)
            before = latest.pop(key, None)
            latest[key] = Process(
                text_index=index,
                stack=stack,
                thread=main,
                standing=standing,
                rank=stack.rank,
                stood_still=before is not None and before.thread.frames == main.frames,
                outlived=course is not None
                and _is_in_stream(stack, evidence)
                and course.went_on(stack.rank, stack.end_line, stack.command),
            )
    return _ranked(list(latest.values()), evidences)


def _is_in_stream(stack: StackDump, evidence: Evidence) -> bool:
    """Whether the dump stands where it was made: what somebody pasted has no place in time."""
    if stack.rank is not None and stack.rank in evidence.ranks:
        return True
    return stack.pid is None and all(t.thread_id.startswith("0x") for t in stack.threads)


def is_timer(stack: StackDump) -> bool:
    """Whether the process printed the dump of itself, by faulthandler's timer."""
    return stack.command.startswith("Timeout (")


def _ranked(found: list[Process], evidences: Sequence[Evidence]) -> list[Process]:
    """With the rank of the text's lines, where that text holds one process of the job.

    Without any, the ranks within the node that the command lines name, if all differ.
    """
    members = Counter(p.text_index for p in found if p.is_training)
    result = []
    for process in found:
        ranks = evidences[process.text_index].ranks
        if (
            process.rank is None
            and process.is_training
            and len(ranks) == 1
            and members[process.text_index] == 1
        ):
            result.append(replace(process, rank=ranks[0]))
        else:
            result.append(process)
    training = [p for p in result if p.is_training]
    passed = [_RANK_PASSED.search(p.stack.command) for p in training]
    numbers = [int(found["rank"]) for found in passed if found]
    if any(p.rank is not None for p in training) or len({*numbers}) < max(len(training), 2):
        return result
    by_line = {id(p): number for p, number in zip(training, numbers, strict=True)}
    return [replace(p, rank=by_line.get(id(p), p.rank)) for p in result]


def _main(stack: StackDump) -> tuple[Thread, Standing] | None:
    """The thread that runs the job: the main one, unless that only serves another."""
    main = _first_thread(stack)
    if main is None:
        return None
    trusts, is_alone = _tells_states(stack), len(stack.threads) == 1
    standing = standing_of(main, trusts_state=trusts, is_alone=is_alone)
    if standing.role in (Role.LAUNCHER, Role.HELPER):
        # Ray, and a server that trains, run the loop in a thread beside the main one.
        for thread in stack.threads:
            if thread is not main and any(is_own(frame) for frame in thread.frames):
                other = standing_of(thread, trusts_state=trusts)
                if other.role in _OF_THE_JOB:
                    return thread, other
    return main, standing


def _first_thread(stack: StackDump) -> Thread | None:
    """The main thread: by its name, its number, as gdb counts, or by being in the run's code."""
    named = next((t for t in stack.threads if t.name in ("MainThread", "main")), None)
    if named is not None and named.frames:
        return named
    with_frames = [t for t in stack.threads if t.frames]
    if stack.pid is not None:
        for thread in with_frames:
            if thread.thread_id == str(stack.pid):
                return thread
    if len(with_frames) == 1:
        return with_frames[0]
    if (main := stack.main) is not None and main.frames:
        return main
    for thread in reversed(with_frames):
        if thread.frames[-1].function in ("<module>", "_start", "main") or is_worker(thread):
            return thread
    return None


def _tells_states(stack: StackDump) -> bool:
    """Whether idle and active mean something: a thread in a plain wait is not active."""
    return not any(
        thread.state == "active" and thread.frames and _is_plain_wait(thread.frames[0])
        for thread in stack.threads
    )


def _is_plain_wait(frame: Frame) -> bool:
    return function_name(frame.function) == "wait" and frame.path.endswith("threading.py")


# --------------------------------------------------------------------------------- the tree


@dataclass(slots=True)
class Group:
    """Processes, or threads of them, that stand at the same place; the sentence says where.

    `line` is where the first of them begins in text `text_index`; `frames` are its frames,
    innermost first, with path:line. `count` tells all, `ranks` and `pids` list the first.
    """

    label: str
    role: Role
    count: int
    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    frames: tuple[str, ...]
    text_index: int
    line: int
    end_line: int
    children: list[Group] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As a page draws it."""
        return {
            "label": self.label,
            "role": self.role.value,
            "count": self.count,
            "ranks": list(self.ranks),
            "pids": list(self.pids),
            "frames": list(self.frames),
            "text_index": self.text_index,
            "line": self.line,
            "end_line": self.end_line,
            "children": [child.to_json() for child in self.children],
        }


@dataclass(frozen=True, slots=True)
class StackTree:
    """The groups of all dumps, the odd one first; `sentence` says who waits where, "" for none.

    `is_working` says that every process of the job was seen at work; `processes` counts the job's
    own, or all where there is none of them. `left_out` counts groups beyond the bound.
    """

    groups: tuple[Group, ...]
    sentence: str
    is_working: bool
    processes: int
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """As a page draws it."""
        return {
            "sentence": self.sentence,
            "is_working": self.is_working,
            "processes": self.processes,
            "left_out": self.left_out,
            "groups": [group.to_json() for group in self.groups],
        }


def build(evidences: Sequence[Evidence]) -> StackTree:
    """The tree over the stack dumps of all texts of an incident."""
    found = _last_dumps(evidences)
    training = [p for p in found if p.is_training]
    top = {(p.text_index, p.stack.pid) for p in training if p.stack.pid is not None}
    below: dict[tuple[int, int | None], list[Process]] = defaultdict(list)
    roots = []
    for process in found:
        parent = (process.text_index, process.stack.parent_pid)
        if not process.is_training and parent[1] is not None and parent in top:
            below[parent].append(process)
        else:
            roots.append(process)
    buckets = _buckets(roots)
    workers = [p for p in found if p.standing.role in OWES_A_BATCH]
    groups = [_group(bucket, len(training) or len(found), below) for bucket in buckets]
    shown = groups[:_MAX_GROUPS]
    return StackTree(
        groups=tuple(shown),
        sentence=_sentence(found, buckets),
        is_working=bool(training) and all(_is_at_work(p, workers) for p in training),
        processes=len(training) or len(found),
        left_out=len(groups) - len(shown),
    )


def _moves(process: Process) -> bool:
    return process.standing.waits is False and not process.stood_still


def _is_at_work(process: Process, owing: Sequence[Process]) -> bool:
    """Whether the process does its work, or waits for workers that do theirs, or went on since."""
    if process.outlived:
        return True
    if process.standing.role is Role.LOADER_WAIT:
        own = [
            worker
            for worker in owing
            if worker.text_index == process.text_index
            and worker.stack.parent_pid in (None, process.stack.pid)
        ]
        return bool(own) and all(w.standing.role is Role.WORKER_FETCHING and _moves(w) for w in own)
    return (
        process.standing.role in WORKING
        and _moves(process)
        and not process.stack.command.startswith(("Fatal Python error", "Windows fatal"))
    )


def _key(process: Process) -> tuple[object, ...]:
    """Equal for processes at the same place; of a working one only the functions count."""
    standing = process.standing
    frames_of = process.thread.frames
    inner = _inside_loop(frames_of) if standing.role in _WORKERS else frames_of
    own = [f for f in inner if is_own(f)]
    if standing.waits is not False or standing.role is Role.COLLECTIVE:
        frames: tuple[object, ...] = tuple((_tail(f.path), f.line, f.function) for f in own)
    else:
        frames = tuple((_tail(f.path), f.function) for f in own)
    if not own:
        frames = tuple(function_name(f.function) for f in frames_of[:12])
    return (standing.role, standing.op, frames)


def _tail(path: str) -> str:
    return "/".join(path.replace("\\", "/").rsplit("/", 2)[-2:])


def _buckets(found: Iterable[Process]) -> list[list[Process]]:
    """Equal stacks together; the job's own first, among them the rarest, then who waits not."""
    by_key: dict[tuple[object, ...], list[Process]] = defaultdict(list)
    for process in found:
        by_key[_key(process)].append(process)
    return sorted(
        by_key.values(),
        key=lambda bucket: (
            not bucket[0].is_training,
            bucket[0].standing.role is Role.LAUNCHER,
            len(bucket),
            bucket[0].standing.role in (Role.COLLECTIVE, Role.BACKWARD),
            bucket[0].standing.role is Role.BACKWARD,
            bucket[0].text_index,
            bucket[0].stack.line,
        ),
    )


def _group(
    bucket: Sequence[Process], total: int, below: dict[tuple[int, int | None], list[Process]]
) -> Group:
    first = bucket[0]
    children = [
        child for process in bucket for child in below[process.text_index, process.stack.pid]
    ]
    inner = _buckets(children)
    group = Group(
        label=_label(bucket, total),
        role=first.standing.role,
        count=len(bucket),
        ranks=tuple(sorted({p.rank for p in bucket if p.rank is not None}))[:_MAX_LISTED],
        pids=tuple(p.stack.pid for p in bucket if p.stack.pid is not None)[:_MAX_LISTED],
        frames=_frames(first.thread),
        text_index=first.text_index,
        line=first.thread.line,
        end_line=first.thread.line + len(first.thread.frames),
        children=[_group(b, len(children), defaultdict(list)) for b in inner[:_MAX_GROUPS]],
    )
    group.children.extend(_thread_groups(bucket))
    return group


def _frames(thread: Thread) -> tuple[str, ...]:
    return tuple(
        f"{frame.function} ({_place(frame)})" if frame.path else frame.function
        for frame in thread.frames[:_MAX_FRAMES]
    )


def _thread_groups(bucket: Sequence[Process]) -> list[Group]:
    """The other threads of these processes, by role; those that always wait come last."""
    by_role: dict[tuple[Role, str, str], list[tuple[Process, Thread]]] = defaultdict(list)
    for process in bucket:
        trusts = _tells_states(process.stack)
        for thread in process.stack.threads:
            if thread is process.thread or not thread.frames:
                continue
            standing = standing_of(thread, trusts_state=trusts)
            place = "" if standing.role in _ASIDE else standing.place
            by_role[standing.role, standing.op, place].append((process, thread))
    groups = []
    for (role, op, place), members in by_role.items():
        process, thread = members[0]
        what = doing(Standing(role, op))
        where = f" ({place})" if place and role not in _ASIDE else ""
        groups.append(
            Group(
                label=f"{_count(len(members), 'thread', 'threads')}: {what}{where}",
                role=role,
                count=len(members),
                ranks=(),
                pids=(),
                frames=_frames(thread),
                text_index=process.text_index,
                line=thread.line,
                end_line=thread.line + len(thread.frames),
            )
        )
    groups.sort(key=lambda g: (g.role in _ASIDE, g.count, g.text_index, g.line))
    return groups[:_MAX_GROUPS]


# ------------------------------------------------------------------------------ in sentences

_DOING = {
    Role.COLLECTIVE: "in {op}",
    Role.CHECKPOINT: "saving or loading a checkpoint",
    Role.DATA: "reading, preparing or sending data",
    Role.LOADER_WAIT: "waiting for a batch",
    Role.WORKER_LOCKED: "a DataLoader worker blocked on a lock",
    Role.WORKER_IO: "a DataLoader worker waiting for input or output",
    Role.WORKER_FETCHING: "a DataLoader worker making a batch",
    Role.WORKER_IDLE: "a DataLoader worker waiting for work",
    Role.PIN_MEMORY: "the thread that pins batches",
    Role.QUEUE_FEEDER: "queue feeders, which always wait",
    Role.GPU_WAIT: "waiting for the GPU",
    Role.BUILD_LOCK: "waiting for another process to build an extension",
    Role.COMPILE: "compiling",
    Role.COMPILE_POOL: "a compile worker waiting for work",
    Role.ENDED: "at its end, past the training",
    Role.OPTIMIZER: "in the optimizer's step",
    Role.BACKWARD: "in backward",
    Role.FORWARD: "in forward",
    Role.EVALUATION: "evaluating",
    Role.USER: "in the run's own code",
    Role.LAUNCHER: "the launcher, which waits for its processes",
    Role.WATCHDOG: "watchdogs and heartbeats",
    Role.HELPER: "helpers that wait",
    Role.KERNEL: "in the kernel, in {op}",
    Role.UNKNOWN: "not recognised",
}
_SHOWN_ALONE = frozenset({Role.KERNEL, Role.LAUNCHER, Role.COMPILE_POOL})
_VERBS = {
    Role.COLLECTIVE: ("waits in {op}", "wait in {op}"),
    Role.CHECKPOINT: ("saves or loads a checkpoint", "save or load a checkpoint"),
    Role.DATA: ("reads, prepares or sends data", "read, prepare or send data"),
    Role.LOADER_WAIT: ("waits for a batch", "wait for a batch"),
    Role.WORKER_LOCKED: ("is blocked on a lock", "are blocked on a lock"),
    Role.WORKER_IO: ("waits for input or output", "wait for input or output"),
    Role.WORKER_FETCHING: ("makes a batch", "make a batch"),
    Role.WORKER_IDLE: ("waits for work", "wait for work"),
    Role.PIN_MEMORY: ("pins batches", "pin batches"),
    Role.QUEUE_FEEDER: ("feeds a queue", "feed a queue"),
    Role.GPU_WAIT: ("waits for the GPU", "wait for the GPU"),
    Role.BUILD_LOCK: ("waits for the build of an extension", "wait for the build of an extension"),
    Role.COMPILE: ("compiles", "compile"),
    Role.COMPILE_POOL: ("waits for something to compile", "wait for something to compile"),
    Role.ENDED: ("is at its end, past the training", "are at their end, past the training"),
    Role.OPTIMIZER: ("is in the optimizer's step", "are in the optimizer's step"),
    Role.BACKWARD: ("is in backward", "are in backward"),
    Role.FORWARD: ("is in forward", "are in forward"),
    Role.EVALUATION: ("evaluates", "evaluate"),
    Role.USER: ("is in {caller}", "are in {caller}"),
    Role.LAUNCHER: ("waits for its processes", "wait for their processes"),
    Role.WATCHDOG: ("watches", "watch"),
    Role.HELPER: ("waits", "wait"),
    Role.KERNEL: ("waits in the kernel, in {op}", "wait in the kernel, in {op}"),
    Role.UNKNOWN: ("is at a place that is not recognised", "are at places not recognised"),
}


def doing(standing: Standing) -> str:
    """What the thread does, as `saving or loading a checkpoint`."""
    return _DOING[standing.role].format(op=standing.op)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _subject(bucket: Sequence[Process], total: int) -> str:
    """`rank 3`, `ranks 0 to 6`, `2 of 4 processes`, `2 DataLoader workers`."""
    role, number = bucket[0].standing.role, len(bucket)
    ranks = {p.rank for p in bucket if p.rank is not None}
    if role in _WORKERS:
        return _count(number, "DataLoader worker", "DataLoader workers")
    if role is Role.LAUNCHER:
        return _count(number, "launcher", "launchers")
    if len(ranks) == number:
        return rank_names(ranks)
    if total > number and bucket[0].is_training:
        return f"{number} of {total} processes"
    return _count(number, "process", "processes")


def _predicate(bucket: Sequence[Process]) -> str:
    standing, is_one = bucket[0].standing, len(bucket) == 1
    one, many = _VERBS[standing.role]
    words = (one if is_one else many).format(op=standing.op, caller=standing.caller or "its code")
    if standing.role is Role.BACKWARD and standing.waits:
        words = ("waits" if is_one else "wait") + " in backward"
    if standing.role in (Role.LAUNCHER, Role.WORKER_IDLE, Role.COMPILE_POOL) or not standing.place:
        return words
    short = _tail(standing.place).rsplit("/", 1)[-1]
    still = " and did not move between two dumps" if all(p.stood_still for p in bucket) else ""
    if standing.role is Role.USER:
        return f"{words} ({short}){still}"
    link = "called from" if standing.role is Role.COLLECTIVE else "under"
    return f"{words}, {link} {standing.caller} ({short}){still}"


def _label(bucket: Sequence[Process], total: int) -> str:
    subject = _subject(bucket, total)
    return f"{subject[:1].upper()}{subject[1:]} {_predicate(bucket)}"


def _sentence(found: Sequence[Process], buckets: Sequence[Sequence[Process]]) -> str:
    """Who waits where, in one sentence; the workers in a second one."""
    training = [b for b in buckets if b[0].is_training]
    total = sum(len(b) for b in training)
    if not training and not any(b[0].standing.role in _WORKERS for b in buckets):
        training, total = [b for b in buckets if b[0].standing.role in _SHOWN_ALONE], 0
    parts = [f"{_subject(b, total)} {_predicate(b)}" for b in training[:4]]
    if len(training) > 4:
        rest = sum(len(b) for b in training[4:])
        parts.append(f"{rest} more stand at {len(training) - 4} other places")
    workers = Counter(p.standing.role for p in found if p.standing.role in _WORKERS)
    for role in sorted(workers, key=lambda r: (r is Role.WORKER_IDLE, r)):
        word = _count(workers[role], "DataLoader worker", "DataLoader workers")
        parts.append(f"{word} {_VERBS[role][workers[role] != 1]}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


_BUSY = frozenset({Role.COMPILE, Role.CHECKPOINT, Role.DATA, Role.EVALUATION})


def late_ranks(stands: Sequence[Process]) -> tuple[list[Process], list[Process]] | None:
    """The few still at work, and those that wait for them in a collective: (late, waiting).

    Work that only one rank does, as saving and evaluating, must stand before the call in which the
    others wait, else nothing says that its rank will come to that call. None: nobody is late.
    """
    # Between two steps some are in backward while others read: only one that stays there waits.
    waiting = [
        s for s in stands if s.standing.op and (s.standing.op != "backward" or s.stood_still)
    ]
    shared = {frame.function for s in waiting for frame in s.thread.frames}
    late = [s for s in stands if s.standing.role in _BUSY and not s.stood_still]
    if not late or len(late) > len(waiting) or len(late) + len(waiting) < len(stands):
        return None
    for stand in late:
        role = stand.standing.role
        # Reading is part of a step, and only for one that waits for the storage a long one.
        if role is Role.DATA and stand.standing.waits is False and not _prepares(stand):
            return None
        alone = role in (Role.CHECKPOINT, Role.EVALUATION)
        if alone and not all(stands_before(stand, other) for other in waiting):
            return None
        # An evaluation that all ranks are in is a step like any other.
        if role is Role.EVALUATION and not any(
            _EVALUATION.match(function_name(frame.function))
            for frame in stand.thread.frames
            if frame.function not in shared
        ):
            return None
    return late, waiting


def _prepares(process: Process) -> bool:
    return any(_PREPARES.search(frame.path) for frame in process.thread.frames)


def stands_before(one: Process, other: Process) -> bool:
    """Whether the first process is at an earlier line of the function that both are in."""
    pairs = zip(reversed(one.thread.frames), reversed(other.thread.frames), strict=False)
    for mine, theirs in pairs:
        if (mine.path, mine.function) != (theirs.path, theirs.function):
            return False
        if mine.line != theirs.line:
            return mine.line is not None and theirs.line is not None and mine.line < theirs.line
    return False


def stands_of(found: Iterable[Process]) -> Iterator[Process]:
    """The job's own processes, a wait inside backward given as the collective `backward`."""
    for process in found:
        if not process.is_training:
            continue
        if process.standing.role is Role.BACKWARD:
            yield replace(process, standing=replace(process.standing, op="backward"))
        else:
            yield process
