#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make test-oracle: installs the reference tokenizer below $BUILD and compares k3ring with it, on
# some 65 MB of text or, with QUICK=1, on a tenth of that. Where it cannot be had, says why and
# passes, but under CI=true fails.
set -u
cd "$(dirname "$0")/../.." || exit 1
home=$BUILD/oracle

missing() {
    echo "skip: test-oracle: $*"
    [ "${CI:-}" = true ] && exit 1
    exit 0
}

command -v node > /dev/null || missing "there is no node (package nodejs)"
command -v npm > /dev/null || missing "there is no npm (package npm)"
mkdir -p "$home" || exit 1
if ! cmp -s tests/oracle/package.json "$home/installed"; then
    rm -rf "$home/node_modules"
    cp tests/oracle/package.json "$home/package.json" || exit 1
    (cd "$home" && timeout 180 npm install --no-package-lock --no-audit --no-fund \
        --loglevel=error) > "$home/npm.log" 2>&1 ||
        missing "npm cannot install tiktoken: $(grep -m 1 -E 'npm (error|ERR!)' "$home/npm.log")"
    cp "$home/package.json" "$home/installed" || exit 1
fi
status=0
for script in corpus.cjs slices.cjs compare.cjs; do
    cp "tests/oracle/$script" "$home/$script" || exit 1
done
node "$home/compare.cjs" "$BUILD/k3ring" "$home" "${QUICK:-}" || status=1
rm -f "$home/o200k.model" "$home"/text.* "$home"/*.cjs
exit $status
