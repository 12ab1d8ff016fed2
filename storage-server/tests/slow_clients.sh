#!/bin/sh
# Lets slowhttptest keep 300 connections busy in three ways, each for 30 seconds: heads, bodies and
# reads that take for ever. The server must answer others meanwhile, and close all of these.
set -eu
report=$(mktemp)
trap 'rm -f "$report"' EXIT
try() {
    # Its own client must be answered within 3 seconds.
    TERM=dumb slowhttptest -c 300 -r 150 -l 30 -p 3 "$@" > "$report" 2>&1 || true
    if grep -q 'service available:.*NO' "$report" || ! grep -q 'service available:.*YES' "$report"; then
        cat "$report" >&2
        echo "others were not answered: slowhttptest $*" >&2
        exit 1
    fi
    tail -n 12 "$report"
}
try -H -i 10 -u "$URL/livez"
try -B -i 10 -s 65536 -t PUT -u "$URL/v1/resources/slow"
try -X -n 5 -w 1 -y 512 -z 1 -k 3 -u "$URL/openapi.json"
