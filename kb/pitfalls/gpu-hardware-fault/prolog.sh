#!/bin/bash
# Slurm Prolog: a node whose GPUs lost memory rows or do not answer takes no job.
# A non-zero exit of the prolog drains the node and requeues the job.
set -u
count=$(nvidia-smi --query-gpu=count --format=csv,noheader 2>/dev/null | head -n 1)
present=$(lspci -d 10de: -n | grep -cE ' 030[02]: ')
if [ "${count:-0}" -ne "$present" ]; then
    echo "print NVIDIA driver sees ${count:-0} of $present GPUs"
    exit 1
fi
if nvidia-smi --query-gpu=remapped_rows.pending,remapped_rows.failure \
    --format=csv,noheader | grep -qE '\b(Yes|[1-9][0-9]*)\b'; then
    echo "print a GPU has pending or failed row remappings"
    exit 1
fi
exit 0
