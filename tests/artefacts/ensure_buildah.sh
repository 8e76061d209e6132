#!/usr/bin/env bash
# Makes sure that the tests of the image find buildah, debootstrap and runc. Installs what is missing with apt-get where
# that is allowed (root on Debian or Ubuntu), else says which line installs it, and fails. Building and running an image
# without a container engine needs root in any case.
set -euo pipefail

missing=()
for tool in buildah debootstrap runc; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
if [ "$(id -u)" -ne 0 ]; then
  echo "The tests of the image run as root: sudo make test-artefacts" >&2
  exit 1
fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null; then
  {
    echo "The tests of the image need, and this machine lacks: ${missing[*]}"
    echo "Install them: dnf install ${missing[*]}"
  } >&2
  exit 1
fi

echo "Installing ${missing[*]} with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
