#!/usr/bin/env bash
# Packs what a build installs, without changing the build: a tarball that may be unpacked anywhere, and a Debian package.
#   usage: scripts/package.sh BUILD OUT      writes OUT/ropewalk-VERSION-linux-MACHINE.tar.gz and OUT/ropewalk_VERSION_ARCH.deb
# Files have the time of the last commit (SOURCE_DATE_EPOCH, if set), a fixed owner and a fixed order: the same build gives
# the same bytes. Without dpkg-deb the tarball alone. PACK_LEVEL=1: compressed fast, for a test.
set -euo pipefail
umask 022
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
build=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
version=$("$build/ropewalk" --version | cut -d' ' -f2)
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

name=ropewalk-$version-linux-$(uname -m)
tree=$work/$name
cmake --install "$build" --prefix "$tree" --strip >/dev/null
doc=$tree/share/doc/ropewalk
mkdir -p "$doc"
# The licence, and those of what is built in.
while read -r file; do
  printf '==== %s\n\n' "$file"
  cat "$root/$file"
  echo
done <<'FILES' >"$doc/copyright"
LICENSE
cli/report_template/chart.js.LICENSE
src/eval/ruler/words/LICENSE.wonderwords
src/io/LICENSE.ggml
FILES
gzip -9n <"$root/CHANGELOG.md" >"$doc/changelog.gz"
gzip -9n "$tree"/share/man/man1/*.1
tar --create --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
  --directory "$work" "$name" | gzip "-${PACK_LEVEL:-9}" -n >"$out/$name.tar.gz"

command -v dpkg-deb >/dev/null || exit 0
package=$work/package
mkdir -p "$package/DEBIAN" "$work/debian"
mv "$tree" "$package/usr"
library=$(basename "$package"/usr/lib/libropewalk.so.*.*.*)
touch "$work/debian/control" # dpkg-shlibdeps wants to stand where a source package is
depends=$(cd "$work" && dpkg-shlibdeps -O "$package/usr/bin/ropewalk" "$package/usr/lib/$library" 2>/dev/null |
  sed 's/^shlibs:Depends=//')
needs=$("$root/scripts/deps.sh" --list build | tr ' ' '\n' | grep -E '^(cmake|g\+\+|pkg-config|lib.*-dev|ocl.*)$' |
  grep -vE 'cli11|httplib' | paste -sd, | sed 's/,/, /g')
cat >"$package/DEBIAN/control" <<CONTROL
Package: ropewalk
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The Ropewalk maintainers
Section: science
Priority: optional
Installed-Size: $(du --apparent-size -sk "$package/usr" | cut -f1)
Depends: $depends
Suggests: $needs
Description: position encodings of transformers, exact and fast
 Which setting extends a model's context, how far, and at what cost: a program
 that measures it, with a small model to try it on in
 /usr/share/ropewalk/models, and a library for C++ and C: shared for C, static
 for C++, which needs the suggested packages to link.
CONTROL
echo "libropewalk ${library##*.so.}" | sed -E 's/ ([0-9]+)\..*/ \1 ropewalk (>= '"${version%.*}"')/' >"$package/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$package/DEBIAN/triggers"
(cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$package" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
dpkg-deb --root-owner-group --threads-max=1 -Zxz "-z${PACK_LEVEL:-6}" --build "$package" \
  "$out/ropewalk_${version}_$(dpkg --print-architecture).deb" >/dev/null
