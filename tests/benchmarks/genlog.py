#!/usr/bin/env python3
# ruff: noqa
# fmt: off
"""Deterministic generator of PyTorch training logs, ground truth and pattern sets.

    genlog.py --size 256M --seed 1 --out log.txt             sparse log: rare error blocks
    genlog.py --size 256M --dense  --out dense.txt           one matching line in 20
    genlog.py --size 16M  --healthy --out clean.txt          no error block at all
    genlog.py --paste --out paste.txt                        one error block, at most 4 KiB
    genlog.py --patterns 150 --out pats.tsv                  pattern set: 75 | 150 | up to 1000
    genlog.py --selftest                                     checks the promises below

Everything follows from --seed (and the other options): same options, same bytes, on
every Python >= 3.8 (only random.Random.random() is used, whose sequence is guaranteed).

Log files. One text file, UTF-8, '\\n' line ends, as a shell redirect of a multi-rank job
would give: --ranks ranks interleaved, prefixes ([rank3]:, [default3]:, srun's '3: ',
k8s timestamps, none), tqdm lines (some are one 'line' of up to 20 KB with '\\r' inside),
float loss lines, Megatron lines, NCCL INFO, harmless warnings, Chinese text, config dumps
and token lists of up to 20 KB, and lines with words like error / failed / timeout / nan
that mean nothing. Noise is unique for the first --pool bytes, then recycled in 1 MiB
chunks in a seeded order; error blocks are always fresh.
Sparse: about --rate error blocks for each MiB (default 0.25), every block at least once
when the file is long enough. A block's lines carry one rank's prefix, and noise of other
ranks may come between them.

Ground truth, FILE.truth.tsv (or --truth): 'line <TAB> slug <TAB> block <TAB> cause', one row
for each (line, slug) pair, line numbers from 1: the text of that line carries that slug.
'cause' is the slug the whole block is about: a device-side assert block also carries
cuda-async-error-misattributed, nccl-watchdog-timeout and torchrun-child-failed lines,
whose cause is cuda-device-side-assert. Lines not listed carry no slug.
FILE.meta.json: options, bytes, lines, rows, blocks, sha256 of the log.

Pattern sets (--patterns N): a TSV 'id slug regex ere literal'.
 75: one pattern for each of the 73 slugs and two more; 150: two for each and four more;
 above: the 150 plus variants whose words differ (they match nothing in these logs).
regex: common subset of Python re, RE2, Hyperscan, Rust regex (no lookaround, no
backreference, no class that can match a newline unless stated); ere: the same for
grep -E; literal: the longest literal every match must contain ('' if under 4
characters; for an alternation, literals joined with '\\x1f', one of which must occur).

Promises checked by --selftest: for sparse and dense logs and 150 patterns, the set of
(line, slug) pairs found by Python re, line by line, equals the ground truth exactly; the
850 variants add nothing; each pattern's literal occurs in every line it matches.
As a module: signatures(), patterns(n), Log(...).blocks; see main().
"""
import argparse, hashlib, json, random, re, sys

# --------------------------------------------------------------------------- signatures
# slug | two (or three) patterns | error blocks.
# In a block: '=' starts a line that carries the slug; '+a,b|' one that carries slugs a, b;
# '.' one that carries none. {x} is filled in, see Rng.fill.
ASYNC = [
    "+cuda-async-error-misattributed|CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "+cuda-async-error-misattributed|For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    ".Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
]
WATCHDOG = [
    "+nccl-watchdog-timeout|[rank{rank}]:[E{mmdd} {hms}.{n9} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n5}, OpType=ALLREDUCE, NumelIn={n7}, NumelOut={n7}, Timeout(ms)=1800000) ran for 18000{n2} milliseconds before timing out.",
    "+nccl-watchdog-timeout|[rank{rank}]:[E{mmdd} {hms}.{n9} ProcessGroupNCCL.cpp:684] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
    ".[rank{rank}]:[E{mmdd} {hms}.{n9} ProcessGroupNCCL.cpp:698] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
]
CHILD = [
    ".E{mmdd} {hms}.{n6} {pid} site-packages/torch/distributed/elastic/multiprocessing/api.py:869] rc=1",
    "+torchrun-child-failed|E{mmdd} {hms}.{n6} {pid} torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: {rank} (pid: {pid}) of binary: /opt/conda/bin/python",
    "+torchrun-child-failed|torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    ".============================================================",
    ".train.py FAILED",
    ".  time      : 2026-{mm}-{dd}_{hms}",
    ".  host      : {host}",
    ".  rank      : {rank} (local_rank: {rank})",
    ".  error_file: <N/A>",
]
TB = [
    ".Traceback (most recent call last):",
    '.  File "/workspace/{job}/train.py", line {n3}, in <module>',
    ".    main()",
    '.  File "/workspace/{job}/trainer/loop.py", line {n3}, in train_step',
    ".    loss = self.model(batch)",
    '.  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1{n3}, in _call_impl',
    ".    return forward_call(*args, **kwargs)",
]
TBD = [
    ".Traceback (most recent call last):",
    '.  File "/opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1{n3}, in _get_data',
    ".    success, data = self._next_data()",
]


def signatures():
    """[(slug, [patterns], [[block lines]])] in the order of the catalog table."""
    S = []

    def s(slug, pats, *blocks):
        S.append((slug, pats, [list(b) for b in blocks]))

    s("dataloader-fork-deadlock",
      [r"DataLoader timed out after (\d+(?:\.\d+)?) seconds", r"_try_get_data \(torch/utils/data/dataloader\.py:\d+\)"],
      TBD + ["=RuntimeError: DataLoader timed out after {n3} seconds"],
      [".Thread {pid} (idle): \"MainThread\"", ".    wait (threading.py:331)", ".    get (queue.py:180)",
       "=    _try_get_data (torch/utils/data/dataloader.py:1{n3})", ".    _get_data (torch/utils/data/dataloader.py:1{n3})"])
    s("dataloader-shm-bus-error",
      [r"is killed by signal: Bus error|insufficient shared memory \(shm\)", r"unable to (?:write to file|open shared memory object) </torch_\d+_\d+_\d+>"],
      ["=ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."] + TBD +
      ["=RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit."],
      TBD + ["=RuntimeError: unable to write to file </torch_{pid}_{n9}_{n3}>: No space left on device (28)"])
    s("dataloader-worker-oom-killed",
      [r"DataLoader worker \(pid \d+\) is killed by signal: Killed", r"worker process \(pid=(\d+)\) was killed by SIGKILL"],
      TBD + ["=RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed. "],
      ["=[launcher] data worker process (pid={pid}) was killed by SIGKILL, cgroup memory limit 128 GiB"])
    s("dataloader-worker-crashed",
      [r"DataLoader worker \(pid \d+\) is killed by signal: (?:Segmentation fault|Aborted)", r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"],
      TBD + ["=RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Segmentation fault. "],
      TBD + ["=RuntimeError: DataLoader worker (pid(s) {pid}, {pid}) exited unexpectedly"])
    s("dataloader-too-many-open-files",
      [r"OSError: \[Errno 24\] Too many open files", r"received \d+ items of ancdata"],
      TBD + ["=OSError: [Errno 24] Too many open files: '/data/{job}/shard_{n5}.tar'"],
      TBD + ["=RuntimeError: received 0 items of ancdata"])
    s("dataloader-cuda-in-fork",
      [r"Cannot re-initialize CUDA in forked subprocess", r"CUDA error: initialization error .*DataLoader worker process \d+"],
      TBD + ["=RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"],
      TBD + ["=RuntimeError: CUDA error: initialization error (raised in DataLoader worker process {rank})"])
    s("dataloader-unpicklable-spawn",
      [r"Can't pickle (?:local object|<function|<class) ", r"cannot pickle '[\w.]+' object"],
      [".  File \"/opt/conda/lib/python3.11/multiprocessing/reduction.py\", line 60, in dump",
       "=AttributeError: Can't pickle local object 'make_dataset.<locals>.<lambda>'"],
      ["=TypeError: cannot pickle '_io.BufferedReader' object"])
    s("dataloader-collate-mismatch",
      [r"stack expects each tensor to be equal size, but got \[[\d, ]+\] at entry \d+ and \[[\d, ]+\] at entry \d+",
       r"Trying to resize storage that is not resizable|default_collate: batch must contain tensors"],
      TBD + ["=RuntimeError: stack expects each tensor to be equal size, but got [3, {n3}, {n3}] at entry 0 and [3, {n3}, {n3}] at entry {n1}"],
      TBD + ["=RuntimeError: Trying to resize storage that is not resizable"],
      TBD + ["=TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'NoneType'>"])
    s("dataloader-oversubscribed",
      [r"This DataLoader will create (\d+) worker processes in total", r"suggested max number of worker in current system is (\d+)"],
      ["=/opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py:627: UserWarning: This DataLoader will create {n2} worker processes in total. Our suggested max number of worker in current system is {n1}, which is smaller than what this DataLoader is going to create."])
    s("dataloader-pin-memory-failure",
      [r"Pin memory thread exited unexpectedly", r"Caught \w+ in pin memory thread for device \d+"],
      TBD + ["=RuntimeError: Pin memory thread exited unexpectedly"],
      TBD + ["=RuntimeError: Caught AcceleratorError in pin memory thread for device {rank}."])
    s("dataloader-host-memory-growth",
      [r"host memory grew by ([\d.]+) GiB over \d+ epochs?", r"worker \d+ rss [\d.]+ GiB .*copy-on-write"],
      ["=[memwatch] host memory grew by {f1} GiB over {n1} epochs on {host}",
       "=[memwatch] worker {rank} rss {f1} GiB (shared {f1}), refcount traffic breaks copy-on-write pages"])
    s("cuda-device-side-assert",
      [r"CUDA error: device-side assert triggered", r"\.cu:\d+: \w+: block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion"],
      ["=../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [{n1},0,0] Assertion `t >= 0 && t < n_classes` failed."] * 4 +
      TB + ["=RuntimeError: CUDA error: device-side assert triggered"] + ASYNC + WATCHDOG + CHILD,
      ["=/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [{n3},0,0], thread: [{n2},0,0] Assertion `srcIndex < srcSelectDimSize` failed."] * 6 +
      TB + ["=torch.AcceleratorError: CUDA error: device-side assert triggered"] + ASYNC)
    s("cuda-illegal-memory-access",
      [r"an illegal memory access was encountered", r"CUDA_ERROR_ILLEGAL_ADDRESS|Warp Illegal Address"],
      TB + ["=RuntimeError: CUDA error: an illegal memory access was encountered"] + ASYNC + CHILD,
      ["=CUDA Exception: Warp Illegal Address at 0x{hex}", "=triton: cuModuleUnload failed: CUDA_ERROR_ILLEGAL_ADDRESS"])
    s("cuda-out-of-memory",
      [r"CUDA out of memory\. Tried to allocate ([\d.]+) (KiB|MiB|GiB)", r"torch\.(?:cuda\.)?OutOfMemoryError: "],
      TB + ["=torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {f1} GiB. GPU {rank} has a total capacity of 79.15 GiB of which {f1} MiB is free. Process {pid} has 78.{n2} GiB memory in use. Of the allocated memory 77.{n2} GiB is allocated by PyTorch."] + CHILD)
    s("cuda-oom-fragmentation",
      [r"[\d.]+ (?:MiB|GiB) is reserved by PyTorch but unallocated", r"If reserved (?:but unallocated )?memory is (?:large|>> allocated memory) try setting"],
      TB + ["+cuda-out-of-memory,cuda-oom-fragmentation|torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {f1} MiB. GPU {rank} has a total capacity of 79.15 GiB of which 12.00 MiB is free. Of the allocated memory 51.{n2} GiB is allocated by PyTorch, and 24.{n2} GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."])
    s("cuda-oom-graph-retention",
      [r"memory_allocated grew from [\d.]+ to [\d.]+ GiB over steps \d+-\d+", r"allocated memory rises every step \(\+[\d.]+ MiB/step\)"],
      ["=[memwatch] rank {rank}: memory_allocated grew from {f1} to {f1} GiB over steps {n3}-{n5}",
       "=[memwatch] rank {rank}: allocated memory rises every step (+{f1} MiB/step)"])
    s("cuda-async-error-misattributed",
      [r"CUDA kernel errors might be asynchronously reported at some other API call", r"For debugging consider passing CUDA_LAUNCH_BLOCKING=1"],
      TB + [".RuntimeError: CUDA error: unknown error"] + ASYNC)
    s("cuda-driver-too-old",
      [r"NVIDIA driver on your system is too old \(found version (\d+)\)",
       r"CUDA driver version is insufficient for CUDA runtime version|unsupported display driver / cuda driver combination|forward compatibility was attempted on non supported HW"],
      TB + ["=RuntimeError: The NVIDIA driver on your system is too old (found version 11{n3}). Please update your GPU driver."],
      TB + ["=RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version"],
      TB + ["=RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW"])
    s("cuda-no-kernel-image",
      [r"no kernel image is available for execution on the device", r"with CUDA capability sm_(\d+) is not compatible with the current PyTorch installation"],
      [".UserWarning: ", "=NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation."] +
      TB + ["=RuntimeError: CUDA error: no kernel image is available for execution on the device"] + ASYNC)
    s("cuda-not-available",
      [r"Torch not compiled with CUDA enabled", r"No CUDA GPUs are available|Found no NVIDIA driver on your system|CUDA error: invalid device ordinal"],
      TB + ["=AssertionError: Torch not compiled with CUDA enabled"],
      TB + ["=RuntimeError: No CUDA GPUs are available"],
      TB + ["=RuntimeError: CUDA error: invalid device ordinal"] + ASYNC)
    s("cuda-fabric-manager",
      [r"CUDA error: system not yet initialized", r"[Ff]abric [Mm]anager .*(?:version mismatch|is not running)|CUDA_ERROR_SYSTEM_NOT_READY"],
      TB + ["=RuntimeError: CUDA error: system not yet initialized", "=nvidia-fabricmanager: Fabric Manager service is not running on {host}"])
    s("cuda-launch-failure",
      [r"CUDA error: (?:unspecified launch failure|the launch timed out and was terminated)", r"too many resources requested for launch|CUDA error: misaligned address"],
      TB + ["=RuntimeError: CUDA error: unspecified launch failure"] + ASYNC,
      TB + ["=RuntimeError: CUDA error: misaligned address"] + ASYNC)
    s("cublas-cudnn-failure",
      [r"CUBLAS_STATUS_(?:ALLOC_FAILED|EXECUTION_FAILED|NOT_INITIALIZED)", r"cuDNN error: CUDNN_STATUS_(\w+)"],
      TB + ["=RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"],
      TB + ["=RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"])
    s("gpu-hardware-fault",
      [r"NVRM: Xid \(PCI:[0-9a-f:.]+\): (\d+)", r"uncorrectable (?:NVLink|ECC) error|GPU has fallen off the bus"],
      [".[{n5}.{n6}] nvidia-nvlink: link down", "=[{n5}.{n6}] NVRM: Xid (PCI:0000:4e:00): 79, pid={pid}, name=python, GPU has fallen off the bus.",
       "=RuntimeError: CUDA error: uncorrectable ECC error encountered"])
    s("nccl-watchdog-timeout",
      [r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)", r"Some NCCL operations have failed or timed out"],
      WATCHDOG + CHILD)
    s("collective-rank-conditional",
      [r"rank 0 is in (?:evaluate|save_checkpoint|validate) while ranks? [\d,-]+ wait in (?:barrier|all_reduce|broadcast)", r"barrier \(torch/distributed/distributed_c10d\.py:\d+\)"],
      ["=[stackwatch] rank 0 is in evaluate while ranks 1-7 wait in all_reduce", ".Thread {pid} (active): \"MainThread\"",
       "=    barrier (torch/distributed/distributed_c10d.py:4{n3})"] + WATCHDOG)
    s("collective-uneven-inputs",
      [r"rank (\d+) finished epoch \d+ after \d+ batches, expected \d+", r"Detected at least one rank that has exhausted inputs"],
      ["=rank {rank} finished epoch {n1} after {n3} batches, expected {n3}",
       "=RuntimeError: Detected at least one rank that has exhausted inputs. Throwing across all ranks."] + WATCHDOG)
    s("collective-desync",
      [r"Detected mismatch between collectives on ranks", r"Mismatch between collective operation (?:types|shapes)"],
      ["=RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber={n5}, OpType=ALLREDUCE, TensorShape=[{n3}])"],
      ["=RuntimeError: Mismatch between collective operation types across ranks. Rank {rank} is running ALLGATHER"])
    s("collective-slow-rank",
      [r"rank (\d+) still (?:reading|tokenizing|downloading|compiling) .* after \d+ s", r"checkpoint save took ([\d.]+) s on rank \d+ \(limit \d+ s\)"],
      ["=[heartbeat] rank {rank} still downloading shard-{n5}.parquet after {n3} s"] + WATCHDOG,
      ["=[heartbeat] checkpoint save took {n3}.{n1} s on rank {rank} (limit 1800 s)"] + WATCHDOG)
    s("nccl-system-error",
      [r"ncclSystemError: System call", r"Call to connect to [\w.:<>]+ failed|Bootstrap : no socket interface found|Error while creating shared memory segment /dev/shm/nccl-"],
      ["={host}:{pid}:{pid} [{rank}] misc/socket.cc:484 NCCL WARN socketStartConnect: Call to connect to 10.0.{n1}.{n2}<{n5}> failed : Software caused connection abort"] + TB +
      [".torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1{n3}, unhandled system error, NCCL version 2.21.5",
       "=ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."],
      ["={host}:{pid}:{pid} [{rank}] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-{hex} (size 9637888)"])
    s("nccl-cuda-error",
      [r"ncclUnhandledCudaError: Call to CUDA function failed", r"NCCL WARN Cuda failure (\d+) '"],
      ["={host}:{pid}:{pid} [{rank}] enqueue.cc:1420 NCCL WARN Cuda failure 999 'unknown error'",
       "=ncclUnhandledCudaError: Call to CUDA function failed."])
    s("nccl-remote-error",
      [r"ncclRemoteError: A call failed possibly due to a network error", r"NCCL WARN \w+: Connection (?:closed by remote peer|reset by peer)"],
      ["={host}:{pid}:{pid} [{rank}] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer node{n2}<{n5}>",
       "=ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."])
    s("nccl-ib-error",
      [r"NET/IB ?: ?Got completion from peer [\w.<>]+ with (?:error|status=) ?(\d+)", r"IBV_WC_RETRY_EXC_ERR|vendor err (\d+)"],
      ["={host}:{pid}:{pid} [{rank}] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.{n1}.{n2}<{n5}> with error 12, opcode 0, len 0, vendor err 129"])
    s("nccl-memlock",
      [r"Call to ibv_reg_mr(?:_iova2)? failed with error Cannot allocate memory", r"ibv_create_cq .*Cannot allocate memory|RLIMIT_MEMLOCK"],
      ["={host}:{pid}:{pid} [{rank}] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
       "=Warning: RLIMIT_MEMLOCK is 65536 bytes on {host}"])
    s("nccl-duplicate-gpu",
      [r"Duplicate GPU detected : rank (\d+) and rank (\d+)", r"rank \d+ and rank \d+ both on CUDA device [0-9a-f]+"],
      ["={host}:{pid}:{pid} [{rank}] init.cc:943 NCCL WARN Duplicate GPU detected : rank {rank} and rank 0 both on CUDA device 4e000"])
    s("nccl-invalid-usage",
      [r"ncclInvalid(?:Usage|Argument): This usually reflects invalid usage of NCCL library", r"Mismatched NCCL version detected : Expected NCCL version ([\d.]+)"],
      ["=ncclInvalidUsage: This usually reflects invalid usage of NCCL library."],
      ["={host}:{pid}:{pid} [{rank}] NCCL WARN Mismatched NCCL version detected : Expected NCCL version 2.21.5, but got 2.19.3"])
    s("ddp-unused-parameters",
      [r"Expected to have finished reduction in the prior iteration before starting a new one", r"Parameter indices which did not receive grad for rank (\d+): ([\d ]+)"],
      TB + ["=RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.",
            "=Parameter indices which did not receive grad for rank {rank}: {n2} {n2} {n3}"])
    s("ddp-marked-ready-twice",
      [r"Expected to mark a variable ready only once", r"Parameter at index (\d+) with name (\S+) has been marked as ready twice"],
      TB + ["=RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a module parameter outside the `forward` function. Parameter at index {n3} with name module.layers.{n1}.mlp.weight has been marked as ready twice."])
    s("ddp-wrap-before-device",
      [r"module must have its parameters and buffers on device cuda:\d+", r"input module must be on the same type of devices"],
      TB + ["=RuntimeError: module must have its parameters and buffers on device cuda:{rank} (device_ids[0]) but found one of them on device: cpu"],
      TB + ["=ValueError: DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate in {'cpu', 'cuda'}."])
    s("ddp-model-mismatch",
      [r"DDP expects same model across all ranks, but Rank (\d+) has (\d+) params", r"params\[\d+\] in this process with sizes \[[\d, ]*\] appears not to match"],
      TB + ["=RuntimeError: DDP expects same model across all ranks, but Rank {rank} has {n3} params, while rank 0 has inconsistent {n3} params."],
      TB + ["=RuntimeError: [{rank}]: params[{n2}] in this process with sizes [{n3}, {n3}] appears not to match sizes of the same param in process 0."])
    s("rendezvous-failure",
      [r"The client socket has timed out after (\d+)ms while trying to connect to", r"Rendezvous(?:Timeout|Connection)Error|Timed out after \d+ seconds waiting for clients"],
      ["=torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.{n1}.{n2}, 29500)."],
      ["=torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details."])
    s("port-in-use",
      [r"EADDRINUSE", r"errno: 98 - Address already in use"],
      ["=[W{mmdd} {hms}.{n9} socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
       "=torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use"])
    s("gloo-failure",
      [r"gloo/transport/tcp/\w+\.cc:\d+\] Connection closed by peer", r"Timed out waiting \d+ms for (?:recv|send) operation to complete"],
      ["=RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.{n1}.{n2}]:{n5}"],
      ["=RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"])
    s("torchrun-child-failed",
      [r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError", r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: \d+\) of binary"],
      CHILD)
    s("amp-overflow-skips",
      [r"Gradient overflow\.  ?Skipping step, (?:loss scaler \d+ )?reducing loss scale to ([\d.e-]+)", r"Current loss scale already at minimum"],
      ["=Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {f1}"] * 5 + ["=Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."])
    s("loss-nan",
      [r"(?i)loss is (?:nan|inf)", r"Function '(\w+)' returned nan values in its \d+th output", r"found invalid values: *$"],
      ["=[step {n5}] Loss is nan, stopping training", "=loss is NaN at step {n5}, grad_norm inf"],
      TB + ["=RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."],
      ["=ValueError: Expected parameter logits (Tensor of shape (32, 10)) of distribution Categorical to satisfy the constraint IndependentConstraint(Real(), 1), but found invalid values:",
       ".tensor([[nan, nan, nan]], device='cuda:{rank}')"])
    s("grad-scaler-misuse",
      [r"unscale_\(\) has already been called on this optimizer since the last update", r"No inf checks were recorded for this optimizer|Attempting to unscale FP16 gradients"],
      TB + ["=RuntimeError: unscale_() has already been called on this optimizer since the last update()."],
      TB + ["=ValueError: Attempting to unscale FP16 gradients."])
    s("grad-accumulation-not-normalised",
      [r"effective lr is (\d+)x the configured lr", r"backward\(\) called \d+ times per step without dividing the loss"],
      ["=[lint] effective lr is {n1}x the configured lr", "=[lint] backward() called {n1} times per step without dividing the loss"])
    s("dtype-mismatch",
      [r"expected scalar type (\w+) but found (\w+)", r"must have the same dtype, but got \w+ and \w+|Input type \(\S+\) and bias type \(\S+\) should be the same"],
      TB + ["=RuntimeError: expected scalar type Half but found Float"],
      TB + ["=RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16"],
      TB + ["=RuntimeError: Input type (c10::BFloat16) and bias type (float) should be the same"])
    s("device-mismatch",
      [r"Expected all tensors to be on the same device", r"Input type \([\w.]+\) and weight type \([\w.]+\) should be the same"],
      TB + ["=RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:{rank} and cpu!"],
      TB + ["=RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same"])
    s("shape-mismatch",
      [r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\)|shape '\[[\d, -]+\]' is invalid for input of size \d+"],
      TB + ["=RuntimeError: mat1 and mat2 shapes cannot be multiplied ({n2}x{n3} and {n3}x{n2})"],
      TB + ["=RuntimeError: The size of tensor a ({n3}) must match the size of tensor b ({n3}) at non-singleton dimension 1"])
    s("lr-scheduler-order",
      [r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`", r"torch/optim/lr_scheduler\.py:\d+: UserWarning: Detected call"],
      ["=/opt/conda/lib/python3.11/site-packages/torch/optim/lr_scheduler.py:224: UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call them in the opposite order."])
    s("backward-twice",
      [r"Trying to backward through the graph a second time", r"Saved intermediate values of the graph are freed when you call"],
      TB + ["=RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad()."])
    s("inplace-modified",
      [r"has been modified by an inplace operation: \[torch\.(?:cuda\.)?\w+ \[[\d, ]*\]\]", r"a leaf Variable that requires grad is being used in an in-place operation"],
      TB + ["=RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.cuda.FloatTensor [{n3}, {n3}]], which is output 0 of ReluBackward0, is at version 2; expected version 1 instead."],
      TB + ["=RuntimeError: a leaf Variable that requires grad is being used in an in-place operation."])
    s("no-grad-fn",
      [r"element \d+ of tensors does not require grad and does not have a grad_fn", r"None of the inputs have requires_grad=True"],
      ["=UserWarning: None of the inputs have requires_grad=True. Gradients will be None"] + TB + ["=RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"])
    s("checkpoint-weights-only",
      [r"Weights only load failed", r"Unsupported global: GLOBAL ([\w.]+) was not an allowed global by default"],
      TB + ["=_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options.",
            "=WeightsUnpickler error: Unsupported global: GLOBAL numpy.core.multiarray.scalar was not an allowed global by default."])
    s("checkpoint-key-mismatch",
      [r"Error\(s\) in loading state_dict for (\w+)", r"(?:Missing|Unexpected) key\(s\) in state_dict: |size mismatch for [\w.]+: copying a param with shape"],
      TB + ["=RuntimeError: Error(s) in loading state_dict for GPTModel:",
            "=\tMissing key(s) in state_dict: \"layers.{n2}.attn.q_proj.weight\", \"layers.{n2}.attn.k_proj.weight\".",
            "=\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([32000, {n3}]) from checkpoint"])
    s("checkpoint-corrupt",
      [r"PytorchStreamReader failed (?:reading zip archive|locating file)", r"failed finding central directory|SafetensorError: Error while deserializing header|invalid magic number; corrupt file"],
      TB + ["=RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"],
      TB + ["=safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"])
    s("checkpoint-device",
      [r"Attempting to deserialize object on (?:a )?CUDA device", r"torch\.cuda\.is_available\(\) is False\. If you are running on a CPU-only machine"],
      TB + ["=RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."])
    s("checkpoint-optimizer-mismatch",
      [r"loaded state dict contains a parameter group that doesn't match the size of optimizer's group", r"loaded state dict has a different number of parameter groups"],
      TB + ["=ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group"],
      TB + ["=ValueError: loaded state dict has a different number of parameter groups"])
    s("disk-full",
      [r"OSError: \[Errno (?:28|122)\] (?:No space left on device|Disk quota exceeded)", r"PytorchStreamWriter failed writing file|basic_ios::clear: iostream error"],
      TB + ["=RuntimeError: [enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data/{n3}: file write failed",
            "=OSError: [Errno 28] No space left on device: '/data/ckpt/{job}/step_{n5}.pt'"])
    s("host-oom-killed",
      [r"Out of memory: Killed process (\d+) \(", r"oom-kill:constraint=|Memory cgroup out of memory|OOMKilled"],
      ["=[{n5}.{n6}] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job{n5},task=python,pid={pid},uid=1000",
       "=[{n5}.{n6}] Out of memory: Killed process {pid} (python) total-vm:{n7}kB, anon-rss:{n7}kB"])
    s("process-segfault",
      [r"Fatal Python error: (?:Segmentation fault|Aborted)", r"Segmentation fault +\(core dumped\)", r"exitcode +: -(?:11|6) "],
      ["=Fatal Python error: Segmentation fault", ".Current thread 0x{hex} (most recent call first):", "=  exitcode  : -11 (pid: {pid})"],
      ["=/var/spool/slurmd/job{n5}/slurm_script: line 41: {pid} Segmentation fault      (core dumped) python train.py"])
    s("scheduler-killed",
      [r"CANCELLED AT \S+ DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)", r"slurmstepd: error: \*\*\* (?:STEP|JOB) [\d.]+ ON \w+ CANCELLED"],
      ["=slurmstepd: error: *** JOB {n7} ON {host} CANCELLED AT 2026-{mm}-{dd}T{hms} DUE TO TIME LIMIT ***"])
    s("compile-backend-failure",
      [r"torch\._dynamo\.exc\.BackendCompilerFailed: backend='(\w+)' raised", r"torch\._inductor\.exc\.InductorError|Cannot find a working triton installation|ptxas (?:fatal|error) *:"],
      TB + ["=torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:", "=RuntimeError: Cannot find a working triton installation."],
      ["=ptxas error   : Entry function 'triton_' uses too much shared data"])
    s("compile-graph-break",
      [r"torch\._dynamo\.exc\.Unsupported: ", r"Graph break in user code at (\S+):(\d+)|Could not guard on data-dependent expression"],
      TB + ["=torch._dynamo.exc.Unsupported: Data-dependent branching", "=Graph break in user code at /workspace/{job}/model.py:{n3}"])
    s("compile-recompile-limit",
      [r"torch\._dynamo hit config\.(?:recompile_limit|cache_size_limit) \((\d+)\)", r"last reason: \d+/\d+: "],
      ["=W{mmdd} {hms}.{n6} {pid} torch/_dynamo/convert_frame.py:1016] [{n1}/{n1}] torch._dynamo hit config.recompile_limit (8)",
       "=W{mmdd} {hms}.{n6} {pid} torch/_dynamo/convert_frame.py:1016] [{n1}/{n1}]    last reason: {n1}/{n1}: tensor 'x' size mismatch at index 1. expected {n3}, actual {n3}"])
    s("triton-out-of-resources",
      [r"OutOfResources: out of resource: shared memory, Required: (\d+), Hardware limit: (\d+)", r"Reducing block sizes or `num_stages` may help"],
      TB + ["=triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 2{n5}, Hardware limit: 232448. Reducing block sizes or `num_stages` may help."])
    s("extension-build-failure",
      [r"Error building extension '(\w+)'", r"Ninja is required to load C\+\+ extensions|CUDA_HOME environment variable is not set|The detected CUDA version \([\d.]+\) mismatches the version"],
      TB + ["=RuntimeError: Error building extension 'fused_adam'"],
      TB + ["=OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."])
    s("extension-abi-mismatch",
      [r"\.so: undefined symbol: (_Z\w+)", r"libcudart\.so\.[\d.]+: cannot open shared object file|operator torchvision::nms does not exist"],
      TB + ["=ImportError: /opt/conda/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"],
      TB + ["=RuntimeError: operator torchvision::nms does not exist"])
    s("numpy-abi-mismatch",
      [r"A module that was compiled using NumPy 1\.x cannot be run in", r"numpy\.dtype size changed, may indicate binary incompatibility|RuntimeError: Numpy is not available"],
      ["=A module that was compiled using NumPy 1.x cannot be run in", ".NumPy 2.2.6 as it may crash."] + TB + ["=RuntimeError: Numpy is not available"])
    s("mkl-openmp-conflict",
      [r"OMP: Error #15: Initializing (\S+), but found (\S+) already initialized", r"MKL_THREADING_LAYER=INTEL is incompatible with libgomp"],
      ["=OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized."],
      ["=Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with libgomp-a34b3233.so.1 library."])
    s("main-guard-missing",
      [r"An attempt has been made to start a new process before the", r"current process has finished its bootstrapping phase"],
      [".RuntimeError: ", "=        An attempt has been made to start a new process before the", "=        current process has finished its bootstrapping phase.",
       ".        This probably means that you are not using fork to start your child processes"])
    return S


# --------------------------------------------------------------------------- random text
WORDS_ZH = "数据 加载 完成 共 个 样本 耗时 秒 缓存 命中率 训练 损失 学习率 模型 参数 检查点 保存 成功 节点 进程 显存 占用 批次 警告 开始 结束 验证 准确率 分布式 通信 初始化 正常 队列 线程 读取 文件 路径 配置 预热 步数".split()
JOBS = "llama-sft gpt-pretrain vit-l16 moe-8x7b dpo-run2 whisper-ft sdxl-lora bert-mlm".split()
MODS = "attn.q_proj attn.k_proj attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj norm embed_tokens lm_head router experts.3.w1".split()


class Rng:
    def __init__(self, seed):
        self.r = random.Random(seed).random

    def n(self, k):
        return int(self.r() * k)

    def pick(self, seq):
        return seq[int(self.r() * len(seq))]

    def fill(self, t, rank=None):
        """Fill {x} in a template; single quotes and other braces stay as they are."""
        return FILL.sub(lambda m: FIELDS[m.group(1)](self, rank), t)


FIELDS = {
    "rank": lambda g, k: str(g.n(8) if k is None else k),
    "pid": lambda g, k: str(1000 + g.n(90000)), "host": lambda g, k: "node%02d" % g.n(64),
    "job": lambda g, k: g.pick(JOBS), "hex": lambda g, k: "%012x" % g.n(1 << 47),
    "mm": lambda g, k: "%02d" % (1 + g.n(12)), "dd": lambda g, k: "%02d" % (1 + g.n(28)),
    "mmdd": lambda g, k: "%02d%02d" % (1 + g.n(12), 1 + g.n(28)),
    "hms": lambda g, k: "%02d:%02d:%02d" % (g.n(24), g.n(60), g.n(60)),
    "f1": lambda g, k: "%.2f" % (1 + 70 * g.r()), "f4": lambda g, k: "%.4f" % (4 * g.r()),
    "e": lambda g, k: "%.3e" % (1e-3 * g.r()),
    "n1": lambda g, k: str(1 + g.n(9)), "n2": lambda g, k: str(10 + g.n(90)), "n3": lambda g, k: str(100 + g.n(900)),
    "n5": lambda g, k: str(10000 + g.n(90000)), "n6": lambda g, k: "%06d" % g.n(10 ** 6),
    "n7": lambda g, k: str(10 ** 6 + g.n(9 * 10 ** 6)), "n9": lambda g, k: "%09d" % g.n(10 ** 9),
}
FILL = re.compile(r"\{(%s)\}" % "|".join(FIELDS))
NOISE = [  # (weight, template): the prefix is added by Noise.line
    (14, "2026-{mm}-{dd} {hms},{n3} - INFO - train.py:412 - step {n5} | loss {f4} | grad_norm {f4} | lr {e} | tokens/s {n5}.{n1} | mem {f1}GiB"),
    (6, "{'loss': {f4}, 'grad_norm': {f4}, 'learning_rate': {e}, 'epoch': {f4}}"),
    (5, " iteration    {n5}/  500000 | consumed samples:      {n7} | elapsed time per iteration (ms): {n3}.{n1} | learning rate: {e} | global batch size:   256 | lm loss: {f4}E+00 | loss scale: 65536.0 | grad norm: {f4} | number of skipped iterations:   0 | number of nan iterations:   0 |"),
    (7, "{host}:{pid}:{pid} [{rank}] NCCL INFO Channel {n2}/0 : {rank}[{rank}] -> {rank}[{rank}] via P2P/CUMEM/read"),
    (4, "{host}:{pid}:{pid} [{rank}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.{n1}.{n2}<0>"),
    (3, "{host}:{pid}:{pid} [{rank}] NCCL INFO comm 0x{hex} rank {rank} nRanks 8 nNodes 1 localRanks 8 localRank {rank} MNNVL 0"),
    (3, "{host}:{pid}:{pid} [{rank}] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22."),
    (3, "/opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:{n3}: UserWarning: torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly."),
    (2, "/opt/conda/lib/python3.11/site-packages/torch/cuda/amp/autocast_mode.py:{n3}: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated."),
    (2, "[W{mmdd} {hms}.{n9} socket.cpp:697] [c10d] The client socket has failed to connect to [{host}]:29500 (errno: 111 - Connection refused), retrying."),
    (2, "[rank{rank}]:[W{mmdd} {hms}.{n9} ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank {rank}] using GPU {rank} to perform barrier as devices used by this process are currently unknown."),
    (3, "2026-{mm}-{dd} {hms},{n3} - INFO - data.py:88 - worker {rank}: 0 errors, 0 failed, {n5} samples read, cache hit {f1}%"),
    (2, "2026-{mm}-{dd} {hms},{n3} - WARNING - io.py:57 - GET s3://bucket/{job}/shard-{n5} failed with HTTPError 503, retrying in {f4}s (attempt {n1}/10)"),
    (3, "Saving model checkpoint to /data/ckpt/{job}/step_{n5}.pt ... done in {f4} s (rank {rank})"),
    (3, "eval: step {n5} eval_loss={f4} eval_error={f4} ppl={f1} acc={f4} samples_per_second={f1}"),
    (2, "|   {rank}  NVIDIA H100 80GB HBM3   On | 00000000:4E:00.0 Off |  {n3}W / 700W |  {n5}MiB / 81559MiB |  {n2}%  Default |"),
    (2, "[{host}] pid {pid} exited with code 0, timeout=1800s, killed 0 stale workers"),
    (3, "I{mmdd} {hms}.{n6} {pid} torch/_inductor/remote_cache.py:417] cache miss for key f{hex}{hex}"),
    (3, "DEBUG: layer {n2}.{job} weight norm={f4} grad_max={e} grad_min=-{e} has_nan=False has_inf=False"),
    (2, "{\"ts\": \"2026-{mm}-{dd}T{hms}.{n6}Z\", \"level\": \"info\", \"rank\": {rank}, \"step\": {n5}, \"loss\": {f4}, \"mfu\": {f4}, \"msg\": \"train/step\"}"),
]
PREFIX = ["", "", "[rank{rank}]: ", "[rank{rank}]:", "[default{rank}]:", "{rank}: ", "2026-{mm}-{dd}T{hms}.{n9}Z stdout F ", "worker-{rank} | "]


class Noise:
    """Harmless lines, in chunks of about 1 MiB; the first `pool` bytes are unique."""

    def __init__(self, seed, ranks, pool):
        self.seed, self.ranks, self.pool = seed, ranks, max(1, pool >> 20)
        self.kept = {}
        bag = []
        for w, t in NOISE:
            bag += [t] * w
        self.bag = [self.split(t) for t in bag]
        self.pre = [self.split(p) for p in PREFIX]

    @staticmethod
    def split(t):
        parts = FILL.split(t)
        return "%s".join(p.replace("%", "%%") for p in parts[0::2]), [FIELDS[k] for k in parts[1::2]]

    def long_line(self, g):
        k = g.n(4)
        size = 400 + int(19600 * g.r() ** 3)
        if k == 0:    # tqdm: one 'line' with carriage returns
            tot, out, n, pos = 1000 + g.n(9000), [], 0, 0
            while n < size:
                pos = min(tot, pos + 1 + g.n(9))
                p = 100 * pos // tot
                one = "Epoch %d: %3d%%|%s| %d/%d [%02d:%02d<%02d:%02d, %5.2fit/s, loss=%.4f]" % (
                    g.n(9), p, ("█" * (p // 10) + "▍").ljust(10), pos, tot, g.n(60), g.n(60), g.n(60), g.n(60), 9 * g.r(), 4 * g.r())
                out.append(one)
                n += len(one) + 22
            return "\r".join(out)
        if k == 1:    # token ids
            return "input_ids: tensor([[" + ", ".join(str(g.n(32000)) for _ in range(size // 7)) + "]], device='cuda:%d')" % g.n(8)
        if k == 2:    # config dump
            out, n = [], 0
            while n < size:
                one = '"model.layers.%d.%s.weight": {"shape": [%d, %d], "dtype": "bfloat16", "requires_grad": true}' % (g.n(80), g.pick(MODS), 64 * g.n(128), 64 * g.n(128))
                out.append(one)
                n += len(one) + 2
            return "param_groups = {" + ", ".join(out) + "}"
        return "样例文本 " + "".join(g.pick(WORDS_ZH) + ("，" if g.n(6) == 0 else "") for _ in range(min(size, 6000) // 7))

    def line(self, g):
        k = g.r()
        if k < 0.16:
            p = g.n(101)
            body = "Epoch %d:  %2d%%|%s| %d/%d [%02d:%02d<%02d:%02d,  %.2fit/s, loss=%.3f, lr=%.2e]" % (
                g.n(9), p, ("█" * (p // 10) + "▌").ljust(10), g.n(9999), 9999, g.n(60), g.n(60), g.n(60), g.n(60), 9 * g.r(), 4 * g.r(), 1e-3 * g.r())
        elif k < 0.19:
            body = "2026-03-%02d %02d:%02d:%02d INFO %s：%s %d %s，%s %.2f %s（%s %.1f%%）" % (
                1 + g.n(28), g.n(24), g.n(60), g.n(60), g.pick(WORDS_ZH) + g.pick(WORDS_ZH), g.pick(WORDS_ZH), g.n(99999), g.pick(WORDS_ZH),
                g.pick(WORDS_ZH), 99 * g.r(), g.pick(WORDS_ZH), g.pick(WORDS_ZH) + g.pick(WORDS_ZH), 100 * g.r())
        elif k < 0.194:
            body = self.long_line(g)
        else:
            t, f = self.bag[int(g.r() * len(self.bag))]
            body = t % tuple([x(g, None) for x in f])
        t, f = self.pre[int(g.r() * len(self.pre))]
        return t % tuple([x(g, None) for x in f]) + body if t else body

    def chunk(self, i):
        """Lines of chunk i (a list of bytes without line ends)."""
        if i >= self.pool:
            i = Rng("recycle %s %s" % (self.seed, i)).n(self.pool)
        if i in self.kept:
            return self.kept[i].split(b"\n")
        g, out, n = Rng("noise %s %s" % (self.seed, i)), [], 0
        while n < 1 << 20:
            b = self.line(g).encode()
            out.append(b)
            n += len(b) + 1
        if self.pool <= 512:
            self.kept[i] = b"\n".join(out)
        return out


# --------------------------------------------------------------------------- the log
class Log:
    def __init__(self, size, seed=1, ranks=8, dense=False, healthy=False, rate=0.25, pool=256 << 20, only=None):
        self.size, self.seed, self.ranks, self.dense, self.healthy, self.rate = size, seed, ranks, dense, healthy, rate
        self.noise = Noise(seed, ranks, min(pool, size + (1 << 20)))
        self.blocks = [(slug, b) for slug, _, bl in signatures() for b in bl if not only or slug in only]
        self.carry = [(l[1:] if l[0] == "=" else l[1:].split("|", 1)[1], [slug] if l[0] == "=" else l[1:].split("|", 1)[0].split(","), slug)
                      for slug, b in self.blocks for l in b if l[0] in "=+"]

    def block(self, g, number, slug, lines):
        """[(bytes, [slugs], block, cause)] of one error block, with a rank's prefix."""
        rank = g.n(self.ranks)
        pt, pf = self.noise.pre[g.n(len(self.noise.pre))]
        out = []
        for l in lines:
            kind, text, slugs = l[0], l[1:], []
            if kind == "=":
                slugs = [slug]
            elif kind == "+":
                head, text = text.split("|", 1)
                slugs = head.split(",")
            text = g.fill(text, rank)
            out.append(((pt % tuple([x(g, rank) for x in pf]) + text).encode(), slugs, number, slug))
        return out

    def __iter__(self):
        """(bytes without line end, [slugs], block number or 0, cause or '') for each line."""
        g, done, i, number, order = Rng("blocks %s" % self.seed), 0, 0, 0, []
        while done < self.size:
            lines = self.noise.chunk(i)
            i += 1
            at = set()
            if not self.healthy and not self.dense:
                k = int(self.rate) + (g.r() < self.rate - int(self.rate))
                at = {int(g.r() * len(lines)) for _ in range(k)}
            for j, b in enumerate(lines):
                if self.dense and j % 20 == 19:
                    text, slugs, cause = self.carry[int(g.r() * len(self.carry))]
                    number += 1
                    pt, pf = self.noise.pre[g.n(len(self.noise.pre))]
                    e = (pt % tuple([x(g, None) for x in pf]) + g.fill(text)).encode()
                    yield e, slugs, number, cause
                    done += len(e) + 1
                elif j in at:
                    if not order:      # each block once, in a seeded order, then again
                        order = list(range(len(self.blocks)))
                        for a in range(len(order) - 1, 0, -1):
                            c = g.n(a + 1)
                            order[a], order[c] = order[c], order[a]
                    number += 1
                    for e in self.block(g, number, *self.blocks[order.pop()]):
                        yield e
                        done += len(e[0]) + 1
                        if g.r() < 0.15:
                            x = lines[int(g.r() * len(lines))]
                            yield x, [], 0, ""
                            done += len(x) + 1
                yield b, [], 0, ""
                done += len(b) + 1
                if done >= self.size:
                    return

    def paste(self):
        """A 4 KiB paste: some noise, one error block, nothing else; at most self.size bytes."""
        g = Rng("paste %s" % self.seed)
        fits = [b for b in self.blocks if 1000 < sum(len(l) for l in b[1]) < self.size - 1500] or self.blocks
        mid = self.block(g, 1, *g.pick(fits))
        left, head = self.size - sum(len(e[0]) + 1 for e in mid), []
        while True:
            b = self.noise.line(g).encode()
            if len(b) + 1 > left:
                if len(b) < 1500:
                    break
                continue
            head.append((b, [], 0, ""))
            left -= len(b) + 1
        return head + mid


def write(log, out, truth, meta, lines=None):
    h, n, rows, size, blocks, buf = hashlib.sha256(), 0, 0, 0, 0, []
    with open(out, "wb") as f, open(truth, "w", encoding="utf-8") as t:
        t.write("line\tslug\tblock\tcause\n")
        for b, slugs, number, cause in (lines if lines is not None else log):
            n += 1
            buf.append(b)
            size += len(b) + 1
            blocks = max(blocks, number)
            for s in slugs:
                t.write("%d\t%s\t%d\t%s\n" % (n, s, number, cause))
                rows += 1
            if len(buf) >= 20000:
                x = b"\n".join(buf) + b"\n"
                h.update(x)
                f.write(x)
                buf = []
        x = b"\n".join(buf) + b"\n" if buf else b""
        h.update(x)
        f.write(x)
    meta.update(bytes=size, lines=n, rows=rows, blocks=blocks, sha256=h.hexdigest())
    with open(out + ".meta.json", "w") as f:
        json.dump(meta, f, indent=1)
    return meta


# --------------------------------------------------------------------------- patterns
VOCAB = ("tensor buffer kernel stream device module optimizer scheduler checkpoint gradient backward forward parameter storage worker sampler "
         "collective allgather broadcast reduce scatter gather barrier timeout socket channel transport handle context allocator segment arena "
         "fragment quota throttle deadline heartbeat watchdog sentinel replica shard partition pipeline stage microbatch sequence attention router "
         "expert embedding tokenizer vocabulary dataset manifest index cache prefetch decode transform collate augment rotate normalize quantize "
         "dequantize calibrate profile trace callback hook registry plugin backend compiler lowering fusion autotune benchmark codegen symbol guard "
         "recompile graph region subgraph node edge scalar vector matrix stride layout contiguous overlap alias mutation version counter semaphore "
         "mutex condition queue thread process session lease token credential endpoint gateway proxy resolver hostname interface route subnet "
         "adapter firmware driver runtime toolkit library archive header footer payload checksum digest signature metadata schema record column "
         "journal snapshot rollback commit replay restore resume suspend evict preempt migrate reschedule provision reclaim").split()


def literal_of(rx):
    """Longest literal each match must contain; several, joined by \\x1f, for a top-level alternation.
    Case-insensitive patterns get '' (no safe literal)."""
    if rx.startswith("(?i)"):
        return ""
    alts, depth, cur, i, cls = [], 0, "", 0, False
    while i < len(rx):
        c = rx[i]
        if c == "\\":
            cur += rx[i:i + 2]
            i += 2
            continue
        cls = (c == "[") if not cls else (c != "]")
        if not cls and c == "(":
            depth += 1
        elif not cls and c == ")":
            depth -= 1
        if c == "|" and depth == 0 and not cls:
            alts.append(cur)
            cur = ""
        else:
            cur += c
        i += 1
    alts.append(cur)
    best = []
    for a in alts:
        runs, run, i, depth = [], "", 0, 0
        while i < len(a):
            c, step, lit = a[i], 1, None
            if c == "\\":
                step = 2
                lit = a[i + 1] if not a[i + 1].isalnum() else None
            elif c == "[":
                step = a.index("]", i + 2) - i + 1
            elif c in "()":
                depth += 1 if c == "(" else -1
                if c == "(" and a.startswith("(?:", i):
                    step = 3
            elif c not in ".*+?^$|{}":
                lit = c
            nxt = a[i + step:i + step + 1]
            if lit is not None and depth == 0 and nxt not in ("?", "*", "{"):
                run += lit
                if nxt == "+":
                    runs.append(run)
                    run = ""
            else:
                runs.append(run)
                run = ""
            i += step
        runs.append(run)
        best.append(max(runs, key=len))
    return "\x1f".join(best) if min(map(len, best)) >= 4 else ""


def ere_of(rx):
    """The same pattern for GNU grep -E (C locale)."""
    ci = rx.startswith("(?i)")
    if ci:
        rx = rx[4:]
    out, i, cls = "", 0, False
    while i < len(rx):
        c = rx[i]
        if c == "\\":
            e = rx[i + 1]
            m = {"d": "0-9", "w": "A-Za-z0-9_"}.get(e)
            out += (m if cls else "[%s]" % m) if m else "[^[:space:]]" if e == "S" else (e if cls or e in "'`\"/: " else "\\" + e)
            i += 2
            continue
        if c == "(" and rx.startswith("(?:", i):
            out += "("
            i += 3
            continue
        cls = (c == "[") if not cls else (c != "]")
        out += "[%s%s]" % (c.upper(), c.lower()) if ci and not cls and c.isalpha() else c
        i += 1
    return out


def patterns(n=150, seed=1):
    """[(id, slug, regex, ere, literal)], n of them: 75, 150 or more (see the top)."""
    sig = signatures()
    first = [(s, p[0]) for s, p, _ in sig]
    second = [(s, p[1]) for s, p, _ in sig]
    third = [(s, p[2]) for s, p, _ in sig if len(p) > 2]
    extra = [("gpu-hardware-fault", r"NVRM: Xid \(PCI:[0-9a-f:]+\): (?:48|63|64|74|79|94|95)\b"),
             ("cuda-out-of-memory", r"GPU \d+ has a total capacity of [\d.]+ GiB of which [\d.]+ MiB is free")]
    base = first + second + third + extra
    if n <= 75:
        out = (first + third)[:n]
    else:
        out = base[:n]
    g, seen = Rng("patterns %s" % seed), {r for _, r in base}
    while len(out) < n:
        slug, rx = base[g.n(len(base))]
        if rx.startswith("(?i)"):
            continue
        words = [m for m in re.finditer(r"(?<![\\A-Za-z])[A-Za-z]{4,}(?![A-Za-z]*[?*\]])", rx)]
        k = 1 + g.n(2)
        # every top-level alternative needs a changed word: change one in each, two in long ones
        cuts, depth, cls = [0], 0, False
        for i, c in enumerate(rx):
            if rx[i - 1:i] == "\\":
                continue
            cls = (c == "[") if not cls else (c != "]")
            depth += (c == "(") - (c == ")") if not cls else 0
            if c == "|" and depth == 0 and not cls:
                cuts.append(i + 1)
        cuts.append(len(rx) + 1)
        change, ok = {}, True
        for a, b in zip(cuts, cuts[1:]):
            w = [m for m in words if a <= m.start() < b and rx.count("(", a, m.start()) == rx.count(")", a, m.start())]
            w = w or [m for m in words if a <= m.start() < b]
            if not w:
                ok = False
                break
            for _ in range(min(k, len(w))):
                m = w[g.n(len(w))]
                v = VOCAB[g.n(len(VOCAB))]
                v = v.upper() if m.group().isupper() else v.capitalize() if m.group()[0].isupper() else v
                change[m.start()] = (m.end(), v)
        if not ok:
            continue
        new, pos = "", 0
        for a in sorted(change):
            new += rx[pos:a] + change[a][1]
            pos = change[a][0]
        new += rx[pos:]
        # all words inside one group with the rest unchanged would still match: demand a changed required part
        lits = literal_of(new)
        if new in seen or not lits or lits == literal_of(rx) or min(map(len, lits.split("\x1f"))) < 6:
            continue
        if any(x in literal_of(rx).split("\x1f") or re.fullmatch(r"\W*\w+\W*", x) for x in lits.split("\x1f")):
            continue        # an unchanged alternative, or one that is a single common word
        re.compile(new)
        seen.add(new)
        out.append(("var-%s-%d" % (slug, len(out)), new))
    return [(i, s, r, ere_of(r), literal_of(r)) for i, (s, r) in enumerate(out)]


# --------------------------------------------------------------------------- command line
def parse_size(s):
    m = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", s.strip(), re.I)
    return int(m.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[m.group(2).upper()]


def selftest():
    bad = 0
    pats = patterns(1000)
    comp = [(s, re.compile(r.encode()), [x.encode() for x in l.split("\x1f")] if l else []) for _, s, r, _, l in pats]
    lit = [x for _, _, l in comp[:150] for x in l]
    odd = [c for _, c, l in comp if not l]
    var = [(k, x) for k in range(150, 1000) for x in comp[k][2]]
    used = set()
    for args in (dict(size=6 << 20, dense=True), dict(size=24 << 20, rate=8.0), dict(size=2 << 20, healthy=True)):
        n = hits = 0
        for b, slugs, number, cause in Log(seed=7, **args):
            n += 1
            want = set(slugs)
            got = set()
            if want or any(x in b for x in lit) or any(c.search(b) for c in odd):
                for k in range(150):
                    if comp[k][1].search(b):
                        got.add(comp[k][0])
                        used.add(k)
                        bad += bool(comp[k][2]) and not any(x in b for x in comp[k][2])
            if n % 8 == 0 or want:      # the variants: by their literals first
                got |= {comp[k][0] for k, x in var if x in b and comp[k][1].search(b)}
            hits += len(want)
            if got != want:
                bad += 1
                if bad < 20:
                    print("differs:", sorted(got ^ want), b[:300])
        print(args, "lines", n, "pairs", hits)
    miss = [pats[k][2] for k in range(150) if k not in used]
    print("base patterns never seen:", miss)
    a = write(Log(3 << 20, seed=5), "/tmp/genlog.selftest", "/tmp/genlog.selftest.truth", {})["sha256"]
    b = write(Log(3 << 20, seed=5), "/tmp/genlog.selftest", "/tmp/genlog.selftest.truth", {})["sha256"]
    bad += a != b
    for seed in range(40):
        p = Log(4096, seed=seed).paste()
        bad += not any(s for _, s, _, _ in p) or sum(len(e[0]) + 1 for e in p) > 4096
    lens = [max(map(len, l.split("\x1f"))) for _, _, _, _, l in pats[:150]]
    print("150: literal >= 10:", sum(x >= 10 for x in lens), " 4-9:", sum(4 <= x < 10 for x in lens), " none:", sum(x < 4 for x in lens))
    print("selftest:", "%d FAILED" % bad if bad else "ok", a[:16])
    return 1 if bad else 0


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--size", default=None)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--ranks", type=int, default=8)
    ap.add_argument("--dense", action="store_true")
    ap.add_argument("--healthy", action="store_true")
    ap.add_argument("--paste", action="store_true")
    ap.add_argument("--rate", type=float, default=0.25, help="error blocks for each MiB (sparse)")
    ap.add_argument("--only", help="comma-separated slugs whose blocks may occur")
    ap.add_argument("--pool", default="256M")
    ap.add_argument("--patterns", type=int, help="write a pattern set of this many instead of a log")
    ap.add_argument("--out")
    ap.add_argument("--truth")
    ap.add_argument("--selftest", action="store_true")
    a = ap.parse_args()
    if a.selftest:
        return selftest()
    if not a.out:
        ap.error("--out is needed")
    if a.patterns:
        with open(a.out, "w", encoding="utf-8") as f:
            f.write("id\tslug\tregex\tere\tliteral\n")
            for p in patterns(a.patterns, a.seed):
                f.write("\t".join(map(str, p)) + "\n")
        return 0
    log = Log(parse_size(a.size or ("4K" if a.paste else "256M")), a.seed, a.ranks, a.dense, a.healthy, a.rate,
              parse_size(a.pool), set(a.only.split(",")) if a.only else None)
    meta = write(log, a.out, a.truth or a.out + ".truth.tsv", {k: v for k, v in vars(a).items() if k not in ("out", "truth", "selftest")},
                 log.paste() if a.paste else None)
    print(json.dumps(meta))
    return 0


if __name__ == "__main__":
    sys.exit(main())
