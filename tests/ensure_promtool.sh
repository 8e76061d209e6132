#!/usr/bin/env bash
# Makes sure that the tests of deploy/ find promtool and prometheus. Where they are not installed, they are taken out of
# Debian's package `prometheus` into the cache of the tests: tests need the programs, and no Prometheus that starts with
# the machine.
set -euo pipefail

cache=${KAFKA_QUOTA_PROXY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kafka-quota-proxy}
tools=()
for tool in promtool prometheus; do
  command -v "$tool" >/dev/null || [ -x "$cache/$tool" ] || tools+=("$tool")
done
if [ ${#tools[@]} -eq 0 ]; then exit 0; fi

missing() {
  {
    echo "The tests of the alert rules and of the dashboards need, and this machine lacks: ${tools[*]}"
    echo "Install Prometheus, for example: sudo apt-get install prometheus | dnf install golang-github-prometheus | brew install prometheus"
  } >&2
  exit 1
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then missing; fi

echo "Fetching ${tools[*]} with apt-get"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
chmod 755 "$directory"
cd "$directory"
# Without root, the package lists that are there have to do.
if [ "$(id -u)" -eq 0 ]; then apt-get update -qq; fi
apt-get download -qq -o APT::Sandbox::User=root prometheus || missing
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x "${tools[@]/#/./usr/bin/}"
mkdir -p "$cache"
for tool in "${tools[@]}"; do
  mv "usr/bin/$tool" "$cache/$tool.$$"
  mv "$cache/$tool.$$" "$cache/$tool"
done
