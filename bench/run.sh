#!/bin/sh
# make bench: kernels, the drive, the pipeline, chunks and identity on the 5-layer full-width model,
# which is made on first use (about 17 GB under $BUILD/bench/model5, or in $BENCH_MODEL, its pack
# beside the programs; delete them when done). BENCH_ARGS=--quick is the short form: fewer cases, once
# each, on 4 layers of full width (8 GB under $BUILD/bench/model4). Tables on the terminal, JSON under
# $BUILD/bench.
# shellcheck disable=SC2086 # quick is empty or one word, shape is several
set -eu
bench=$BUILD/bench
quick=${BENCH_ARGS:-}
if [ -n "$quick" ]; then
    model=${BENCH_MODEL:-$bench/model4}
    shape="--layers 4 --experts 48 --vocab 8192"
else
    model=${BENCH_MODEL:-$bench/model5}
    shape="--layers 5 --experts 128 --vocab 32768"
fi
pack=$bench/$(basename "$model").pack
[ -f "$model/config.json" ] || "$BUILD/k3ring" synth "$model" --preset k3 $shape
echo "== kernels"
"$bench/kernel_bench" $quick --json "$bench/kernels.json"
echo "== cache policies"
"$bench/policy_bench" $quick --json "$bench/policy.json"
echo "== tasks"
"$bench/task_bench" $quick --json "$bench/task.json"
echo "== tokenizer"
"$bench/tokenizer_bench" $quick --json "$bench/tokenizer.json"
echo "== drive"
"$bench/io_bench" $quick --json "$bench/io.json" \
    "$model"/model-00002-of-*.safetensors "$model"/model-00003-of-*.safetensors
echo "== pipeline"
"$bench/pipeline_bench" $quick --json "$bench/pipeline.json" "$model"
echo "== first token"
"$bench/first_bench" $quick --json "$bench/first.json" "$model"
echo "== chunks"
"$bench/chunk_bench" $quick --json "$bench/chunk.json" "$model"
echo "== tokens per pass"
"$bench/tokens_bench" $quick --json "$bench/tokens.json" "$model"
echo "== pins"
"$bench/pin_bench" $quick --json "$bench/pins.json" "$model"
echo "== packed against not"
[ -f "$pack/k3ring-pack.json" ] || "$BUILD/k3ring" pack "$model" "$pack" --trunk-only
"$bench/pack_bench" $quick --json "$bench/pack.json" "$model" "$pack"
echo "== identity on the wide model"
"$bench/identity_bench" $quick "$model"
