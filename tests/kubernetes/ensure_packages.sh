#!/usr/bin/env bash
# Makes sure that the tests with a Kubernetes cluster find etcd and what a node needs. Installs what is missing with apt-get
# where that is allowed (root on Debian or Ubuntu), else says which line installs it, and fails.
set -euo pipefail

missing=()
for tool in etcd:etcd-server containerd:containerd runc:runc nft:nftables conntrack:conntrack iptables:iptables buildah:buildah; do
  command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
if [ ! -d /usr/lib/cni ]; then missing+=(containernetworking-plugins); fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
  {
    echo "The tests need, and this machine lacks: ${missing[*]}"
    echo "Install them: sudo apt-get install -y --no-install-recommends ${missing[*]}"
  } >&2
  exit 1
fi

echo "Installing ${missing[*]} with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
