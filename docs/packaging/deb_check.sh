#!/bin/sh
# `deb_check.sh FILE.deb`, as root: installs the package, uses it as a new user does, removes it and
# looks for what it left. Ends with 0 when all of that is well.
set -eu
deb=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    printf 'deb_check: %s\n' "$*" >&2
    exit 1
}

step() {
    printf 'deb_check: %s\n' "$*"
}

[ "$(id -u)" = 0 ] || fail "must be root to install a package"
! command -v k3ring > /dev/null || fail "there is a k3ring on the path already: $(command -v k3ring)"

if command -v lintian > /dev/null; then
    step "lintian"
    lintian --allow-root --fail-on error,warning "$deb" || fail "lintian has something to say"
else
    step "skip: lintian is not installed"
fi

step "what is in it"
dpkg-deb --fsys-tarfile "$deb" | tar -t > "$work/list"
for path in usr/bin/k3ring usr/share/man/man1/k3ring.1.gz usr/share/man/man1/k3ring-run.1.gz \
    usr/share/bash-completion/completions/k3ring usr/share/zsh/vendor-completions/_k3ring \
    usr/share/doc/k3ring/copyright usr/share/doc/k3ring/changelog.gz; do
    grep -qx "./$path" "$work/list" || fail "$path is not in the package"
done

step "install"
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$deb" > "$work/log" 2>&1 ||
    fail "it cannot be installed: $(cat "$work/log")"
version=$(dpkg-query -W -f='${Version}' k3ring)
[ "$(k3ring --version)" = "k3ring $version" ] || fail "--version is not that of the package"
k3ring help | grep -q '^usage:' || fail "help"
k3ring help run | grep -q -- --io-depth || fail "help run"

step "a first run, as nobody"
mkdir "$work/home"
chown 65534:65534 "$work" "$work/home"
ids=$(cd "$work/home" && setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '
    k3ring synth tiny && k3ring run tiny --ids 3,141,59,26,53,58,97,93 --gen 4 --ram 64M --quiet')
[ "$ids" = "170 126 66 6" ] || fail "the run printed: $ids"

step "remove"
dpkg -L k3ring > "$work/installed"
dpkg --purge k3ring > "$work/log" 2>&1 || fail "it cannot be removed: $(cat "$work/log")"
while read -r path; do
    case $path in
    */k3ring*) [ ! -e "$path" ] || fail "$path is still there" ;;
    *) [ -d "$path" ] || [ ! -e "$path" ] || fail "$path is still there" ;;
    esac
done < "$work/installed"
step "all good"
