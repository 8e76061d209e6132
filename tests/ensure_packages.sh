#!/usr/bin/env bash
# Makes sure that programs are on the PATH. Installs those that are missing with apt-get where that is allowed (root on
# Debian or Ubuntu), else says which line installs them, and fails.
# Usage: ensure_packages.sh PROGRAM:PACKAGE...    A program may also be a path that must exist.
set -euo pipefail

missing=()
for pair in "$@"; do
  program=${pair%:*}
  if [ ! -e "$program" ] && ! command -v "$program" >/dev/null; then missing+=("${pair#*:}"); fi
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
  {
    echo "The tests need, and this machine lacks: ${missing[*]}"
    echo "Install them: sudo apt-get install -y --no-install-recommends ${missing[*]} | dnf install ${missing[*]}"
  } >&2
  exit 1
fi

echo "Installing ${missing[*]} with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
