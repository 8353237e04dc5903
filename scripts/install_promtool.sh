#!/usr/bin/env bash
# The tests of the alert rules run promtool. No wheel carries it; Debian's package prometheus does, and is only unpacked
# here: installing it would start a server.
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v promtool >/dev/null || [ -x .venv/bin/promtool ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "baton: the tests of the alert rules need promtool: put it on the PATH (it comes with Prometheus)." >&2
  exit 2
fi
echo "baton: unpacking promtool for the tests of the alert rules"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
apt-get update -qq >/dev/null
(cd "$folder" && apt-get download -qq prometheus >/dev/null 2>&1 && dpkg-deb -x prometheus_*.deb .)
install "$folder/usr/bin/promtool" .venv/bin/promtool
