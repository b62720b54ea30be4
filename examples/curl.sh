#!/bin/sh
# A task from submit to receipt with nothing but a shell and curl: accepted once, asked for again with the same key, read,
# and cancelled before anybody runs it.
#
#   ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=var/demo.credentials.json examples/curl.sh
set -eu

fail() {
    echo "curl.sh: $1" >&2
    exit 1
}

# The first string member of that name in the JSON on standard input; enough for answers whose shape is known.
member() {
    sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" | head -n 1
}

[ -n "${ORBIT_CREDENTIALS_FILE:-}" ] || fail "set ORBIT_CREDENTIALS_FILE"
token=$(tr ',{' '\n\n' <"$ORBIT_CREDENTIALS_FILE" | member token)
[ -n "${ORBIT_URL:-}" ] || ORBIT_URL=$(tr ',{' '\n\n' <"$ORBIT_CREDENTIALS_FILE" | member url)
[ -n "$ORBIT_URL" ] || fail "set ORBIT_URL"
[ -n "$token" ] || fail "$ORBIT_CREDENTIALS_FILE holds no token"

# The token goes to curl by a file descriptor, so that it shows in no list of processes.
call() {
    method=$1 path=$2 expected=$3
    shift 3
    answer=$(printf 'header = "Authorization: Bearer %s"\n' "$token" |
        curl --silent --show-error --max-time 20 --config - --request "$method" --write-out '\n%{http_code}' \
            "$@" "$ORBIT_URL$path")
    status=$(printf '%s' "$answer" | tail -n 1)
    body=$(printf '%s\n' "$answer" | sed '$d')
    [ "$status" = "$expected" ] || fail "$method $path answered $status, expected $expected: $body"
}

json='Content-Type: application/json'
run="$(date +%s)-$$"

call POST /v1/queues 201 --header "$json" --data "{\"name\": \"curl-$run\"}"
queue=$(printf '%s' "$body" | tr ',{' '\n\n' | member queue_id)
echo "queue $queue"

task="{\"queue_id\": \"$queue\", \"handler\": \"object.prepare\", \"handler_version\": \"v1\", \"payload_version\": \"v1\",
       \"payload\": {\"object_ref\": \"objects/example\", \"sequence\": 9007199254740993}}"
call POST /v1/tasks 201 --header "$json" --header "Idempotency-Key: curl-$run" --data "$task"
task_id=$(printf '%s' "$body" | tr ',{' '\n\n' | member task_id)
echo "accepted task $task_id (201)"

# The same key and content again, as after a lost answer: the original receipt, no second task.
call POST /v1/tasks 200 --header "$json" --header "Idempotency-Key: curl-$run" --data "$task"
[ "$(printf '%s' "$body" | tr ',{' '\n\n' | member task_id)" = "$task_id" ] || fail "a repeat made another task"
case $body in
*'"deduplicated":true'* | *'"deduplicated": true'*) echo "repeated: same task (200)" ;;
*) fail "a repeat was not recognised" ;;
esac

call GET "/v1/tasks/$task_id" 200
case $body in
*9007199254740993*) echo "read: every digit is there" ;;
*) fail "the payload changed: $body" ;;
esac
revision=$(printf '%s' "$body" | tr ',{' '\n\n' | member revision)

call POST "/v1/tasks/$task_id:cancel" 200 --header "$json" --data "{\"revision\": \"$revision\", \"reason\": \"example\"}"
[ "$(printf '%s' "$body" | tr ',{' '\n\n' | member state)" = CANCELED ] || fail "not cancelled: $body"
echo "cancelled"
