#!/bin/sh
# The exec driver's commands for a Redis pair.
#
#   redis.sh read KNOB          prints the value of a knob
#   redis.sh write KNOB VALUE   sets it; the same value twice changes nothing
#
# NODES has a `name=host:port` for every server. SOURCES has the addresses that
# servers replicate from, where those differ. Knobs:
#
#   primary   the name of the server that takes writes; the others replicate from it
#   writes    `open`, or `fenced`: no server acknowledges a write
#
# Exit codes: 75 try again later, 66 no such knob, 64 no such value.
set -eu
: "${NODES:?a list of name=host:port}"
SOURCES=${SOURCES-$NODES}

# address LIST NAME: the `host port` of a name in a list.
address() {
  for entry in $1; do
    [ "${entry%%=*}" != "$2" ] || { echo "${entry#*=}" | tr : ' '; return; }
  done
  echo "no server \"$2\"; there are: $NODES" >&2
  exit 64
}

# ask NAME COMMAND...: what a server responds. Redis reports errors in responses,
# so an error of a command is an error here.
ask() {
  name=$1
  at=$(address "$NODES" "$name")
  shift
  if ! said=$(timeout 5 redis-cli -h "${at% *}" -p "${at#* }" -e "$@" 2>&1); then
    echo "$name: $said" >&2
    exit 75
  fi
  printf '%s\n' "$said" | tr -d '\r'
}

names() { for entry in $NODES; do echo "${entry%%=*}"; done; }

# A value that differs between servers is printed as all of them, joined by `+`:
# it is never equal to one that can be written.
read_primary() {
  primaries=
  for name in $(names); do
    info=$(ask "$name" INFO replication)
    case $info in *role:master*) primaries=$primaries+$name ;; esac
  done
  [ -n "$primaries" ] || { echo "no server is primary" >&2; exit 75; }
  echo "${primaries#+}"
}

read_writes() {
  values=
  for name in $(names); do
    found=$(ask "$name" CONFIG GET min-replicas-to-write)
    # The name of the setting, then its value, a line each.
    case $(echo "$found" | tail -n 1) in 0) value=open ;; *) value=fenced ;; esac
    case +$values+ in *+$value+*) ;; *) values=$values+$value ;; esac
  done
  echo "${values#+}"
}

write_primary() {
  source=$(address "$SOURCES" "$1")
  ask "$1" REPLICAOF NO ONE >/dev/null
  for name in $(names); do
    # shellcheck disable=SC2086 # Two arguments: host and port.
    [ "$name" = "$1" ] || ask "$name" REPLICAOF $source >/dev/null
  done
}

# No server has 99 replicas, so one that needs them refuses every write, with
# NOREPLICAS. It goes on replicating.
write_writes() {
  case $1 in
    open) needed=0 ;;
    fenced) needed=99 ;;
    *) echo "no value \"$1\"; accepted: open, fenced" >&2; exit 64 ;;
  esac
  for name in $(names); do
    ask "$name" CONFIG SET min-replicas-to-write "$needed" >/dev/null
  done
}

case "${1-} ${2-}" in
  "read primary") read_primary ;;
  "read writes") read_writes ;;
  "write primary") write_primary "$3" ;;
  "write writes") write_writes "$3" ;;
  "read "* | "write "*) echo "no knob \"$2\"; there are: primary, writes" >&2; exit 66 ;;
  *) sed -n '2,6p' "$0" >&2; exit 64 ;;
esac
