#!/bin/sh
# Installs into a folder that has files of others, uses what is there, uninstalls, and wants the folder
# as it was.
set -eu
cd "$(dirname "$0")/../.."
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

fail() {
    printf 'install_check: %s\n' "$*" >&2
    exit 1
}

mkdir -p "$stage/usr/share/man/man1" "$stage/usr/bin"
echo other > "$stage/usr/share/man/man1/k3ringlike.1"
echo other > "$stage/usr/bin/k3"
(cd "$stage" && find . -type f | sort) > "$stage.before"
make -s install DESTDIR="$stage" PREFIX=/usr
"$stage/usr/bin/k3ring" --version
for command in $("$stage/usr/bin/k3ring" --help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -v '^k3ring$'); do
    "$stage/usr/bin/k3ring" help "$command" > /dev/null || fail "help $command"
    [ -s "$stage/usr/share/man/man1/k3ring-$command.1" ] || fail "no page of $command"
done
for file in bash-completion/completions/k3ring zsh/site-functions/_k3ring doc/k3ring/LICENSE \
    doc/k3ring/INSTALL.md; do
    [ -s "$stage/usr/share/$file" ] || fail "no $file"
done
make -s uninstall DESTDIR="$stage" PREFIX=/usr
(cd "$stage" && find . -type f | sort) > "$stage.after"
diff "$stage.before" "$stage.after" || fail "uninstall left or took what it should not"
[ ! -e "$stage/usr/share/doc/k3ring" ] || fail "an empty folder is left"
rm -f "$stage.before" "$stage.after"
echo "install_check: all good"
