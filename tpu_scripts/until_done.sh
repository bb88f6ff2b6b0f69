#!/usr/bin/env bash
# Run a training command again for as long as it ends with status 75: it was asked to stop (SIGTERM) and has saved.
#
#   tpu_scripts/until_done.sh python tpu_scripts/pretrain.py --recipe bert_base --out gs://bucket/run
#
# Any other status ends it: 0 is the end of the run, 2 a mistake that a repetition would not mend. A SIGTERM to this script goes
# to the command, and ends both with 75 once the command has saved: on a machine that is being taken away there is nothing to
# start again on. On the machine that comes after it, the same line goes on from the last checkpoint.
# TRIES (default 1000) starts at most, PAUSE (default 10) seconds between two.
set -u

[ $# -ge 1 ] || { sed -n '2,4p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }

stopped=
child=
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT

for ((try = 1; try <= ${TRIES:-1000}; try++)); do
  "$@" &
  child=$!
  [ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null  # the signal came before its number was known
  while :; do  # a signal ends `wait` before the command
    wait "$child"
    status=$?
    kill -0 "$child" 2>/dev/null || break
  done
  if [ "$status" -ne 75 ] || [ -n "$stopped" ]; then
    exit "$status"
  fi
  echo "ended with 75 after start $try: going on from the last checkpoint" >&2
  sleep "${PAUSE:-10}"
  [ -z "$stopped" ] || exit 75
done
exit 75
