#!/usr/bin/env bash
# The page's tests drive a headless Chromium.
set -euo pipefail
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "baton: the page's tests need chromium and chromedriver: install both (Debian: apt-get install chromium chromium-driver)." >&2
  exit 2
fi
echo "baton: installing chromium for the page's tests"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null
apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null
