#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program on file systems, limits and kernels as they really are: `make real-faults`, as root.
# Each case prints what was tried and what the program said, and is checked: the right tokens, or
# one line of error with the words it must have. Cases this machine cannot try are named with the
# reason. Nothing outside a folder of its own, a loop device and a control group is touched, except
# the sysctl kernel.io_uring_disabled, which is put back.
set -u

BUILD=${BUILD:-build}
ids="3,141,59,26,53,58,97,93"
tokens="170 126 66 6 37 136 98 66 243 207 99 72 180 212 11 114"
passed=0
failed=0
skipped=0

[ "$(id -u)" = 0 ] || {
    echo "real-faults: mounting, limits and control groups need root" >&2
    exit 77
}

work=$(mktemp -d /tmp/k3ring-real-faults-XXXXXX) || exit 1
chmod 755 "$work"
mkdir "$work/mnt" "$work/out"
bin=$work/bin
mkdir "$bin"
cp "$BUILD/k3ring" "$bin/"
cp "$BUILD"/tests/tools/* "$bin/" 2> /dev/null
k3ring=$bin/k3ring
model=$work/model
loops=
groups=
fuse=
sysctl=/proc/sys/kernel/io_uring_disabled
sysctl_was=$(cat "$sysctl" 2> /dev/null)

unmount() {
    umount "$work/mnt" 2> /dev/null || umount -l "$work/mnt" 2> /dev/null
    [ -z "$fuse" ] || wait "$fuse" 2> /dev/null
    fuse=
    for loop in $loops; do
        losetup -d "$loop" 2> /dev/null
    done
    loops=
}

# shellcheck disable=SC2329
clean_up() {
    [ -z "$sysctl_was" ] || echo "$sysctl_was" > "$sysctl"
    unmount
    for group in $groups; do
        rmdir "$group" 2> /dev/null
    done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

skip() {
    printf '\n== %s\n   not tried: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
}

verdict() { # RIGHT WORDS: 1 when it was right
    if [ "$1" = 1 ]; then
        echo "   ok: $2"
        passed=$((passed + 1))
    else
        echo "   FAILED: wanted $2"
        failed=$((failed + 1))
    fi
}

# What a case ran, and what was said on the way; progress is left out.
show() {
    printf '   $ %s\n' "$command"
    [ ! -s "$work/out/out" ] || sed 's/^/   | /' "$work/out/out"
    sed 's/^/   ! /' "$work/out/err"
    printf '   exit %s after %s s\n' "$status" $(($(date +%s) - begun))
}

# NAME COMMAND..: runs it with a limit of time.
attempt() {
    printf '\n== %s\n' "$1"
    shift
    command=$(echo "$*" | sed "s,$bin/,,g; s,$work,DIR,g")
    begun=$(date +%s)
    timeout -k 5 120 "$@" > "$work/out/out" 2> "$work/out/err" < /dev/null
    status=$?
    show
}

# WORDS: the tokens came, and the talk has these words (a basic regular expression).
wants_tokens() {
    right=0
    [ "$status" = 0 ] && [ "$(cat "$work/out/out")" = "$tokens" ] &&
        grep -q -e "$1" "$work/out/err" && right=1
    verdict $right "the tokens, and talk with '$1'"
}

# STATUS WORDS: one line of error with these words, last; no wrong token before it.
wants_error() {
    right=0
    said=$(cat "$work/out/out")
    case "$tokens" in
    "$said"*) [ "$status" = "$1" ] && tail -n 1 "$work/out/err" | grep -q -e "$2" && right=1 ;;
    esac
    verdict $right "exit $1 and a last line with '$2'"
}

# A run of the model in FOLDER, as words. Weights are streamed, so that every token reads.
words() {
    echo "$k3ring run $1 --ids $ids --gen 16 --pin 0 --expert-slots 0"
}

loop_of() { # IMAGE [OPTIONS]: a loop device over it
    image=$1
    shift
    loop=$(losetup -f --show "$@" "$image" 2> "$work/out/losetup") || return 1
    loops="$loops $loop"
}

image() { # SIZE
    rm -f "$work/image"
    truncate -s "$1" "$work/image"
}

# FILESYSTEM SIZE MKFS..: a loop image with the model on it, mounted.
mount_image() {
    image "$2"
    loop_of "$work/image" || return 1
    kind=$1
    shift 2
    "$@" "$loop" > "$work/out/mkfs" 2>&1 && mount -t "$kind" "$loop" "$work/mnt" &&
        cp -r "$model" "$work/mnt/model"
}

# ---- file systems ----

on_file_system() { # NAME SIZE MKFS..
    name=$1
    command -v "$3" > /dev/null || {
        skip "a file on $name" "$3 is not installed (docs/packaging/packages.sh faults)"
        return
    }
    if mount_image "$@"; then
        # shellcheck disable=SC2046
        attempt "a file on $name" $(words "$work/mnt/model")
        wants_tokens "direct=3/3.*"
    else
        skip "a file on $name" "$(tail -n 1 "$work/out/mkfs" "$work/out/losetup" 2> /dev/null)"
    fi
    unmount
}

file_systems() {
    on_file_system ext4 96M mkfs.ext4 -q
    on_file_system xfs 512M mkfs.xfs -q
    on_file_system btrfs 512M mkfs.btrfs -q

    mount -t tmpfs none "$work/mnt" && cp -r "$model" "$work/mnt/model"
    # shellcheck disable=SC2046
    attempt "a file on tmpfs" $(words "$work/mnt/model")
    wants_tokens "files on tmpfs"
    unmount

    mkdir -p "$work/upper" "$work/scratch"
    if mount -t overlay overlay -o \
        "lowerdir=$work/lower,upperdir=$work/upper,workdir=$work/scratch" "$work/mnt" 2> /dev/null
    then
        # shellcheck disable=SC2046
        attempt "a file on overlayfs" $(words "$work/mnt/model")
        wants_tokens "direct="
        unmount
    else
        skip "a file on overlayfs" "this kernel mounts none"
    fi
}

# ---- drives ----

big_sectors() {
    image 96M
    if loop_of "$work/image" -b 4096 --direct-io=on && mkfs.ext4 -q -b 4096 "$loop" &&
        mount "$loop" "$work/mnt" && cp -r "$model" "$work/mnt/model"; then
        # shellcheck disable=SC2046
        attempt "a drive with sectors of 4096 bytes" $(words "$work/mnt/model")
        wants_tokens "direct=3/3"
    else
        skip "a drive with sectors of 4096 bytes" "no such loop device: $(cat "$work/out/losetup")"
    fi
    unmount
}

# The drive ends in the middle of the model: sectors behind that are gone.
lost_sectors() {
    if mount_image ext4 96M mkfs.ext4 -q -O ^has_journal; then
        sync
        shard=$work/mnt/model/model-00002-of-000003.safetensors
        at=$(filefrag -b4096 -v "$shard" | awk '$1 == "0:" {sub(/\.\..*/, "", $4); print $4}')
        truncate -s $(((at + 40) * 4096)) "$work/image"
        # shellcheck disable=SC2046
        attempt "a drive that loses sectors" $(words "$work/mnt/model")
        wants_error 1 "model-00002-of-000003.safetensors.*offset.*Input/output error.*check the drive"
    else
        skip "a drive that loses sectors" "no loop device with ext4"
    fi
    unmount
}

throttled() {
    cgroup=/sys/fs/cgroup/blkio
    [ -e "$cgroup/blkio.throttle.read_bps_device" ] || {
        skip "a drive throttled to 4 MB/s" "no blkio control group (v1) is mounted"
        return
    }
    if mount_image ext4 96M mkfs.ext4 -q; then
        group=$cgroup/k3ring-real-faults
        mkdir -p "$group"
        groups="$groups $group"
        echo "$(lsblk -ndo MAJ:MIN "$loop" | tr -d ' ') 4000000" \
            > "$group/blkio.throttle.read_bps_device"
        # shellcheck disable=SC2046
        attempt "a drive throttled to 4 MB/s" sh -c \
            "echo \$\$ > $group/cgroup.procs; exec \"\$@\"" sh $(words "$work/mnt/model")
        wants_tokens "direct=3/3"
    else
        skip "a drive throttled to 4 MB/s" "no loop device with ext4"
    fi
    unmount
}

# ---- FUSE ----

on_fuse() { # NAME SETTINGS.. [-- OPTIONS..]: leaves it mounted
    name=$1
    shift
    settings=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    [ $# = 0 ] || shift
    # shellcheck disable=SC2086
    "$bin/faultfs" "$work/mnt" -f "$model" $settings > "$work/out/fuse" 2>&1 &
    fuse=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -e "$work/mnt/config.json" ] && break
        sleep 0.2
    done
    # shellcheck disable=SC2046
    attempt "$name" $(words "$work/mnt") "$@"
}

fuse_all() {
    [ -x "$bin/faultfs" ] && [ -e /dev/fuse ] || {
        skip "FUSE" "no /dev/fuse, or libfuse3-dev was not there when the tests were built"
        return
    }
    shard=model-00002-of-000003.safetensors
    on_fuse "FUSE in order"
    wants_tokens "direct=3/3"
    unmount
    on_fuse "FUSE that refuses O_DIRECT" direct=0
    wants_tokens "direct=0/3"
    unmount
    on_fuse "FUSE with a place that cannot be read" file=$shard error=5 at=1000000
    wants_error 1 "$shard.*offset.*Input/output error.*check the drive"
    unmount
    on_fuse "FUSE with a place that can be read at the second try" file=$shard error=5 \
        at=1000000 times=1
    wants_tokens "1 reads repeated"
    unmount
    on_fuse "FUSE that is interrupted now and then" file=$shard error=4 size=1000000000 times=12
    wants_tokens "reads repeated"
    unmount
    on_fuse "FUSE that is always busy, pread" file=$shard error=11 at=1000000 -- --io pread
    wants_error 1 "$shard.*offset.*run again when the drive is less busy"
    unmount
    on_fuse "FUSE with a stale handle" file=$shard error=116 at=1000000
    wants_error 1 "$shard.*offset.*Stale file handle.*connected"
    unmount
    on_fuse "FUSE that brings 8 KiB at a time" short=8192
    wants_tokens "read on after they came short"
    unmount
    on_fuse "FUSE a hundred times slower" delay_ms=20
    wants_tokens "direct=3/3"
    unmount
    on_fuse "FUSE with a file that cannot be opened" file=$shard open_error=5
    wants_error 1 "$shard.*Input/output error"
    unmount
}

# ---- limits and users ----

limits() {
    # shellcheck disable=SC2046
    attempt "another user than root" setpriv --reuid=65534 --regid=65534 --clear-groups \
        $(words "$model")
    wants_tokens "io=io_uring"
    for kib in 64 0; do
        # shellcheck disable=SC2046
        attempt "at most $kib KiB of locked memory" setpriv --reuid=65534 --regid=65534 \
            --clear-groups prlimit --memlock=$((kib * 1024)):$((kib * 1024)) $(words "$model")
        wants_tokens "registered buffers off\|locked memory"
    done
    for files in 32 12; do
        # shellcheck disable=SC2046
        attempt "at most $files open files" prlimit --nofile=$files:$files $(words "$model")
        wants_tokens "direct="
    done
    # shellcheck disable=SC2046
    attempt "at most 7 open files" prlimit --nofile=7:7 $(words "$model")
    wants_tokens "Too many open files.*pread threads instead"
    # shellcheck disable=SC2046
    attempt "at most 5 open files" prlimit --nofile=5:5 $(words "$model")
    wants_error 1 "Too many open files.*ulimit -n"
    # shellcheck disable=SC2046
    attempt "at most 120 MiB of address space" prlimit --as=125829120:125829120 $(words "$model") \
        --ram 64M --threads 1
    wants_either 1 "ulimit\|memory"
    chmod 600 "$model/model-00002-of-000003.safetensors"
    # shellcheck disable=SC2046
    attempt "a shard this user may not read" setpriv --reuid=65534 --regid=65534 --clear-groups \
        $(words "$model")
    wants_error 3 "model-00002-of-000003.safetensors.*Permission denied.*read it"
    chmod 644 "$model/model-00002-of-000003.safetensors"
}

# STATUS WORDS: the tokens, or an error with these words.
wants_either() {
    if [ "$status" = 0 ]; then
        wants_tokens ""
    else
        wants_error "$1" "$2"
    fi
}

small_group() {
    cgroup=/sys/fs/cgroup/memory
    [ -e "$cgroup/memory.limit_in_bytes" ] || {
        skip "a memory control group smaller than the budget" "none (v1) is mounted"
        return
    }
    group=$cgroup/k3ring-real-faults
    mkdir -p "$group"
    groups="$groups $group"
    echo 67108864 > "$group/memory.limit_in_bytes"
    join="echo \$\$ > $group/cgroup.procs; exec \"\$@\""
    # shellcheck disable=SC2046
    attempt "64 MiB of control group, --ram auto" sh -c "$join" sh $(words "$model")
    wants_tokens "peak"
    echo 16777216 > "$group/memory.limit_in_bytes"
    # shellcheck disable=SC2046
    attempt "16 MiB of control group, a context that takes more" sh -c "$join" sh \
        $(words "$model") --ram 256M --context 4096 --chunk 8
    wants_error 4 "the memory cgroup (v1)"
}

# ---- kernels that refuse ----

refused() {
    [ -x "$bin/refuse" ] || {
        skip "seccomp" "tests/tools/refuse was not built"
        return
    }
    for error in ENOSYS EPERM ENOMEM; do
        # shellcheck disable=SC2046
        attempt "seccomp: io_uring_setup says $error" "$bin/refuse" io_uring_setup $error \
            $(words "$model")
        wants_tokens "io_uring refused.*pread threads instead"
    done
    for call in io_uring_enter io_uring_register; do
        # shellcheck disable=SC2046
        attempt "seccomp: $call says EPERM" "$bin/refuse" $call EPERM $(words "$model")
        wants_tokens "io_uring refused: .*seccomp=PROFILE.*pread threads instead"
    done
    for call in statx madvise prlimit64 sched_getaffinity clone3; do
        error=EPERM
        [ "$call" != clone3 ] || error=ENOSYS
        # shellcheck disable=SC2046
        attempt "seccomp: $call says $error" "$bin/refuse" $call $error $(words "$model")
        wants_tokens "direct=3/3"
    done
    # shellcheck disable=SC2046
    attempt "seccomp: eventfd2 says EPERM" "$bin/refuse" eventfd2 EPERM $(words "$model")
    wants_error 1 "eventfd.*Operation not permitted.*seccomp"
}

disabled() {
    [ -n "$sysctl_was" ] || {
        skip "kernel.io_uring_disabled" "this kernel has no such sysctl"
        return
    }
    echo 1 > "$sysctl"
    # shellcheck disable=SC2046
    attempt "kernel.io_uring_disabled=1, another user than root" setpriv --reuid=65534 \
        --regid=65534 --clear-groups $(words "$model")
    echo 2 > "$sysctl"
    wants_tokens "kernel.io_uring_disabled=1.*pread threads instead"
    # shellcheck disable=SC2046
    attempt "kernel.io_uring_disabled=2, root" $(words "$model")
    echo "$sysctl_was" > "$sysctl"
    wants_tokens "kernel.io_uring_disabled=2.*pread threads instead"
}

"$k3ring" synth "$model" > /dev/null 2>&1 || {
    echo "real-faults: the small model could not be made" >&2
    exit 1
}
chmod -R a+rX "$model"
mkdir -p "$work/lower"
cp -r "$model" "$work/lower/model"
echo "k3ring on $(uname -sr), $(stat -f -c %T "$work"); DIR is $work"
file_systems
big_sectors
lost_sectors
throttled
fuse_all
limits
small_group
refused
disabled
printf '\n%d as they should be, %d failed, %d not tried\n' $passed $failed $skipped
[ "$failed" = 0 ]
