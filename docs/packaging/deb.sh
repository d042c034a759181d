#!/bin/sh
# Makes build/k3ring_VERSION_ARCH.deb: what `make install` puts in its place, as a package. Called by
# `make deb`, which builds first. MAINTAINER="Name <address>" says who answers for it.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
maintainer=${MAINTAINER:-The authors of k3ring <k3ring@k3ring.example>} # of nobody's domain
version=$("$build/pages" version)
day=$("$build/pages" day)
arch=$(dpkg --print-architecture)
work=$build/deb
root=$work/root
doc=$root/usr/share/doc/k3ring
umask 022

rm -rf "$work"
mkdir -p "$root/DEBIAN" "$work/debian"
"${MAKE:-make}" --no-print-directory install BUILD="$build" DESTDIR="$root" PREFIX=/usr \
    ZSH_TAB=/usr/share/zsh/vendor-completions > /dev/null
strip --strip-unneeded --remove-section=.comment "$root/usr/bin/k3ring"

# What policy wants: the licence by reference, a changelog, the manual compressed the same every time,
# and nothing of how to install what is installed.
rm "$doc/LICENSE" "$doc/INSTALL.md"
cat > "$doc/copyright" << END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: k3ring

Files: *
Copyright: ${day%%-*} the authors of k3ring
License: Apache-2.0
 On Debian systems the text of this license is in
 /usr/share/common-licenses/Apache-2.0.
END
{
    printf 'k3ring (%s) unstable; urgency=medium\n\n  * Version %s.\n\n' "$version" "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -d "$day" '+%a, %d %b %Y 00:00:00 +0000')"
} | gzip -9n > "$doc/changelog.gz"
gzip -9n "$root"/usr/share/man/man1/*.1

printf 'Source: k3ring\n\nPackage: k3ring\nArchitecture: any\n' > "$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -eroot/usr/bin/k3ring | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || {
    echo "deb.sh: dpkg-shlibdeps named no library" >&2
    exit 1
}
cat > "$root/DEBIAN/control" << END
Package: k3ring
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Depends: $depends
Suggests: fio, gnuplot-nox
Section: science
Priority: optional
Description: run Kimi K3 from an NVMe drive, and measure drives by it
 Runs a mixture-of-experts model of 2.78 trillion parameters from the drive
 its checkpoint lies on, in as little as 1 GiB of memory, with the same output
 bits whatever the memory, threads or instruction set.
 .
 The same program is a storage benchmark whose reads gate real inference.
END
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
find "$root" -exec touch -h -d "$day UTC" {} +
out=$build/k3ring_${version}_$arch.deb
SOURCE_DATE_EPOCH=$(date -u -d "$day" +%s) dpkg-deb --root-owner-group --build "$root" "$out"
