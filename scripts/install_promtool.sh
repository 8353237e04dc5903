#!/usr/bin/env bash
# The tests of the alert rules run promtool, which comes with Debian's package prometheus. No wheel carries it.
set -euo pipefail
if command -v promtool >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "baton: the tests of the alert rules need promtool: install it (Debian: apt-get install prometheus) and put it on the PATH." >&2
  exit 2
fi
echo "baton: installing promtool for the tests of the alert rules"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null
apt-get install -y -qq --no-install-recommends prometheus >/dev/null
