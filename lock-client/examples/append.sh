#!/bin/sh -eu
# Appends a line to a resource, under its lock:
#   lock-client run invoice-7 --wait 1m -- lock-client/examples/append.sh 'a line'
fenced() { curl -sS -H "Fencing-Token: $FENCING_TOKEN" -H "Fencing-Holder: $FENCING_HOLDER" "$@"; }
url=$FENCED_STORAGE/v1/resources/$FENCING_RESOURCE_PATH # percent-encoded
text=$(mktemp); trap 'rm -f "$text"' EXIT
case $(fenced -o "$text" -w '%{http_code}' "$url") in # claims: from here on, older tokens are rejected
    200) ;; 404) : > "$text" ;; *) cat "$text" >&2; echo >&2; exit 1 ;;
esac
printf '%s\n' "$1" >> "$text"
fenced --fail-with-body -w '\n' -H 'Content-Type: text/plain' -T "$text" "$url"
