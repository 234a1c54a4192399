#!/usr/bin/env bash
# Makes this machine a member of the cluster; run again, it changes only what is not so yet. Vagrant runs it as root, with
# the variables of its Vagrantfile, after it has uploaded an archive of what is needed.
set -euo pipefail

: "${NAME:?}" "${NUMBER:?}" "${WORKERS:?}" "${NETWORK:?}" "${OWN_CLUSTER:?}" "${CLUSTER_CIDRS=}" "${ROUTES=}"
export DEBIAN_FRONTEND=noninteractive
programs=/usr/local/lib/nodeagent-cluster
settings=/etc/nodeagent-cluster
PATIENCE=600
# Whether something had to be changed since this was set to "no".
changed=no

upload=$(mktemp -d)
trap 'rm -rf "$upload"' EXIT
tar -C "$upload" --no-same-owner -xf /home/vagrant/nodeagent.tar
# There are credentials in it.
rm /home/vagrant/nodeagent.tar

say() { echo "nodeagent: $NAME: $*"; }

put() { # FILE PATH [OPTIONS OF install]: make PATH the same as FILE
    local file=$1 path=$2
    shift 2
    if cmp -s "$file" "$path"; then return; fi
    install -D "$@" "$file" "$path.new"
    mv "$path.new" "$path"
    changed=yes
    say "$path"
}

need() { # PACKAGE...: only what is missing, so that all this works without a network when nothing is
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        say "installing ${missing[*]}"
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    fi
}

install_package() {
    local installed=$settings/package.sha256 sum
    sum=$(sha256sum <"$upload/nodeagent.deb")
    if [ "$sum" = "$(cat "$installed" 2>/dev/null)" ] && [ -x /usr/bin/nodeagent ]; then return; fi
    # shellcheck disable=SC2016  # dpkg-deb expands these
    say "installing $(dpkg-deb --showformat='${Package} ${Version}' --show "$upload/nodeagent.deb")"
    # The configuration is ours: no question about it when the package has another. Nobody needs this disk after a crash.
    dpkg --install --force-confold --force-unsafe-io "$upload/nodeagent.deb" >/dev/null
    echo "$sum" >"$installed"
    changed=yes
}

install_programs() {
    local file
    for file in "$upload"/guest/*; do
        case $file in
            *.service) put "$file" "/etc/systemd/system/$(basename "$file")" -m 644 ;;
            *) put "$file" "$programs/$(basename "$file")" -m 755 ;;
        esac
    done
}

write_settings() {
    local pods=10.244 pods6=fd00:244
    # An existing cluster has its own range; what is here is outside of it.
    if [ "$OWN_CLUSTER" != yes ]; then pods=10.247 pods6=fd00:247; fi
    cat >"$upload/machine.env" <<SETTINGS
NUMBER=$NUMBER
WORKERS=$WORKERS
NETWORK=$NETWORK
PODS=$pods
PODS6=$pods6
ROUTES=$ROUTES
SETTINGS
    put "$upload/machine.env" "$settings/machine.env" -m 644
}

configure_api_server() {
    local home=/var/lib/nodeagent-apiserver file before=$changed
    changed=no
    for file in ca.crt ca.key tokens.csv; do
        put "$upload/credentials/$file" "$home/pki/$file" -m 600 -o nodeagent-apiserver -g nodeagent-apiserver
    done
    # Another authority did not sign the certificates that are there.
    if [ $changed = yes ]; then rm -f "$home"/pki/{server,admin,reader}.*; fi
    if [ "$before" = yes ]; then changed=yes; fi
    chown nodeagent-apiserver: "$home" "$home/pki"
    chmod 700 "$home" "$home/pki"
    echo "NODEAGENT_APISERVER_OPTIONS=\"--listen $NETWORK.10:6443\
 --service-cluster-ip-range 10.96.0.0/16,fd00:10:96::/112 --pod-cidr 10.244.0.0/16 --pod-cidr fd00:244::/32\"" \
        >"$upload/apiserver.default"
    put "$upload/apiserver.default" /etc/default/nodeagent-apiserver -m 644
}

configure_agent() {
    local cidrs=${CLUSTER_CIDRS:-10.244.0.0/16,fd00:244::/32}
    cat >"$upload/nodeagent.yaml" <<CONFIGURATION
# Written by Vagrant (vagrant/install.sh).
apiVersion: nodeagent.io/v1alpha1
kind: NodeAgentConfiguration
source:
  kubeconfig: /etc/nodeagent/kubeconfig
node:
  name: $NAME
traffic:
  clusterCIDRs: ["${cidrs//,/\", \"}"]
reporting:
  # These credentials only read.
  events: false
CONFIGURATION
    put "$upload/nodeagent.yaml" /etc/nodeagent/nodeagent.yaml -m 644
    put "$upload/credentials/kubeconfig" /etc/nodeagent/kubeconfig -m 640 -g nodeagent
    nodeagent config check --config /etc/nodeagent/nodeagent.yaml >/dev/null
}

run_pods() {
    local unit wanted=("nodeagent-pod-network@caller-$NUMBER.service")
    local pods=("nodeagent-pod@echo-$NUMBER-1.service" "nodeagent-pod@echo-$NUMBER-2.service")
    if [ "$OWN_CLUSTER" = yes ]; then
        wanted+=("${pods[@]}")
    else
        systemctl --quiet disable --now "${pods[@]}" 2>/dev/null
    fi
    systemctl --quiet enable "${wanted[@]}"
    for unit in "${wanted[@]}"; do
        if [ $changed = yes ]; then systemctl restart "$unit"; else systemctl start "$unit"; fi
    done
}

run() { # UNIT: restart it if something was changed, and return when it is ready
    local deadline=$((SECONDS + PATIENCE))
    systemctl --quiet enable "$1"
    # systemd gives up before we do: the agent waits for an API server that, on another machine, may come later than this.
    if [ $changed = yes ]; then systemctl restart "$1" || true; else systemctl start "$1" || true; fi
    until systemctl --quiet is-active "$1"; do
        if [ $SECONDS -ge $deadline ]; then
            journalctl --no-pager -n 20 -u "$1"
            say "$1 did not start within $PATIENCE s; its last words are above" >&2
            exit 1
        fi
        sleep 0.5
    done
}

need python3 openssl iproute2 nftables conntrack
mkdir -p "$settings"
install_package
package_changed=$changed

changed=no
install_programs
write_settings
if [ $changed = yes ]; then
    systemctl daemon-reload
    systemctl restart nodeagent-cluster-network.service
fi
systemctl --quiet enable nodeagent-cluster-network.service
if [ "$NAME" != control ]; then run_pods; fi

if [ "$NAME" = control ]; then
    changed=$package_changed
    configure_api_server
    run nodeagent-apiserver.service
    python3 "$programs/objects.py" declare
fi

changed=$package_changed
configure_agent
run nodeagent.service
say "ready: $(systemctl show --value --property StatusText nodeagent.service)"
