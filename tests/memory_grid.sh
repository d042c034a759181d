#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No budget is exceeded: `make memory-grid`, as root. Every command runs on budgets from its floor
# to all weights resident, first freely, then alone in a memory control group of the budget and
# 64 MiB without swap. Wanted: exit status 0, a peak of resident memory (VmHWM) of at most --ram, no
# kill, and the same output everywhere. One line for each budget. What this machine cannot try is
# named with the reason. Nothing outside a folder of its own and a control group is touched.
#   REAL_WIDTH=0   without the model of real width, which takes 5 GB of drive, 7 GB of memory, time
#   ONLY=WORD      cases with this word in their name
set -u

BUILD=${BUILD:-build}
REAL_WIDTH=${REAL_WIDTH:-1}
ONLY=${ONLY:-}
margin=$((64 * 1024 * 1024))
libraries=$((8 * 1024 * 1024))
root=/sys/fs/cgroup/memory
group=$root/k3ring-memory-grid-$$
passed=0
failed=0

[ "$(id -u)" = 0 ] || {
    echo "memory-grid: control groups need root" >&2
    exit 77
}

work=$(mktemp -d /tmp/k3ring-memory-grid-XXXXXX) || exit 1
k3ring=$work/k3ring
cp "$BUILD/k3ring" "$k3ring"
cp "$BUILD/tests/tools/peak" "$work/peak"

# Removes the group, and ends what is left in it.
leave_group() {
    for pid in $(cat "$group/cgroup.procs"); do
        kill -9 "$pid" 2> /dev/null
    done
    for _ in $(seq 1 50); do
        rmdir "$group" 2> /dev/null && return
        sleep 0.1
    done
    echo "memory-grid: $group cannot be removed" >&2
    return 1
}

# shellcheck disable=SC2329
clean_up() {
    [ ! -e "$group" ] || leave_group
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

skip() {
    printf 'not tried: %s: %s\n' "$1" "$2"
}

mib() {
    awk "BEGIN {printf \"%.1f\", $1 / 1048576}"
}

# BYTES: a control group with this limit, of memory and swap together; or none, once told.
make_group() {
    [ -e "$root/memory.limit_in_bytes" ] || return 1
    mkdir "$group" && echo "$1" > "$group/memory.limit_in_bytes" || exit 1
    [ ! -e "$group/memory.memsw.limit_in_bytes" ] ||
        echo "$1" > "$group/memory.memsw.limit_in_bytes"
    echo 0 > "$group/memory.swappiness"
}

# What a command made, whatever it is: tokens, hashes, results; no times, no sizes.
digest() {
    {
        [ ! -e "$work/json" ] || grep '"logits_hash"\|"perplexity"' "$work/json"
        [ ! -e "$work/results" ] || cat "$work/results"
        [ -e "$work/json" ] && grep -q '"perplexity"' "$work/json" || cat "$work/out"
    } | cksum
}

# WORDS..: one run, freely or in the group ($inside); sets status, peak and made. Status 125: it
# could not join the group, and nothing ran.
run() {
    rm -f "$work/results" "$work/results.part" "$work/json" "$work/peak_kib"
    # shellcheck disable=SC2016
    join='[ -z "$0" ] || echo $$ > "$0/cgroup.procs" || exit 125; exec "$@"'
    sh -c "$join" "$inside" "$work/peak" "$work/peak_kib" "$k3ring" "$@" \
        > "$work/out" 2> "$work/err" < "$work/input"
    status=$?
    peak=$(($(cat "$work/peak_kib" 2> /dev/null || echo 0) * 1024))
    made=$(digest)
}

# Judges the last run; says what is wrong with it.
judge() { # BUDGET
    if [ "$status" != 0 ]; then
        wrong="$wrong; exit status $status: $(tail -n 1 "$work/err")"
    elif [ "$peak" -gt "$1" ] || [ "$peak" = 0 ]; then
        wrong="$wrong; the peak is $peak of $1 bytes"
    elif [ "$made" != "${wanted:=$made}" ]; then
        wrong="$wrong; another output"
    fi
}

# In a control group: also, was it there, and was anything killed? Libraries count in the group that
# read them first, some 5 MiB. Sets used and kills.
run_in_group() { # BUDGET WORDS..
    budget=$1
    shift
    inside=$group
    run "$@"
    inside=
    used=$(cat "$group/memory.max_usage_in_bytes")
    kills=$(sed -n 's/^oom_kill //p' "$group/memory.oom_control")
    [ "${kills:-0}" = 0 ] || wrong="$wrong; $kills killed for memory"
    judge "$budget"
    [ "${used:-0}" -ge 1048576 ] && [ $((used + libraries)) -ge "$peak" ] ||
        wrong="$wrong; the group saw ${used:-no} bytes of a peak of $peak"
    leave_group || exit 1
}

available_mib() {
    awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo
}

try_budget() { # NAME BUDGET WORDS..
    name=$1
    budget=$2
    shift 2
    [ $((budget / 1048576 + 512)) -le "$(available_mib)" ] || {
        skip "$name --ram $budget" "$(available_mib) MiB of memory are free"
        return
    }
    wrong=
    group_says="no control group"
    run "$@" --ram "$budget"
    judge "$budget"
    free_peak=$peak
    if make_group $((budget + margin)); then
        run_in_group "$budget" "$@" --ram "$budget"
        group_says="in its group $(mib "$peak"), group $(mib "$used")"
    fi
    printf '%s %-44s --ram %9s  peak %s, %s of %s MiB%s\n' "$([ -z "$wrong" ] && echo ok || echo BAD)" \
        "$name" "$budget" "$(mib "$free_peak")" "$group_says" "$(mib $((budget + margin)))" "$wrong"
    if [ -z "$wrong" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

# What a command says it needs at least, with these words.
needs() {
    run "$@" --ram 1M
    floor=$(sed -n 's/.* needs \([0-9]*\) bytes.*/\1/p' "$work/err")
    [ "$status" = 4 ] && [ -n "$floor" ] && return 0
    printf 'BAD %s: no floor is told: %s\n' "$name" "$(tail -n 1 "$work/err")"
    failed=$((failed + 1))
    return 1
}

# A command on all budgets. $wanted is its output, or empty for what the first run makes.
grid() { # NAME WORDS..
    name=$1
    shift
    case $name in
    *"$ONLY"*) ;;
    *) return ;;
    esac
    needs "$@" --pin all --expert-slots all || return
    top=$floor
    needs "$@" || return
    low=$floor
    for step in $steps; do
        try_budget "$name" $((low + (top - low) / 100 * step)) "$@"
    done
    try_budget "$name" "$top" "$@"
}

json() {
    echo "--json $work/json"
}

# ---- commands ----

runs() { # MODEL NAME SUMS OPTIONS..
    model=$1
    label=$2
    sums=$3
    shift 3
    # shellcheck disable=SC2086,SC2046
    {
        wanted=$run_made
        grid "$label: run" run "$model" --ids $ids --gen $gen $(json) "$@"
        grid "$label: run, chunks" run "$model" --ids $ids --gen $gen --chunk 3 $(json) "$@"
        grid "$label: run, drafts" run "$model" --ids $ids --gen $gen --draft ngram-fixed \
            --draft-tokens 6 $(json) "$@"
        grid "$label: run, paranoid" run "$model" --ids $ids --gen $gen --paranoid "$sums" \
            $(json) "$@"
        run_made=$wanted
    }
}

others() { # MODEL NAME SUMS OPTIONS..
    model=$1
    label=$2
    shift 3
    # shellcheck disable=SC2086,SC2046
    {
        wanted=$batch_made
        grid "$label: batch" batch "$model" "$work/batch" --out "$work/results" --sequences 4 "$@"
        batch_made=$wanted
        wanted=$score_made
        grid "$label: score" score "$model" --ids "$text_ids" $(json) "$@"
        score_made=$wanted
        wanted=$save_made
        grid "$label: run, save" run "$model" --ids 7,8,9 --gen $gen --save-state "$work/state" \
            $(json) "$@"
        save_made=$wanted
        [ -e "$work/state" ] || "$k3ring" run "$model" --ids 7,8,9 --gen $gen --quiet \
            --save-state "$work/state" > /dev/null
        wanted=$load_made
        grid "$label: run, load" run "$model" --load-state "$work/state" --gen $gen $(json) "$@"
        load_made=$wanted
    }
}

chats() { # MODEL NAME OPTIONS..
    model=$1
    label=$2
    shift 2
    printf '%b' "$talk" > "$work/input"
    wanted=$chat_made
    grid "$label: chat" chat "$model" --tokenizer tests/model/tiktoken.model --gen $gen --seed 1 \
        --effort off "$@"
    chat_made=$wanted
    : > "$work/input"
}

forget() {
    run_made=
    batch_made=
    score_made=
    save_made=
    load_made=
    chat_made=
    rm -f "$work/state"
}

batch_of() { # LINES
    for i in $(seq 1 "$1"); do
        printf '{"id": %d, "ids": [%d,2,3,4,5,6], "gen": %d}\n' "$i" "$i" $((i % 3 + 1))
    done > "$work/batch"
}

# ---- models ----

make_model() { # NAME OPTIONS..
    model_name=$1
    shift
    "$k3ring" synth "$work/$model_name" "$@" 2> /dev/null &&
        "$k3ring" pack "$work/$model_name" "$work/$model_name.pack" --quiet > /dev/null &&
        "$k3ring" verify "$work/$model_name" --write-checksums "$work/$model_name.sums" > /dev/null ||
        {
            echo "memory-grid: the model could not be made" >&2
            exit 1
        }
}

tiny() {
    make_model tiny
    batch_of 9
    steps="0 33 66"
    gen=24
    ids=3,141,59,26,53,58,97,93
    talk='There once was\nAnd then?\n'
    text_ids=$(seq -s , 1 150)
    for io in uring pread; do
        for threads in 1 2; do
            words="--io $io --threads $threads"
            # shellcheck disable=SC2086
            {
                runs "$work/tiny" "tiny, $io, $threads" "$work/tiny.sums" $words
                others "$work/tiny" "tiny, $io, $threads" "$work/tiny.sums" $words
                runs "$work/tiny.pack" "tiny pack, $io, $threads" pack $words
                others "$work/tiny.pack" "tiny pack, $io, $threads" pack $words
            }
        done
    done
    forget
    for io in uring pread; do
        chats tests/model "trained, $io, 1" --io $io --threads 1
        chats tests/model "trained, $io, 2" --io $io --threads 2
    done
}

real_width() {
    free=$(df -Pm "$work" | awk 'NR == 2 {print $4}')
    [ "$REAL_WIDTH" = 1 ] || {
        skip "real width" "REAL_WIDTH=$REAL_WIDTH"
        return
    }
    [ "$free" -ge 6000 ] || {
        skip "real width" "takes 6000 MiB of drive; $free are free"
        return
    }
    make_model real --preset k3 --layers 4 --experts 16 --vocab 4096 --sparse
    batch_of 2
    forget
    steps="0 20"
    gen=2
    ids=3,141,59,26 # at the floor every one of these is a pass over all weights
    talk='Hi\n'
    text_ids=$(seq -s , 1 8)
    runs "$work/real" "real width" "$work/real.sums"
    others "$work/real" "real width" "$work/real.sums" --io pread
    runs "$work/real.pack" "real width pack" pack --io pread
    others "$work/real.pack" "real width pack" pack
    chats "$work/real" "real width"
}

: > "$work/input"
inside=
[ -e "$root/memory.limit_in_bytes" ] ||
    skip "control groups" "no memory control group (v1) is mounted at $root"
forget
tiny
real_width
printf '%d budgets kept, %d not\n' $passed $failed
[ "$failed" = 0 ]
