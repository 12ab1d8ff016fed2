#!/bin/sh
# Lets schemathesis send generated requests to the server at URL, with the bearer token TOKEN if there is
# one. The answers must be as in the OpenAPI document, and the requests must be 2000 at least.
set -eu
program=$1
report=$(mktemp)
trap 'rm -f "$report"' EXIT
if [ -n "${TOKEN:-}" ]; then
    set -- --header "Authorization: Bearer $TOKEN"
else
    set --
fi
"$program" --config-file storage-server/tests/schemathesis.toml run "$URL/openapi.json" \
    --max-examples 100 --seed 33 "$@" > "$report" || { cat "$report"; exit 1; }
cases=$(sed -n 's/^ *\([0-9]*\) generated.*/\1/p' "$report")
[ "${cases:-0}" -ge 2000 ] || { cat "$report"; echo "only ${cases:-0} requests" >&2; exit 1; }
echo "$cases generated requests, no failure"
