#!/usr/bin/env bash
# Makes sure that the tests find zsh and fish, for completion scripts, and systemd-analyze, for the unit file. Installs what
# is missing with apt-get where that is allowed (root on Debian or Ubuntu), else says which line installs it, and fails.
set -euo pipefail

missing=()
for tool in zsh:zsh fish:fish systemd-analyze:systemd; do
  command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
  {
    echo "The tests need, and this machine lacks: ${missing[*]}"
    echo "Install them: sudo apt-get install -y ${missing[*]} | dnf install ${missing[*]}"
  } >&2
  exit 1
fi

echo "Installing ${missing[*]} with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
