#!/usr/bin/env bash
# Lays out the base files of the image from Debian packages: libc, libgcc, certificates, and their licences. No shell.
# Usage: base.sh ARCH DIRECTORY, with the architecture by its Debian name (amd64 or arm64). DIRECTORY.packages gets the
# packages that its files are from: distribution, release, name, version, architecture.
set -euo pipefail
arch=$1 out=$2
case $arch in
amd64) triplet=x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2 ;;
arm64) triplet=aarch64-linux-gnu loader=lib/ld-linux-aarch64.so.1 ;;
*) echo "no image for $arch: amd64 or arm64" >&2 && exit 2 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# An apt of its own: it needs no root and does not add architectures to this machine.
mkdir -p "$work"/{state/lists/partial,cache/archives/partial,debs,root}
touch "$work/status"
apt=(-qq -o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache"
    -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o "APT::Sandbox::User=$(id -un)")
# Downloads packages and unpacks them into $work/root.
unpack() {
    (cd "$work/debs" && apt-get "${apt[@]}" download "$@")
    for deb in "$work"/debs/*.deb; do
        dpkg-deb --show --showformat='${Package} ${Version} ${Architecture}\n' "$deb" >>"$work/packages"
        dpkg-deb --extract "$deb" "$work/root"
        rm "$deb"
    done
}
apt-get "${apt[@]}" update
unpack libc6 libgcc-s1 ca-certificates
# The licence of libgcc is in the package of its compiler.
unpack "$(basename "$(readlink "$work/root/usr/share/doc/libgcc-s1")")"

libraries=$out/usr/lib/$triplet
rm -rf "$out"
mkdir -p "$libraries" "$out/etc/ssl/certs" "$out/usr/lib64"
for name in "$(basename "$loader")" libc.so.6 libm.so.6 libgcc_s.so.1 libdl.so.2 libpthread.so.0 librt.so.1 \
    libresolv.so.2 libnss_files.so.2 libnss_dns.so.2; do
    cp -L "$(find "$work/root/lib" "$work/root/usr/lib" -path "*$triplet/$name" | head -1)" "$libraries/$name"
done
ln -s usr/lib "$out/lib"
ln -s usr/lib64 "$out/lib64"
ln -s "../lib/$triplet/$(basename "$loader")" "$out/usr/lib64/"
[[ $loader == lib64/* ]] || ln -s "$triplet/$(basename "$loader")" "$out/usr/lib/"
find "$work/root/usr/share/ca-certificates" -name '*.crt' | sort | xargs cat >"$out/etc/ssl/certs/ca-certificates.crt"
>"$out.packages"
for package in libc6 libgcc-s1 ca-certificates; do
    (. /etc/os-release && echo "$ID $VERSION_CODENAME $(grep "^$package " "$work/packages")") >>"$out.packages"
    mkdir -p "$out/usr/share/doc/$package"
    cp -L "$work/root/usr/share/doc/$package/copyright" "$out/usr/share/doc/$package/copyright"
done
