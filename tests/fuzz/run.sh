#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every harness for FUZZ_SECONDS: `BUILD=... FUZZ_SECONDS=10 sh tests/fuzz/run.sh [NAME...]`.
# First inputs are files that the program writes, and those of corpus/NAME: what once found a fault.
# What is found stays in BUILD/fuzzing/found. Exit status 1 when a harness ended badly.
set -u
cd "$(dirname "$0")/../.." || exit 1

bin=$BUILD/fuzzing/fuzz
seeds=$BUILD/fuzzing/seeds
found=$BUILD/fuzzing/found
k3ring=$BUILD/k3ring

seed() { # NAME FILE: one more first input
    mkdir -p "$seeds/$1"
    cp "$2" "$seeds/$1/$(basename "$2")"
}

make_seeds() {
    rm -rf "$seeds"
    mkdir -p "$seeds/raw" "$found"
    model=$seeds/raw/model
    "$k3ring" synth "$model" >/dev/null 2>&1 || return 1
    "$k3ring" pack "$model" "$seeds/raw/pack" --quiet >/dev/null 2>&1
    "$k3ring" run "$model" --ids 3,141,59 --gen 4 --cache-policy lhr --heat "$seeds/raw/heat" \
        --trace "$seeds/raw/run.k3rt" --save-state "$seeds/raw/state" --quiet >/dev/null 2>&1
    seed config "$model/config.json"
    seed index "$model/model.safetensors.index.json"
    for shard in "$model"/*.safetensors; do
        head -c 20000 "$shard" >"$seeds/raw/shard"
    done
    seed shard "$seeds/raw/shard"
    seed manifest "$seeds/raw/pack/k3ring-pack.json"
    printf '\002' | cat - "$seeds/raw/heat" >"$seeds/raw/heat.in"
    seed heat "$seeds/raw/heat.in"
    seed trace "$seeds/raw/run.k3rt"
    seed trace tests/data/small.k3rt
    printf '{"id":"a","ids":[3,141,59],"gen":4}\n\n{"ids":[1],"stop":[2]}\n' >"$seeds/raw/in.jsonl"
    seed batch "$seeds/raw/in.jsonl"
    i=0
    while [ $i -lt 256 ]; do
        printf "\\$(printf %03o $i)" | base64 | tr '\n' ' '
        echo $i
        i=$((i + 1))
    done >"$seeds/raw/tiktoken.model"
    seed tokenizer "$seeds/raw/tiktoken.model"
    mkdir -p "$seeds/tiles"
    printf '\000' | cat "$seeds/raw/state" - >"$seeds/raw/state.in"
    seed state "$seeds/raw/state.in"
    printf 'rMODEL\n--ids\n3,141,59\n--ram=1.25G\n--temperature\n0.5\n--\n-x' >"$seeds/raw/words"
    seed arguments "$seeds/raw/words"
    printf '%s' '{"tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user",
        "content":"a"},{"role":"assistant","reasoning_content":"b","content":"c","tool_calls":[{"id":
        "1","type":"function","function":{"name":"f","arguments":"{\"x\":[1,null]}"}}]},{"role":
        "tool","tool_call_id":"1","content":"d"}]}' >"$seeds/raw/chat.json"
    seed chat "$seeds/raw/chat.json"
    rm -rf "$seeds/raw"
}

run_one() {
    name=$1
    mkdir -p "$seeds/$name" "$found/work/$name"
    corpus=tests/fuzz/corpus/$name
    [ -d "$corpus" ] || corpus=
    log=$found/$name.log
    # shellcheck disable=SC2086
    "$bin/$name" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=4096 -max_len=131072 \
        -artifact_prefix="$found/$name-" -print_final_stats=1 "$found/work/$name" "$seeds/$name" \
        $corpus >"$log" 2>&1
    status=$?
    tries=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ $status -eq 0 ]; then
        printf 'PASS %-10s %s tries\n' "$name" "${tries:-0}"
    else
        printf 'FAIL %-10s exit status %s\n' "$name" $status
        tail -40 "$log" | sed 's/^/    /'
        failed=1
    fi
}

failed=0
make_seeds || { echo "no first inputs: $k3ring made no model"; exit 1; }
if [ $# -eq 0 ]; then
    set -- $(ls "$bin")
fi
for harness in "$@"; do
    run_one "$harness"
done
exit $failed
