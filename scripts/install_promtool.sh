#!/usr/bin/env bash
# The tests of the alert rules run promtool. No wheel carries it; Debian's package prometheus does, and of that package only
# this program is taken: installed whole it would start a server.
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v promtool >/dev/null || [ -x .venv/bin/promtool ]; then exit 0; fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "baton: the tests of the alert rules need promtool: put it on the PATH (it comes with Prometheus)." >&2
  exit 2
fi
echo "baton: fetching promtool for the tests of the alert rules"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
fetch() { (cd "$folder" && apt-get download -qq prometheus >/dev/null 2>&1); }
if ! fetch; then
  [ "$(id -u)" != 0 ] || apt-get update -qq >/dev/null || true
  if ! fetch; then
    echo "baton: apt-get could not fetch the package prometheus: put promtool on the PATH (it comes with Prometheus)." >&2
    exit 2
  fi
fi
dpkg-deb -x "$folder"/prometheus_*.deb "$folder/files"
install -m 755 "$folder/files/usr/bin/promtool" .venv/bin/promtool
