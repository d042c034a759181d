#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The training of the model in tests/model/, as it went: six stretches, each from the state the one
# before left in WORK. `sh train.sh WORK OUT`; interrupted, it goes on. train.log has what it said.
set -eu
cd "$(dirname "$0")"
work=$1 out=$2
export OMP_NUM_THREADS=1

stretch() {
    python3 train.py --work "$work" --out "$out" --seed 3 --rows 5 --length 256 --warm 30 "$@"
}

# Sentences. All tokens count alike.
stretch --steps 1000 --fall 0.4 --rate 3e-3 --muon 6e-3 --recall 0 --until 500
# Who it was: such words count four times, and tables and vectors move less.
stretch --steps 1100 --fall 0.545 --until 524
stretch --steps 800 --fall 0.375 --until 555
stretch --steps 640 --fall 0.16
# And drills, in which little else has to be known.
stretch --steps 1100 --fall 0.4 --drill 0.35
# Last, mostly conversations.
stretch --steps 1250 --fall 0.12 --drill 0.05 --chat 0.85
