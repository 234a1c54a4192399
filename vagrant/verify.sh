#!/usr/bin/env bash
# Sends traffic through the running cluster, from pods, from machines and from this computer, while agents restart and the
# API server is away, and prints what came of it; exit code 1 when a check failed. docs/vagrant.md explains each check.
#
#     vagrant/verify.sh       with the same environment as `vagrant up`
set -uo pipefail
cd "$(dirname "$0")" || exit 2

NETWORK=${NODEAGENT_NETWORK:-192.168.56}
WORKERS=${NODEAGENT_WORKERS:-2}
PROGRAMS=/usr/local/lib/nodeagent-cluster
NAMES=(http:echo:80 http:echo.default.svc.cluster.local:80)
CLUSTER_IPS=(http:10.96.0.80:80 'http:[fd00:10:96::80]:80')
EXTRA_IP=10.96.0.81
NODE_PORT=30080
PODS=$((2 * WORKERS))
# Connections for each address: that all of four pods are chosen then is as good as certain.
COUNT=40
PATIENCE=600
# Seconds since a machine was asked in which a problem of its agent may still go, as of names that are not answered yet.
SETTLING=120
OUTAGE=5

work=$(mktemp -d)
failures=0
machines=()
workers=()
controls=()
trap 'cleanup' EXIT
trap 'exit 130' INT TERM

cleanup() {
    exec 3>&-
    wait
    local machine
    for machine in "${machines[@]+"${machines[@]}"}"; do
        ssh -F "$work/ssh" -O exit "$machine" 2>/dev/null
    done
    rm -rf "$work"
}

on() { # MACHINE COMMAND: there, as root
    ssh -F "$work/ssh" "$1" "sudo bash -c $(printf %q "$2")"
}

from_machine() { # MACHINE ARGUMENTS OF load.py
    local machine=$1
    shift
    on "$machine" "python3 $PROGRAMS/load.py $*"
}

from_pod() { # WORKER ARGUMENTS OF load.py: from the pod there that is in no list
    local worker=$1
    shift
    on "$worker" "ip netns exec caller-${worker#worker} python3 $PROGRAMS/load.py $*"
}

# check NAME FUNCTION [ARGUMENT...]: one line of the table. The last line the function prints is what was seen.
check() {
    local name=$1 began took result=pass
    shift
    began=$(now)
    if ! "$@" >"$work/seen" 2>"$work/errors"; then
        result=FAIL
        failures=$((failures + 1))
    fi
    took=$(($(now) - began))
    printf '%-57s %-6s %4d s  %s\n' "$name" "$result" "$took" "$(tail -n 1 "$work/seen")"
    if [ $result = FAIL ]; then sed 's/^/    /' "$work/errors" | tail -n 20; fi
}

now() { date +%s; }

agent_is_ready() { # MACHINE
    # shellcheck disable=SC2016  # expanded there
    on "$1" "end=$PATIENCE"'
        until text=$(systemctl show --value --property StatusText nodeagent) &&
            systemctl --quiet is-active nodeagent && [[ $text == *" endpoints on "* ]] &&
            { [[ $text != *problem* ]] || [ $SECONDS -ge '"$SETTLING"' ]; }; do
            if [ $SECONDS -ge $end ]; then journalctl --no-pager -n 20 -u nodeagent >&2; exit 1; fi
            sleep 0.5
        done
        echo "$text"'
}

outside() { # MACHINE: from this computer to its node port
    local address i pods
    address=$(address_of "$1")
    for i in $(seq $COUNT); do
        curl --silent --show-error --fail --noproxy '*' --max-time 20 "http://$address:$NODE_PORT/" || return 1
    done >"$work/outside"
    pods=$(awk '{ print $1 }' "$work/outside" | sort -u | tr '\n' ' ')
    echo "$i answered, 0 failed, $pods"
    [ "$(wc -w <<<"$pods")" = $PODS ]
}

address_of() { # MACHINE
    case $1 in
        control) echo "$NETWORK.10" ;;
        control*) echo "$NETWORK.$((20 + ${1#control}))" ;;
        *) echo "$NETWORK.$((10 + ${1#worker}))" ;;
    esac
}

# under_load FUNCTION [ARGUMENT...]: from everywhere while the function runs, and until two seconds later.
under_load() {
    local result machine file loads=() deadline
    rm -f "$work"/load.*
    mkfifo "$work/load.end"
    exec 3<>"$work/load.end"
    for machine in "${workers[@]}"; do
        from_pod "$machine" --until-eof "${targets[@]}" "${names[0]}" <"$work/load.end" >"$work/load.$machine.pod" 3>&- &
        from_machine "$machine" --until-eof "${targets[@]}" <"$work/load.end" >"$work/load.$machine" 3>&- &
        loads+=("load.$machine.pod" "load.$machine")
    done
    if [ "${machines[0]}" = control ]; then
        from_machine control --until-eof "${node_ports[@]}" <"$work/load.end" >"$work/load.control" 3>&- &
        loads+=(load.control)
    fi
    deadline=$(($(now) + PATIENCE))
    for file in "${loads[@]}"; do
        until [ -s "$work/$file" ]; do
            if [ "$(now)" -ge $deadline ]; then
                exec 3>&-
                echo "the load did not begin"
                return 1
            fi
            sleep 0.1
        done
    done
    "$@" >&2
    result=$?
    sleep 2
    exec 3>&-
    wait
    for file in "${loads[@]}"; do tail -n 1 "$work/$file"; done >"$work/load.sums"
    awk '{ answered += $1; failed += $3; if ($6 > slowest) slowest = $6; if (!$1) silent++ }
         END { printf "%d answered, %d failed, slowest %.2f s\n", answered, failed, slowest; exit silent || failed }' \
        "$work/load.sums" && return $result
}

# The time that systemd gives it may be too short on an emulated machine; it is started again until it has come.
restart_agent() { # MACHINE
    on "$1" 'systemctl restart nodeagent || true' && agent_is_ready "$1"
}

# The agent is even started while there is nobody to ask.
without_api_server() {
    local machine
    for machine in "${controls[@]}"; do on "$machine" 'systemctl stop nodeagent-apiserver' || return 1; done
    on "${workers[0]}" 'systemctl restart --no-block nodeagent'
    sleep $OUTAGE
    for machine in "${controls[@]}"; do
        on "$machine" 'systemctl start nodeagent-apiserver || { journalctl --no-pager -n 20 -u nodeagent-apiserver; exit 1; }' || return 1
    done
    for machine in "${machines[@]}"; do agent_is_ready "$machine" || return 1; done
}

new_service() { # through the API server on the last control node
    on "${controls[-1]}" "python3 $PROGRAMS/objects.py expose verify $EXTRA_IP" || return 1
    until_everywhere answers
}

withdrawn_service() {
    on "${controls[-1]}" "python3 $PROGRAMS/objects.py withdraw verify" || return 1
    until_everywhere is_gone
}

# One of three ends as if its power had failed, as far as the control plane goes; Services come and go meanwhile.
without_a_control_node() {
    local result
    on control 'systemctl kill --signal KILL etcd nodeagent-apiserver; systemctl stop etcd nodeagent-apiserver' || return 1
    new_service && withdrawn_service
    result=$?
    on control 'systemctl start etcd nodeagent-apiserver' || return 1
    return $result
}

answers() { from_machine "$1" --count 1 "http:$EXTRA_IP:80"; }
is_gone() { on "$1" "! nodeagent show services | grep default/verify"; }

until_everywhere() { # FUNCTION OF A MACHINE
    local machine deadline
    deadline=$(($(now) + PATIENCE))
    for machine in "${machines[@]}"; do
        until "$1" "$machine" >/dev/null 2>&1; do
            if [ "$(now)" -ge $deadline ]; then
                echo "not on $machine"
                return 1
            fi
            sleep 0.2
        done
    done
    echo "on ${machines[*]}"
}

kubernetes_service() { # an address that every cluster has, as worker1 has it in its kernel
    on worker1 "nodeagent show --output json" | tr -d ' \n' | grep -o '"default/kubernetes:https"[^]]*' |
        grep -oE '[0-9.]+:[0-9]+/TCP' | head -n 1 | cut -d/ -f1
}

connect() {
    printf 'Host *\n  ControlMaster auto\n  ControlPath %s/ssh-%%n\n  ControlPersist 600\n  LogLevel ERROR\n' "$work" >"$work/ssh"
    if ! vagrant ssh-config >>"$work/ssh" 2>"$work/errors"; then
        cat "$work/errors" >&2
        exit 2
    fi
    local machine
    while read -r machine; do
        machines+=("$machine")
        case $machine in control*) controls+=("$machine") ;; *) workers+=("$machine") ;; esac
        on "$machine" true </dev/null || exit 2
    done < <(awk '$1 == "Host" && $2 != "*" { print $2 }' "$work/ssh")
}

connect
targets=("${CLUSTER_IPS[@]}")
names=("${NAMES[@]}")
node_ports=()
for machine in "${workers[@]}"; do node_ports+=("http:$(address_of "$machine"):$NODE_PORT"); done
began=$(now)
printf '%-57s %-6s %6s  %s\n' CHECK RESULT TIME SEEN

for machine in "${machines[@]}"; do
    check "the agent on $machine is ready" agent_is_ready "$machine"
done
if [ "${machines[0]}" = control ]; then
    for machine in "${workers[@]}"; do
        check "pod on $machine -> ClusterIP -> pods on every worker" from_pod "$machine" --count $COUNT --pods $PODS \
            --seen "10.244.${machine#worker}.250" --seen "fd00:244:${machine#worker}::250" "${targets[@]}"
        check "pod on $machine -> name -> pods on every worker" from_pod "$machine" --count $COUNT --pods $PODS "${names[@]}"
    done
    for machine in "${machines[@]}"; do
        check "machine $machine -> ClusterIP -> pods" from_machine "$machine" --count $COUNT --pods $PODS "${targets[@]}"
    done
    for machine in "${machines[@]}"; do
        check "outside -> NodePort on $machine -> pods" outside "$machine"
    done
else
    targets=("tcp:$(kubernetes_service)")
    names=(tcp:kubernetes:443 tcp:kubernetes.default.svc.cluster.local:443)
    for machine in "${workers[@]}"; do
        check "pod on $machine -> default/kubernetes" from_pod "$machine" --count $COUNT "${targets[@]}"
        check "pod on $machine -> name -> default/kubernetes" from_pod "$machine" --count $COUNT "${names[@]}"
        check "machine $machine -> default/kubernetes" from_machine "$machine" --count $COUNT "${targets[@]}"
    done
fi
for machine in "${workers[@]}"; do
    check "the agent on $machine restarts, under load" under_load restart_agent "$machine"
done
if [ "${machines[0]}" = control ]; then
    check "the API server is away for $OUTAGE s, under load" under_load without_api_server
    check "a new Service reaches every machine" new_service
    check "a deleted Service leaves every machine" withdrawn_service
    if [ ${#controls[@]} -gt 1 ]; then
        check "control is killed, and Services change, under load" under_load without_a_control_node
    fi
fi

if [ $failures = 0 ]; then
    echo "all checks passed in $(($(now) - began)) s"
else
    echo "$failures checks FAILED"
    exit 1
fi
