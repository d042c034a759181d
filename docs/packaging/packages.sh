#!/bin/sh
# Installs what k3ring needs on Debian 12, Ubuntu 24.04 or later.
#   packages.sh          to build and run
#   packages.sh test     also what the tests and CI use
#   packages.sh oracle   also what make test-oracle uses, unless node and npm are there already
#   packages.sh analyze  also what make analyze uses
#   packages.sh fuzz     also what make fuzz uses
#   packages.sh faults   also what make real-faults, memory-grid and valgrind use
#   packages.sh deb      also what make deb uses, and what its check does
set -eu
build="gcc make pkg-config libc6-dev liburing-dev libjemalloc-dev libcjson-dev nettle-dev libxxhash-dev
       libpcre2-dev libedit-dev"
tests="clang check libsubunit-dev libsimde-dev locales gnuplot-nox fio mandoc zsh"
analyze="clang clang-tidy cppcheck"
fuzz="$tests libclang-rt-dev" # libFuzzer is no part of clang itself
deb="dpkg-dev binutils lintian"
faults="fuse3 libfuse3-dev xfsprogs btrfs-progs e2fsprogs util-linux mount valgrind"
wanted=$build
case ${1:-} in
test) wanted="$build $tests" ;;
analyze) wanted="$build $analyze" ;;
fuzz) wanted="$build $fuzz" ;;
deb) wanted="$build $deb" ;;
faults) wanted="$build $faults" ;;
oracle) command -v npm > /dev/null && command -v node > /dev/null || wanted="$build nodejs npm" ;;
esac
missing=
for package in $wanted; do
    dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
