#!/bin/sh
# The README's first command: install packages, build, run the small trained model.
set -eu
cd "$(dirname "$0")/../.."
sh docs/packaging/packages.sh
make -j"$(nproc)"
printf "k3ring run tests/model --prompt 'There once was' --gen 200 --stop 1281\n"
build/k3ring run tests/model --prompt 'There once was' --gen 200 --stop 1281 > build/story.txt
cat build/story.txt
cmp build/story.txt tests/model/story.txt || {
    echo "quickstart: this is not the story of the reference, tests/model/story.txt" >&2
    exit 1
}
