#!/usr/bin/env bash
# Makes sure that the tests find zsh and fish, for completion scripts, systemd-analyze, for the unit file, and Chromium with
# its driver, for the status page. Installs what is missing with apt-get where that is allowed (root on Debian or Ubuntu),
# else says which line installs it, and fails.
set -euo pipefail

missing=()
for tool in zsh:zsh fish:fish systemd-analyze:systemd chromium:chromium chromedriver:chromium-driver; do
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
