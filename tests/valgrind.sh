#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Commands under valgrind's memcheck on the tiny model: `make valgrind`. No error and no block that
# is definitely lost. Reads go through pread: this valgrind (3.19) lets no other thread run while one
# waits in io_uring_enter. The ring itself is seen by io_test, which waits for nobody.
#   ONLY=WORD   cases with this word in their name
set -u

BUILD=${BUILD:-build/valgrind}
ONLY=${ONLY:-}
k3ring=$BUILD/k3ring
passed=0
failed=0

command -v valgrind > /dev/null || {
    echo "valgrind: not installed; apt-get install valgrind" >&2
    exit 77
}
if ldd "$k3ring" | grep -q jemalloc; then
    echo "valgrind: build with ALLOCATOR=libc; it cannot look into jemalloc" >&2
    exit 1
fi
work=$(mktemp -d /tmp/k3ring-valgrind-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

check() { # NAME PROGRAM..: it must end with status 0
    check_status 0 "$@"
}

check_status() { # STATUS NAME PROGRAM..
    wants=$1
    name=$2
    shift 2
    case $name in
    *"$ONLY"*) ;;
    *) return ;;
    esac
    begun=$(date +%s)
    valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
        --show-leak-kinds=definite --log-file="$work/log" "$@" \
        > "$work/out" 2> "$work/err" < "$work/in"
    status=$?
    took=$(($(date +%s) - begun))
    if [ "$status" = "$wants" ] && [ ! -s "$work/log" ]; then
        echo "ok  $name, $took s"
        passed=$((passed + 1))
    else
        echo "BAD $name, $took s: exit status $status"
        sed 's/^/    /' "$work/log"
        tail -n 5 "$work/err" | sed 's/^/    ! /'
        failed=$((failed + 1))
    fi
}

model=$work/tiny
ids="--ids 3,141,59,26,53,58,97,93"
read="--io pread --threads 1"
: > "$work/in"
[ -z "$ONLY" ] || "$k3ring" synth "$model" 2> /dev/null
# shellcheck disable=SC2086
{
    [ -n "$ONLY" ] || check "synth" "$k3ring" synth "$model"
    "$k3ring" verify "$model" --write-checksums "$work/sums" > /dev/null
    check "plan" "$k3ring" plan "$model" --json
    check "run, all streamed" "$k3ring" run "$model" $ids --gen 3 --pin 0 --expert-slots 0 $read \
        --json "$work/1.json" --save-state "$work/state"
    "$k3ring" run "$model" $ids --gen 3 --quiet --save-state "$work/state" > /dev/null
    check "run, from a state, two threads" "$k3ring" run "$model" --load-state "$work/state" \
        --gen 3 --io pread --threads 2 --json "$work/2.json"
    check "run, drafts, checked, traced" "$k3ring" run "$model" $ids --gen 6 --chunk 3 $read \
        --draft ngram-fixed --draft-tokens 3 --paranoid "$work/sums" --ram 18M \
        --trace "$work/trace" --trace-scores
    check "run, by chance" "$k3ring" run "$model" $ids --gen 3 $read --temperature 1 --top-p 0.9 \
        --repetition-penalty 1.1 --seed 5 --logprobs 3 --json "$work/2.json"
    check_status 2 "run, a token that is none" "$k3ring" run "$model" --ids 99999 $read
    check_status 4 "run, too little RAM" "$k3ring" run "$model" $ids --ram 1M $read
    "$k3ring" run "$model" $ids --gen 6 --quiet --trace "$work/trace" > /dev/null
    check "replay" "$k3ring" replay "$work/trace"
    check "replay on a drive, io_uring" "$k3ring" replay "$work/trace" --device "$model" --pin 0 \
        --expert-slots 0 --io uring --ram 18M
    check "doctor" "$k3ring" doctor "$model" --json "$work/doctor.json"
    check "bench" "$k3ring" bench "$model" --tokens 1 --limit-time 0 $read
    check "pack" "$k3ring" pack "$model" "$work/pack"
    [ -e "$work/pack" ] || "$k3ring" pack "$model" "$work/pack" --quiet > /dev/null
    check "run of a pack" "$k3ring" run "$work/pack" $ids --gen 3 $read --paranoid pack --ram 18M
    printf '{"ids": [1,2,3], "gen": 2}\n{"ids": [4,5], "gen": 3}\n{"ids": [6]}\n' > "$work/batch"
    check "batch" "$k3ring" batch "$model" "$work/batch" --out "$work/results" --gen 2 \
        --sequences 2 $read
    check "score" "$k3ring" score "$model" --ids 1,2,3,4,5,6,7 $read --json "$work/3.json"
    check "verify" "$k3ring" verify "$model" --pages "$work/sums"
    echo "There once was" > "$work/in"
    check "tokenize" "$k3ring" tokenize tests/model
    check "chat" "$k3ring" chat tests/model --effort off --gen 3 --seed 1 $read
    : > "$work/in"
}
printf '%d clean, %d not\n' $passed $failed
[ "$failed" = 0 ]
