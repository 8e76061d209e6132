#!/usr/bin/env bash
# Makes sure that the tests of deploy/alerts.yaml find promtool. Where it is not installed, it is taken out of Debian's
# package `prometheus` into the cache of the tests: a test needs the tool, and no Prometheus that starts with the machine.
set -euo pipefail

cache=${KAFKA_QUOTA_PROXY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kafka-quota-proxy}
if command -v promtool >/dev/null || [ -x "$cache/promtool" ]; then exit 0; fi

missing() {
  {
    echo "The tests of the alert rules need promtool, and this machine lacks it."
    echo "Install it, for example: sudo apt-get install prometheus | dnf install golang-github-prometheus | brew install prometheus"
  } >&2
  exit 1
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then missing; fi

echo "Fetching promtool with apt-get"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
chmod 755 "$directory"
cd "$directory"
# Without root, the package lists that are there have to do.
if [ "$(id -u)" -eq 0 ]; then apt-get update -qq; fi
apt-get download -qq -o APT::Sandbox::User=root prometheus || missing
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
mkdir -p "$cache"
mv usr/bin/promtool "$cache/promtool.$$"
mv "$cache/promtool.$$" "$cache/promtool"
