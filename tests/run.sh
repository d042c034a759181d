#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs test programs one after the other: `BUILD=... CC=... sh tests/run.sh TEST...`.
# A line each with verdict and seconds. What a program said is shown when it failed; its lines that
# begin with "note:" or "skip:" always are. Exit status 77 of a program means that it was skipped.
set -u
export BUILD CC

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

passed=0
failed=0
skipped=0
begun=$(date +%s)

for test in "$@"; do
    start=$(date +%s)
    "$test" >"$log" 2>&1 </dev/null
    status=$?
    case $status in
    0) verdict=PASS passed=$((passed + 1)) ;;
    77) verdict=SKIP skipped=$((skipped + 1)) ;;
    *) verdict=FAIL failed=$((failed + 1)) ;;
    esac
    printf '%s %4d s  %s\n' "$verdict" $(($(date +%s) - start)) "$test"
    if [ "$verdict" = FAIL ]; then
        sed 's/^/    /' "$log"
        echo "    exit status $status"
    else
        grep -E '^(note|skip):' "$log" | sed 's/^/    /'
    fi
done

total="$(($(date +%s) - begun)) s"
echo "$passed passed, $failed failed, $skipped skipped in $total"
[ "$failed" -eq 0 ]
