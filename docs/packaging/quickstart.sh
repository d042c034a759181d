#!/bin/sh
# The README's first command: install packages, build, make a small model, run it.
set -eu
cd "$(dirname "$0")/../.."
sh docs/packaging/packages.sh
make -j"$(nproc)"
[ -f build/tiny/config.json ] || build/k3ring synth build/tiny
printf 'k3ring run build/tiny --ids 3,141,59,26,53,58,97,93 --gen 16\n'
ids=$(build/k3ring run build/tiny --ids 3,141,59,26,53,58,97,93 --gen 16)
printf '%s\n' "$ids"
[ "$ids" = "170 126 66 6 37 136 98 66 243 207 99 72 180 212 11 114" ] || {
    echo "quickstart: these are not the tokens of the reference" >&2
    exit 1
}
