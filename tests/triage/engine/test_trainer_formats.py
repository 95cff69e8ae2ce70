"""The series of a line as each trainer prints it: values, step and rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from triage.engine import Evidence

Scan = Callable[..., Evidence]

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Printed:
    """Text as it is printed, and all points of it: (series, value); where, of all of them."""

    name: str
    text: str
    points: list[tuple[str, float]]
    step: int | None = None
    rank: int | None = None
    progress: list[tuple[int, int | None]] = field(default_factory=list)


FORMATS = [
    # ------------------------------------------------------------------------- plain prints
    Printed(
        "imagenet example",
        "Epoch: [0][  20/5005]\tTime  0.301 (  0.412)\tData  0.000 (  0.050)\t"
        "Loss 6.9402e+00 (6.9801e+00)\tAcc@1   0.00 (  0.36)\tAcc@5   0.39 (  0.84)",
        [("loss", 6.9402), ("step_time", 0.301)],
        progress=[(20, None)],
    ),
    Printed(
        "imagenet example, validation",
        "Test: [ 10/196]\tTime  0.301 (  0.412)\tLoss 2.9402e+00 (2.9801e+00)\tAcc@1   0.00",
        [("val_loss", 2.9402)],
    ),
    Printed(
        "mnist example",
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.305400",
        [("loss", 2.3054)],
        progress=[(10_000_640, None)],
    ),
    Printed("mnist example, test", "Test set: Average loss: 0.0521, Accuracy: 9829/10000 (98%)",
        [("val_loss", 0.0521)]),
    Printed("cifar tutorial", "[1,  2000] loss: 2.173", [("loss", 2.173)]),
    Printed("quickstart tutorial", "loss: 2.303494  [   64/60000]", [("loss", 2.303494)]),
    Printed(
        "nanoGPT", "iter 120: loss 3.2145, time 123.45ms, mfu 12.34%",
        [("loss", 3.2145), ("step_time", 0.12345)], step=120, progress=[(120, None)],
    ),
    Printed(
        "nanoGPT, evaluation", "step 250: train loss 2.5123, val loss 2.6234",
        [("loss", 2.5123), ("val_loss", 2.6234)], step=250, progress=[(250, None)],
    ),
    Printed(
        "build-nanogpt",
        "step   100 | loss: 5.912345 | lr 1.2000e-04 | norm: 1.2345 | dt: 345.12ms | "
        "tok/sec: 1519123.45",
        [("loss", 5.912345), ("learning_rate", 1.2e-4), ("grad_norm", 1.2345),
         ("step_time", 0.34512)],
        step=100, progress=[(100, None)],
    ),
    Printed(
        "nanochat",
        "step 00010/21400 (0.05%) | loss: 10.123456 | grad norm: 1.2345 | lrm: 1.00 | "
        "dt: 1234.56ms | tok/sec: 425,000 | mfu: 45.12 | total time: 0.12m",
        [("loss", 10.123456), ("grad_norm", 1.2345), ("step_time", 1.23456)],
        step=10, progress=[(10, 21400)],
    ),
    Printed(
        "llm.c",
        "step   10/19560 | loss 9.512345 (+1.23z)| norm 3.4567 (-0.12z)| lr 8.57e-06 | 345.12 ms"
        " | 45.6% bf16 MFU | 1519123 tok/s",
        [("loss", 9.512345), ("grad_norm", 3.4567), ("learning_rate", 8.57e-6),
         ("step_time", 0.34512)],
        step=10, progress=[(10, 19560)],
    ),
    # ---------------------------------------------------------------------- progress bars
    Printed(
        "tqdm postfix",
        "Epoch 3:  37%|███▋      | 371/1002 [02:04<03:31,  2.50it/s, loss=1.87, lr=1e-4, "
        "grad_norm=0.51, scale=32768]",
        [("loss", 1.87), ("learning_rate", 1e-4), ("grad_norm", 0.51), ("loss_scale", 32768.0),
         ("step_time", 0.4)],
        step=371, progress=[(371, 1002)],
    ),
    Printed(
        "diffusers",
        "Steps:  10%|█         | 100/1000 [01:00<09:00,  1.25it/s, lr=1e-05, step_loss=nan]",
        [("loss", NAN), ("learning_rate", 1e-5), ("step_time", 0.8)],
        step=100, progress=[(100, 1000)],
    ),
    Printed(
        "torchtune",
        "1|10|Loss: 1.2345:  10%|█         | 10/100 [00:20<03:00,  2.00s/it]",
        [("loss", 1.2345), ("step_time", 2.0)], step=10, progress=[(10, 100)],
    ),
    Printed(
        "Lightning 1",
        "Epoch 4:  37%|###7      | 371/1002 [02:04<03:31,  2.50it/s, loss=nan, v_num=12]",
        [("loss", NAN), ("step_time", 0.4)], step=371, progress=[(371, 1002)],
    ),
    Printed(
        "Lightning 2",
        "[rank: 0] Epoch 0:  10%|█         | 10/100 [00:02<00:20,  4.00it/s, v_num=0, "
        "train_loss_step=0.693, val_loss=0.500, train_loss_epoch=0.712]",
        [("loss", 0.693), ("step_time", 0.25)], step=10, progress=[(10, 100)], rank=0,
    ),
    Printed(
        "Lightning, rich bar",
        "Epoch 0/9 ━━━━━━━━━━━━━━ 45/90 0:00:12 • 0:00:10 3.71it/s v_num: 3.000 train_loss: 0.312",
        [("loss", 0.312)], progress=[(0, 9)],
    ),
    Printed(
        "NeMo 1",
        "Epoch 0: :   1%|          | 10/1000 [00:30<49:30, v_num=abcd, reduced_train_loss=10.50, "
        "global_step=9.000, consumed_samples=80.00, train_step_timing in s=2.310]",
        [("loss", 10.5), ("step_time", 2.31)], step=10, progress=[(10, 1000)],
    ),
    Printed(
        "NeMo 2",
        "Training epoch 0, iteration 10/999 | lr: 1e-05 | global_batch_size: 8 | global_step: 10 "
        "| reduced_train_loss: 10.3 | train_step_timing in s: 2.31 | consumed_samples: 88",
        [("loss", 10.3), ("learning_rate", 1e-5), ("step_time", 2.31)],
        step=10, progress=[(10, None)],
    ),
    # ------------------------------------------------------------------- Hugging Face
    Printed(
        "Trainer",
        "{'loss': 1.2345, 'grad_norm': 0.8812, 'learning_rate': 4.2e-05, 'epoch': 0.63}",
        [("loss", 1.2345), ("grad_norm", 0.8812), ("learning_rate", 4.2e-5)],
    ),
    Printed(
        "Trainer, diverged",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.2e-05, 'epoch': 0.63}",
        [("loss", 0.0), ("grad_norm", NAN), ("learning_rate", 4.2e-5)],
    ),
    Printed(
        "Trainer 5, strings",
        "{'loss': '1.234', 'grad_norm': '0.8812', 'learning_rate': '4.2e-05', 'epoch': '0.63'}",
        [("loss", 1.234), ("grad_norm", 0.8812), ("learning_rate", 4.2e-5)],
    ),
    Printed(
        "Trainer, evaluation",
        "{'eval_loss': 1.5, 'eval_runtime': 12.4, 'eval_samples_per_second': 80.1, "
        "'eval_steps_per_second': 10.1, 'epoch': 1.0}",
        [("val_loss", 1.5)],
    ),
    Printed(
        "Trainer, memory metrics", "  train_mem_gpu_peaked_delta =     7123MB", [],
    ),
    # --------------------------------------------------------------------------- DeepSpeed
    Printed(
        "DeepSpeed, overflow",
        "[2024-05-01 10:00:00,678] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! "
        "Rank 3 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        [("loss_scale", 65536.0), ("skipped_step", 65536.0)], rank=3,
    ),
    Printed(
        "DeepSpeed, hysteresis",
        "[2024-05-01 10:00:00,678] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! "
        "Rank 0 Skipping step. Attempted loss scale: 4294967296, but hysteresis is 2. Reducing "
        "hysteresis to 1",
        [("loss_scale", 4294967296.0), ("skipped_step", 4294967296.0)], rank=0,
    ),
    Printed(
        "DeepSpeed, fused optimizer",
        "[2023-05-01 10:00:00,678] [INFO] [fused_optimizer.py:370:_update_scale] \n"
        "Grad overflow on iteration 12\n"
        "Reducing dynamic loss scale from 65536.0 to 32768.0",
        [("loss_scale", 32768.0), ("skipped_step", 32768.0)], progress=[(12, None)],
    ),
    Printed(
        "DeepSpeed, steps",
        "[2024-05-01 10:00:00,678] [INFO] [logging.py:96:log_dist] [Rank 0] step=1200, skipped=3, "
        "lr=[0.0001], mom=[(0.9, 0.95)]",
        [("skipped_total", 3.0), ("learning_rate", 1e-4)], step=1200, rank=0,
        progress=[(1200, None)],
    ),
    Printed(
        "DeepSpeed, pipeline",
        "steps: 10 loss: 6.9123 iter time (s): 0.812 samples/sec: 157.635",
        [("loss", 6.9123), ("step_time", 0.812)], step=10, progress=[(10, None)],
    ),
    Printed(
        "DeepSpeed, throughput",
        "[2024-05-01 10:00:00,678] [INFO] [timer.py:258:stop] epoch=0/micro_step=40/"
        "global_step=10, RunningAvgSamplesPerSec=12.34, CurrSamplesPerSec=12.1, "
        "MemAllocated=10.25GB, MaxMemAllocated=20.1GB",
        [("gpu_memory", 10.25 * 1024)], step=10, progress=[(10, None)],
    ),
    Printed(
        "DeepSpeed, memory",
        "[2024-05-01 10:00:00,678] [INFO] [utils.py:801:see_memory_usage] MA 10.25 GB         "
        "Max_MA 12.5 GB         CA 13.0 GB         Max_CA 14 GB ",
        [("gpu_memory", 10.25 * 1024)],
    ),
    Printed(
        "DeepSpeed, host memory",
        "[2024-05-01 10:00:00,678] [INFO] [utils.py:808:see_memory_usage] CPU Virtual Memory:  "
        "used = 123.5 GB, percent = 12.3%",
        [("host_memory", 123.5 * 1024)],
    ),
    # ---------------------------------------------------------------------------- Megatron-LM
    Printed(
        "Megatron-LM",
        " [2024-05-01 10:00:00] iteration     1200/  500000 | consumed samples:       614400 | "
        "elapsed time per iteration (ms): 812.3 | throughput per GPU (TFLOP/s/GPU): 123.4 | "
        "learning rate: 1.500000E-04 | global batch size:   512 | lm loss: 2.345678E+00 | "
        "loss scale: 65536.0 | grad norm: 0.912 | num zeros: 0.0 | params norm: 123.456 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |",
        [("loss", 2.345678), ("loss_scale", 65536.0), ("grad_norm", 0.912),
         ("learning_rate", 1.5e-4), ("step_time", 0.8123)],
        step=1200, progress=[(1200, 500000)],
    ),
    Printed(
        "Megatron-LM, skipped",
        " iteration       12/  500000 | consumed samples:         6144 | elapsed time per "
        "iteration (ms): 812.3 | learning rate: 0.000E+00 | global batch size:   512 | loss scale: "
        "1024.0 | number of skipped iterations:   1 | number of nan iterations:   0 |",
        [("loss_scale", 1024.0), ("skipped_step", 1024.0), ("learning_rate", 0.0),
         ("step_time", 0.8123)],
        step=12, progress=[(12, 500000)],
    ),
    Printed(
        "Megatron-LM, NaN",
        "[default7]: iteration       12/  500000 | consumed samples:         6144 | elapsed time "
        "per iteration (ms): 812.3 | learning rate: 0.000E+00 | global batch size:   512 | "
        "loss scale: 1.0 | number of skipped iterations:   1 | number of nan iterations:   1 |",
        [("loss", NAN), ("loss_scale", 1.0), ("skipped_step", 1.0), ("learning_rate", 0.0),
         ("step_time", 0.8123)],
        step=12, progress=[(12, 500000)], rank=7,
    ),
    Printed(
        "Megatron-LM, validation",
        " validation loss at iteration 1000 | lm loss value: 3.123456E+00 | lm loss PPL: "
        "2.272E+01 | ",
        [("val_loss", 3.123456)], step=1000, progress=[(1000, None)],
    ),
    Printed(
        "Megatron-LM, memory",
        "[Rank 2] (after 10 iterations) memory (MB) | allocated: 12345.67 | max allocated: "
        "23456.78 | reserved: 25000.0 | max reserved: 25000.0",
        [("gpu_memory", 12345.67)], rank=2,
    ),
    Printed(
        "GPT-NeoX",
        " samples/sec: 12.345 | iteration      100/  320000 | elapsed time per iteration (ms): "
        "812.3 | learning rate: 1.500E-04 | approx flops per GPU: 45.6TFLOPS | lm_loss: "
        "2.345678E+00 | loss scale: 65536.0 | number of skipped iterations:   0 | number of nan "
        "iterations:   0 |",
        [("loss", 2.345678), ("loss_scale", 65536.0), ("learning_rate", 1.5e-4),
         ("step_time", 0.8123)],
        step=100, progress=[(100, 320000)],
    ),
    # ---------------------------------------------------------------------- OpenMMLab and alike
    Printed(
        "mmengine, epochs",
        "2024/05/01 10:00:00 - mmengine - INFO - Epoch(train)  [1][650/742]  lr: 5.0000e-05  "
        "eta: 2:15:01  time: 0.3960  data_time: 0.1590  memory: 4127  grad_norm: 3.5123  "
        "loss: 0.7230  loss_cls: 0.4120  loss_bbox: 0.3110",
        [("loss", 0.723), ("gpu_memory", 4127.0), ("grad_norm", 3.5123),
         ("learning_rate", 5e-5), ("step_time", 0.396)],
        progress=[(10_000_650, None)],
    ),
    Printed(
        "mmengine, iterations",
        "05/01 10:00:00 - mmengine - INFO - Iter(train) [   50/20000]  base_lr: 1.0000e-02 lr: "
        "9.9779e-03  eta: 2:15:01  time: 0.3960  data_time: 0.0110  memory: 8127  loss: 3.2123  "
        "decode.loss_ce: 2.3012  decode.acc_seg: 20.1234",
        [("loss", 3.2123), ("gpu_memory", 8127.0), ("learning_rate", 9.9779e-3),
         ("step_time", 0.396)],
        step=50, progress=[(50, 20000)],
    ),
    Printed(
        "mmengine, validation",
        "05/01 10:00:00 - mmengine - INFO - Epoch(val)  [1][50/99]    eta: 0:00:12  time: 0.0960  "
        "data_time: 0.0110  memory: 1127  ",
        [], progress=[(10_000_050, None)],
    ),
    Printed(
        "mmcv, epochs",
        "2022-05-01 10:00:00,678 - mmdet - INFO - Epoch [1][650/742]\tlr: 5.000e-05, eta: 2:15:01, "
        "time: 0.396, data_time: 0.159, memory: 4127, loss_cls: 0.412, loss_bbox: 0.311, "
        "loss: nan, grad_norm: nan",
        [("loss", NAN), ("gpu_memory", 4127.0), ("grad_norm", NAN), ("learning_rate", 5e-5),
         ("step_time", 0.396)],
        progress=[(10_000_650, None)],
    ),
    Printed(
        "mmcv, iterations",
        "2022-05-01 10:00:00,678 - mmseg - INFO - Iter [50/80000]\tlr: 9.995e-03, eta: 9:15:01, "
        "time: 0.396, data_time: 0.009, memory: 8127, decode.loss_ce: 2.3012, decode.acc_seg: "
        "20.1234, aux.loss_ce: 1.0012, loss: 3.3024",
        [("loss", 3.3024), ("gpu_memory", 8127.0), ("learning_rate", 9.995e-3),
         ("step_time", 0.396)],
        step=50, progress=[(50, 80000)],
    ),
    Printed(
        "mmcv, json",
        '{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.01, "memory": 4127, "data_time": 0.05, '
        '"loss_cls": 0.4, "loss": 0.7, "time": 0.396}',
        [("loss", 0.7), ("gpu_memory", 4127.0), ("learning_rate", 0.01), ("step_time", 0.396)],
        step=50, progress=[(10_000_050, None)],
    ),
    Printed(
        "detectron2",
        "[05/01 10:00:00 d2.utils.events]:  eta: 1:23:45  iter: 19  total_loss: 2.345  loss_cls: "
        "0.912  loss_box_reg: 0.512  loss_rpn_cls: 0.312  loss_rpn_loc: 0.101    time: 0.4321  "
        "last_time: 0.4100  data_time: 0.0123  last_data_time: 0.0041   lr: 0.00039962  "
        "max_mem: 5678M",
        [("loss", 2.345), ("gpu_memory", 5678.0), ("learning_rate", 0.00039962),
         ("step_time", 0.4321)],
        step=19, progress=[(19, None)],
    ),
    Printed(
        "detectron2, json",
        '{"data_time": 0.0123, "eta_seconds": 5025.1, "iteration": 19, "loss_cls": 0.912, '
        '"lr": 0.00039962, "time": 0.4321, "total_loss": NaN}',
        [("loss", NAN), ("learning_rate", 0.00039962), ("step_time", 0.4321)],
        step=19, progress=[(19, None)],
    ),
    Printed(
        "YOLOX",
        "2024-05-01 10:00:00 | INFO     | yolox.core.trainer:261 - epoch: 1/300, iter: 10/1478, "
        "gpu mem: 5678Mb, mem: 12.3Gb, iter_time: 0.512s, data_time: 0.012s, total_loss: 15.2, "
        "iou_loss: 4.5, l1_loss: 0.0, conf_loss: 8.7, cls_loss: 1.9, lr: 1.234e-06, size: 640, "
        "ETA: 1 day, 2:03:04",
        [("loss", 15.2), ("gpu_memory", 5678.0), ("learning_rate", 1.234e-6),
         ("step_time", 0.512)],
        step=10, progress=[(10_000_010, None)],
    ),
    Printed(
        "torchvision references",
        "Epoch: [0]  [  20/1251]  eta: 0:12:34  lr: 0.000100  img/s: 123.4  loss: 6.9123 (6.9345)  "
        "acc1: 0.0000 (0.1000)  time: 0.3456  data: 0.0012  max mem: 7890",
        [("loss", 6.9123), ("gpu_memory", 7890.0), ("learning_rate", 1e-4),
         ("step_time", 0.3456)],
        progress=[(20, None)],
    ),
    Printed(
        "Swin",
        "[2024-05-01 10:00:00 swin_tiny] (main.py 218): INFO Train: [2/300][10/1251]\teta 0:12:34 "
        "lr 0.000001\t wd 0.0500\ttime 0.3456 (0.4567)\tloss 6.9123 (6.9345)\tgrad_norm 1.2345 "
        "(inf)\tloss_scale 65536.0000 (65536.0000)\tmem 7890MB",
        [("loss", 6.9123), ("loss_scale", 65536.0), ("gpu_memory", 7890.0),
         ("grad_norm", 1.2345), ("learning_rate", 1e-6), ("step_time", 0.3456)],
        progress=[(20_000_010, None)],
    ),
    Printed(
        "timm",
        "Train: 2 [  50/1251 (  4%)]  Loss: 6.952 (6.94)  Time: 0.512s, 1999.12/s  (0.600s, "
        "1706.01/s)  LR: 1.000e-06  Data: 0.010 (0.030)",
        [("loss", 6.952), ("learning_rate", 1e-6), ("step_time", 0.512)],
        progress=[(20_000_050, None)],
    ),
    Printed(
        "timm, validation",
        "Test: [  10/97]  Time: 0.812 (0.912)  Loss:   0.912 ( 1.01)  Acc@1: 80.859 ( 79.1)",
        [("val_loss", 0.912)],
    ),
    Printed(
        "nnU-Net 2",
        "2024-05-01 10:00:00.123456: Current learning rate: 0.00987\n"
        "2024-05-01 10:00:00.123456: train_loss -0.4512\n"
        "2024-05-01 10:00:00.123456: val_loss -0.4123\n"
        "2024-05-01 10:00:00.123456: Pseudo dice [np.float32(nan), np.float32(0.8123)]\n"
        "2024-05-01 10:00:00.123456: Epoch time: 123.4 s",
        [("learning_rate", 0.00987), ("loss", -0.4512), ("val_loss", -0.4123),
         ("epoch_time", 123.4)],
    ),
    Printed(
        "nnU-Net 1",
        "2021-05-01 10:00:00.123456: train loss : -0.4512\n"
        "2021-05-01 10:00:00.123456: validation loss: -0.4123\n"
        "2021-05-01 10:00:00.123456: lr: 0.00987\n"
        "2021-05-01 10:00:00.123456: This epoch took 123.450000 s",
        [("loss", -0.4512), ("val_loss", -0.4123), ("learning_rate", 0.00987),
         ("epoch_time", 123.45)],
    ),
    # ------------------------------------------------------------------- language and speech
    Printed(
        "torchtitan",
        "[rank1]:[titan] 2024-05-01 10:00:00,123 - root - INFO - step:  1  loss:  8.1234  "
        "grad_norm:  1.2345  memory: 45.12GiB(47.50%)  tps: 3,123  tflops: 123.45  mfu: 42.1%",
        [("loss", 8.1234), ("gpu_memory", 45.12 * 1024), ("grad_norm", 1.2345)],
        step=1, progress=[(1, None)], rank=1,
    ),
    Printed(
        "fairseq",
        "2024-05-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=9.123, "
        "nll_loss=8.9, ppl=478.2, wps=1234.5, ups=1.2, wpb=3500, bsz=128, num_updates=100, "
        "lr=0.0005, gnorm=1.25, clip=0, loss_scale=128, train_wall=12, gb_free=9.1, wall=45",
        [("loss", 9.123), ("loss_scale", 128.0), ("grad_norm", 1.25), ("learning_rate", 5e-4)],
        step=100, progress=[(10_000_100, None)],
    ),
    Printed(
        "fairseq, json",
        '2024-05-01 10:00:00 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "9.123", '
        '"ppl": "478.2", "num_updates": "100", "lr": "0.0005", "gnorm": "1.25", "clip": "0", '
        '"loss_scale": "128", "train_wall": "12"}',
        [("loss", 9.123), ("loss_scale", 128.0), ("grad_norm", 1.25), ("learning_rate", 5e-4)],
        step=100, progress=[(10_000_100, None)],
    ),
    Printed(
        "fairseq, overflow",
        "2024-05-01 10:00:00 | INFO | fairseq.trainer | NOTE: gradient overflow detected, "
        "ignoring gradient, setting loss scale to: 64.0",
        [("loss_scale", 64.0), ("skipped_step", 64.0)],
    ),
    Printed(
        "ESPnet",
        "[gpu01] 2024-05-01 10:00:00,123 (trainer:737) INFO: 3epoch:train:101-200batch: "
        "iter_time=1.234e-04, forward_time=0.123, loss_ctc=123.4, loss_att=56.7, acc=0.12, "
        "loss=78.9, backward_time=0.234, grad_norm=45.6, clip=100.000, loss_scale=65536.0, "
        "optim_step_time=0.012, optim0_lr0=1.234e-06, train_time=1.234",
        [("loss", 78.9), ("loss_scale", 65536.0), ("grad_norm", 45.6),
         ("learning_rate", 1.234e-6), ("step_time", 1.234)],
        progress=[(30_000_200, None)],
    ),
    Printed(
        "icefall",
        "2024-05-01 10:00:00,123 INFO [train.py:895] (1/4) Epoch 1, batch 50, loss[loss=1.234, "
        "simple_loss=0.9123, pruned_loss=7.123, over 4567.00 frames. ], tot_loss[loss=1.345, "
        "over 911234.00 frames. ], batch size: 98, lr: 4.50e-02, grad_scale: 0.25",
        [("loss", 1.234), ("loss_scale", 0.25), ("learning_rate", 0.045)],
        progress=[(10_000_050, None)],
    ),
    Printed(
        "SpeechBrain",
        "speechbrain.utils.train_logger - epoch: 3, lr: 1.00e-03 - train loss: 2.34 - valid loss: "
        "1.98, valid ACC: 0.81",
        [("loss", 2.34), ("val_loss", 1.98), ("learning_rate", 1e-3)], progress=[(3, None)],
    ),
    Printed(
        "Composer",
        "[batch=10/1000]:\n\t Train time/batch: 9\n\t Train loss/train/total: 7.1234\n"
        "\t Train l2_norm/grad/global: 1.2345\n\t Train lr-DecoupledAdamW/group0: 0.0001",
        [("loss", 7.1234), ("grad_norm", 1.2345), ("learning_rate", 1e-4)],
        progress=[(10, 1000), (9, None)],
    ),
    # -------------------------------------------------------------------------- JSON, summaries
    Printed(
        "JSON lines",
        '{"step": 120, "train_loss": 2.5, "lr": 0.0003, "grad_norm": Infinity, "rank": 3}',
        [("loss", 2.5), ("grad_norm", INF), ("learning_rate", 3e-4)],
        step=120, rank=3, progress=[(120, None)],
    ),
    Printed(
        "DINO, MAE",
        '{"train_lr": 0.0001, "train_loss": 0.9123, "test_loss": 0.8, "epoch": 3, "n_parameters": '
        "21666712}",
        [("loss", 0.9123), ("val_loss", 0.8), ("learning_rate", 1e-4)], progress=[(3, None)],
    ),
    Printed(
        "wandb summary",
        "wandb: Run summary:\nwandb:       eval/loss 1.2345\nwandb: train/grad_norm nan\n"
        "wandb:      train/loss nan\nwandb:  train/learning_rate 0.0",
        [("val_loss", 1.2345), ("grad_norm", NAN), ("loss", NAN), ("learning_rate", 0.0)],
    ),
    Printed(
        "wandb history",
        "wandb: Run history:\nwandb:      train/loss █▆▄▃▂▁▁▁\nwandb: train/grad_norm ▁▁▂▃▂▁▁█",
        [],
    ),
    Printed(
        "ultralytics", "      1/100      5.1G        nan        nan        nan        12       640",
        [("gpu_memory", 5.1 * 1024), ("loss", NAN)],
    ),
    Printed(
        "Keras",
        "1563/1563 [==============================] - 12s 8ms/step - loss: 1.2 - val_loss: 0.5",
        [],
    ),
]  # fmt: skip


@pytest.mark.parametrize("printed", FORMATS, ids=lambda printed: printed.name)
def test_series_of_a_trainer(printed: Printed, scan_text: Scan) -> None:
    evidence = scan_text(printed.text)
    found = sorted((p.series, p.value) for p in evidence.points)
    expected = sorted(printed.points)
    assert [name for name, _ in found] == [name for name, _ in expected]
    values = [value for _, value in expected]
    assert [value for _, value in found] == pytest.approx(values, nan_ok=True)
    assert {p.step for p in evidence.points} <= {printed.step}
    assert {p.rank for p in evidence.points} <= {printed.rank}
    assert [(p.done, p.total) for p in evidence.progress] == printed.progress
