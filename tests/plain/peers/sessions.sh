#!/usr/bin/env bash
# A member of a crowd that locks with a session of psql, or of MariaDB's client.
#
# sessions.sh psql|mariadb SERVER NAME TTL_MS count FILE ROUNDS | hold
set -euo pipefail
client=$1 host=${2%:*} port=${2#*:} name=$3

if [ "$client" = psql ]; then
    key="('x' || substr(md5('$name'), 1, 16))::bit(64)::bigint"
    # A wait without an answer is a blocked statement of the server.
    lock="SELECT 'ok' FROM (SELECT pg_advisory_lock($key)) l;"
    unlock="SELECT pg_advisory_unlock($key);"
    coproc session { exec psql -XqAt -h "$host" -p "$port" -U postgres postgres; }
else
    lock="SELECT GET_LOCK('$name', 60);"
    unlock="SELECT RELEASE_LOCK('$name');"
    coproc session { exec mariadb --no-defaults --unbuffered -NB -h "$host" -P "$port" -u root test; }
fi

ask() {
    echo "$1" >&"${session[1]}"
    local answer
    read -r answer <&"${session[0]}"
    case $answer in ok | t | 1) ;; *) echo "$1: $answer" >&2 && exit 1 ;; esac
}

if [ "$5" = hold ]; then
    ask "$lock"
    echo holding
    read -r || true
    ask "$unlock"
else
    for _ in $(seq "$7"); do
        ask "$lock"
        count=$(cat "$6")
        sleep 0.001
        echo -n $((count + 1)) >"$6"
        ask "$unlock"
    done
fi
