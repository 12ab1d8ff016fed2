#!/bin/sh
# Runs a command against a private storage server, whose URL is in the variable URL:
#
#   with_server.sh PROGRAM COMMAND...
#
# With IDENTITY=PREFIX, the server has an auth file with an identity that may do everything with the names
# that begin with the prefix. Its bearer token is in the variable TOKEN.
set -eu
program=$1
shift
folder=$(mktemp -d "${TMPDIR:-/tmp}/fenced-XXXXXX")
if [ -n "${IDENTITY:-}" ]; then
    export FENCED_AUTH_FILE="$folder/auth.toml"
    TOKEN=$("$program" auth new --auth-file "$FENCED_AUTH_FILE" --name client --prefix "$IDENTITY" \
        --allow read,write,claim,list,operate)
    export TOKEN
fi
"$program" --listen 127.0.0.1:0 --database-url "sqlite:$folder/fenced.db" \
    > "$folder/stdout" 2> "$folder/stderr" &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait "$server" || true; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
runs() {
    kill -0 "$server" 2> /dev/null || { cat "$folder/stderr" >&2; exit 1; }
}
until grep -q '^listening on ' "$folder/stdout"; do
    runs
    sleep 0.05
done
URL=$(sed 's/^listening on //' "$folder/stdout")
export URL
"$@"
# A server that has crashed answered nothing wrong.
runs
