#!/usr/bin/env bash
# Puts a stand-in for the image python:3.13-slim into buildah's storage, if it is not there: Debian 13 with Debian's own
# Python 3.13 where the official image has its Python. So the Dockerfile can be built without a registry.
# Usage: base_image.sh BUILDAH_ARGUMENT...
set -euo pipefail

name=localhost/python:3.13-slim
if buildah "$@" inspect --type image "$name" >/dev/null 2>&1; then exit 0; fi

# The mirror that this machine uses.
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 debian || true)
directory=$(mktemp -d)
container=""
trap 'rm -rf "$directory"; if [ -n "$container" ]; then buildah "$@" rm "$container" >/dev/null; fi' EXIT
root=$directory/root
packages=ca-certificates,python3,python3-dev,python3-pip,python3-venv
echo "Making a stand-in for $name"
debootstrap --variant=minbase --include="$packages" trixie "$root" "${mirror:?no mirror of Debian is configured for apt-get}" \
  >"$directory/log" || { tail -n 20 "$directory/log" >&2; exit 1; }
chroot "$root" python3 -m venv --copies /usr/local
# Behind a proxy that inspects TLS, pip trusts what this machine trusts.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}

container=$(buildah "$@" from scratch)
buildah "$@" copy --quiet "$container" "$root" / >/dev/null
buildah "$@" config --env PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin --cmd python3 "$container"
buildah "$@" commit --quiet --format docker "$container" "$name" >/dev/null
