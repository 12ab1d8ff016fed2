#!/bin/sh
# Lets slowhttptest keep 300 connections busy in three ways, each for 40 seconds: heads, bodies and
# reads that take for ever. The server must answer others meanwhile, and close all of these.
set -eu
report=$(mktemp)
trap 'rm -f "$report"' EXIT
connections() {
    curl --silent --show-error --fail "$URL/metrics" | sed -n 's/^storage_server_connections //p'
}
fail() {
    cat "$report" >&2
    echo "$1: slowhttptest $2" >&2
    exit 1
}
try() {
    # Its own client must be answered within 3 seconds.
    TERM=dumb slowhttptest -c 300 -r 150 -l 40 -p 3 "$@" > "$report" 2>&1 &
    client=$!
    # While it runs, its connections are opened, and then closed by the server. A client that reads
    # slowly does not notice that, so the server is asked.
    most=0
    for second in $(seq 35); do
        sleep 1
        open=$(connections)
        [ "$open" -le "$most" ] || most=$open
        [ "$most" -lt 250 ] || [ "$open" -gt 10 ] || break
    done
    wait "$client" || true
    [ "$most" -ge 250 ] || fail "there were only $most connections" "$*"
    [ "$open" -le 10 ] || fail "$open connections were not closed" "$*"
    if grep -q 'service available:.*NO' "$report" || ! grep -q 'service available:.*YES' "$report"; then
        fail "others were not answered" "$*"
    fi
    tail -n 12 "$report"
    echo "closed after $second seconds"
}
try -H -i 10 -u "$URL/livez"
try -B -i 10 -s 65536 -t PUT -u "$URL/v1/resources/slow"
try -X -n 5 -w 1 -y 512 -z 1 -k 3 -u "$URL/openapi.json"
