#!/usr/bin/env bash
# Makes sure that the end-to-end tests find Java 17 or later and Maven: installs what is missing with apt-get where that
# is allowed (root on Debian or Ubuntu), else says within a second which line installs it, and fails.
set -euo pipefail

java_major() {
  # The first line of `java -version`: openjdk version "17.0.15" 2025-04-15 | java version "1.8.0_401"
  java -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]\{1,\}\).*/\2/p' | head -n 1
}

missing() {
  local major=""
  if command -v java >/dev/null; then major=$(java_major); fi
  if [ "${major:-0}" -lt 17 ]; then echo "Java 17 or later (found: ${major:-none})"; fi
  if ! command -v mvn >/dev/null; then echo "Maven (mvn)"; fi
}

wanted=$(missing)
if [ -z "$wanted" ]; then exit 0; fi

if ! command -v apt-get >/dev/null; then
  {
    echo "The tests against a real Kafka need, and this machine lacks:"
    echo "${wanted//$'\n'/, }"
    echo "Install them, for example: dnf install java-17-openjdk-headless maven | brew install openjdk@17 maven"
  } >&2
  exit 1
fi

if [ "$(id -u)" -ne 0 ]; then
  {
    echo "The tests against a real Kafka need, and this machine lacks:"
    echo "${wanted//$'\n'/, }"
    echo "Install them: sudo apt-get update && sudo apt-get install -y openjdk-17-jdk-headless maven"
  } >&2
  exit 1
fi

echo "Installing ${wanted//$'\n'/, } with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
jdk=openjdk-17-jdk-headless
# Distributions newer than Debian 12 have a later default JDK instead.
if ! apt-cache show "$jdk" >/dev/null 2>&1; then jdk=default-jdk-headless; fi
apt-get install -y -qq --no-install-recommends "$jdk" maven

wanted=$(missing)
if [ -n "$wanted" ]; then
  echo "Still missing after apt-get: ${wanted//$'\n'/, }. Look at PATH: \`command -v java mvn\`" >&2
  exit 1
fi
