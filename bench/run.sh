#!/bin/sh
# make bench: kernels, the drive, the pipeline, chunks and identity on the 5-layer full-width model,
# which is made on first use (about 17 GB under $BUILD/bench/model5, or in $BENCH_MODEL, its pack
# beside the programs; delete them when done). BENCH_ARGS=--quick is the short form: fewer cases and
# repeats, each told by the program that leaves them out, on 4 layers of full width with few experts
# (7 GB under $BUILD/bench/model4). Tables on the terminal, JSON under $BUILD/bench; how long each
# took is told at the end.
# shellcheck disable=SC2086 # quick is empty or one word, shape is several
set -eu
bench=$BUILD/bench
quick=${BENCH_ARGS:-}
if [ -n "$quick" ]; then
    model=${BENCH_MODEL:-$bench/model4}
    shape="--layers 4 --experts 24 --vocab 8192"
else
    model=${BENCH_MODEL:-$bench/model5}
    shape="--layers 5 --experts 128 --vocab 32768"
fi
pack=$bench/$(basename "$model").pack
started=$(date +%s)
took=

# measure TITLE COMMAND..
measure() {
    title=$1
    shift
    echo "== $title"
    begun=$(date +%s)
    "$@"
    took="$took $title $(($(date +%s) - begun)),"
}

[ -f "$model/config.json" ] ||
    measure "making the model" "$BUILD/k3ring" synth "$model" --preset k3 $shape
measure kernels "$bench/kernel_bench" $quick --json "$bench/kernels.json"
measure "cache policies" "$bench/policy_bench" $quick --json "$bench/policy.json"
measure tasks "$bench/task_bench" $quick --json "$bench/task.json"
measure tokenizer "$bench/tokenizer_bench" $quick --json "$bench/tokenizer.json"
measure drive "$bench/io_bench" $quick --json "$bench/io.json" \
    "$model"/model-00002-of-*.safetensors "$model"/model-00003-of-*.safetensors
measure pipeline "$bench/pipeline_bench" $quick --json "$bench/pipeline.json" "$model"
measure "first token" "$bench/first_bench" $quick --json "$bench/first.json" "$model"
measure chunks "$bench/chunk_bench" $quick --json "$bench/chunk.json" "$model"
measure "tokens per pass" "$bench/tokens_bench" $quick --json "$bench/tokens.json" "$model"
measure pins "$bench/pin_bench" $quick --json "$bench/pins.json" "$model"
[ -f "$pack/k3ring-pack.json" ] ||
    measure "making the pack" "$BUILD/k3ring" pack "$model" "$pack" --trunk-only
measure "packed against not" "$bench/pack_bench" $quick --json "$bench/pack.json" "$model" "$pack"
measure "identity on the wide model" "$bench/identity_bench" $quick \
    --json "$bench/identity.json" "$model"
echo "== seconds:$took in all $(($(date +%s) - started))"
