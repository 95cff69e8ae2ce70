#!/bin/bash
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
# Five minutes before the time limit (and on preemption, with SIGTERM) the batch shell is told;
# it lets the training save and puts the job back into the queue.
again() {
    kill -USR1 "$step" 2>/dev/null    # srun passes it on to every task
    wait "$step"
    scontrol requeue "$SLURM_JOB_ID"
}
trap again USR1 TERM
srun python train.py --resume latest &
step=$!
wait "$step"
