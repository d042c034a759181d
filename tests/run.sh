#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs test programs: `BUILD=... CC=... sh tests/run.sh TEST...`, as many at a time as there are
# processors, or TEST_JOBS.
# A line each with verdict and seconds. What a program said is shown when it failed; its lines that
# begin with "note:" or "skip:" always are. Exit status 77 of a program means that it was skipped.
set -u

# One program; its lines appear together, whatever else is running.
run_one() {
    log=$(mktemp "$results/log.XXXXXX") || exit 1
    start=$(date +%s)
    "$1" >"$log" 2>&1 </dev/null
    status=$?
    case $status in
    0) verdict=PASS ;;
    77) verdict=SKIP ;;
    *) verdict=FAIL ;;
    esac
    {
        printf '%s %4d s  %s\n' "$verdict" $(($(date +%s) - start)) "$1"
        if [ "$verdict" = FAIL ]; then
            sed 's/^/    /' "$log"
            echo "    exit status $status"
        else
            grep -E '^(note|skip):' "$log" | sed 's/^/    /'
        fi
    } >"$log.text"
    cat "$log.text"
    echo "$verdict" >"$log.verdict"
}

if [ "${1-}" = --one ]; then
    results=$TEST_RESULTS
    run_one "$2"
    exit 0
fi

export BUILD CC
TEST_RESULTS=$(mktemp -d) || exit 1
export TEST_RESULTS
trap 'rm -rf "$TEST_RESULTS"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

begun=$(date +%s)
printf '%s\n' "$@" | xargs -P "${TEST_JOBS:-$(nproc)}" -n 1 sh "$0" --one

count() {
    cat "$TEST_RESULTS"/*.verdict 2>/dev/null | grep -c "$1"
}
passed=$(count PASS)
failed=$(count FAIL)
skipped=$(count SKIP)
echo "$passed passed, $failed failed, $skipped skipped in $(($(date +%s) - begun)) s"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -eq $# ]
