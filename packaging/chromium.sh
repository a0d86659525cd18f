#!/bin/sh
# Chromium for the tests of the chat page. Installs Debian's where apt and the rights are there, else says what to
# install; those tests are skipped then. Never fails.
set -u
for name in "${MASHBOX_TEST_CHROMIUM:-}" chromium chromium-browser google-chrome; do
  [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && exit 0
done
as_root=
[ "$(id -u)" -eq 0 ] || as_root='sudo -n'
if command -v apt-get >/dev/null 2>&1 && $as_root true 2>/dev/null; then
  echo 'Installing Chromium for the tests of the chat page ...'
  $as_root apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core \
      >/dev/null && exit 0
fi
echo '*** No Chromium: the tests of the chat page in a browser are SKIPPED. Install it (Debian: apt install chromium),' \
  'or name one in MASHBOX_TEST_CHROMIUM.' >&2
exit 0
