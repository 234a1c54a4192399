#!/usr/bin/env bash
# Makes this machine a member of the cluster; run again, it changes only what is not so yet. Vagrant runs it as root, with
# the variables of its Vagrantfile, after it has uploaded an archive of what is needed.
set -euo pipefail

: "${NAME:?}" "${NUMBER:?}" "${WORKERS:?}" "${CONTROLS:?}" "${NETWORK:?}" "${OWN_CLUSTER:?}" "${CLUSTER_CIDRS=}" "${ROUTES=}"
export DEBIAN_FRONTEND=noninteractive
programs=/usr/local/lib/nodeagent-cluster
settings=/etc/nodeagent-cluster
PATIENCE=600
# Control nodes by name, and where they are. With several, none can do anything before most are there: the last one completes them.
declare -A controls=([control]=$NETWORK.10)
last_control=control
for ((i = 2; i <= CONTROLS; i++)); do
    last_control=control$i
    controls[$last_control]=$NETWORK.$((20 + i))
done
address=${controls[$NAME]-}
# Where names are answered: at the addresses of the Service kube-system/kube-dns, and at one that is on every machine.
DNS=10.96.0.10
DNS6=fd00:10:96::a
LOCAL_DNS=169.254.20.10
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

be_patient() {
    # A service that is restarted before it was ready never becomes ready on a machine that is emulated or busy.
    local unit
    printf '[Service]\nTimeoutStartSec=%s\n' "$PATIENCE" >"$upload/patience.conf"
    for unit in nodeagent nodeagent-apiserver; do
        put "$upload/patience.conf" "/etc/systemd/system/$unit.service.d/patience.conf" -m 644
    done
}

write_settings() {
    local pods=10.244 pods6=fd00:244
    # An existing cluster has its own range; what is here is outside of it.
    if [ "$OWN_CLUSTER" != yes ]; then pods=10.247 pods6=fd00:247; fi
    local names=$DNS
    if [ "$OWN_CLUSTER" != yes ]; then names=$LOCAL_DNS; fi
    cat >"$upload/machine.env" <<SETTINGS
NUMBER=$NUMBER
WORKERS=$WORKERS
CONTROLS=$CONTROLS
NETWORK=$NETWORK
PODS=$pods
PODS6=$pods6
DNS=$names
ROUTES=$ROUTES
SETTINGS
    put "$upload/machine.env" "$settings/machine.env" -m 644
}

# Debian's etcd, a member of a cluster of all control nodes. Clients, which are on this machine, need no certificates.
configure_etcd() {
    local pki=$settings/etcd name cluster=
    install -d -m 700 -o etcd -g etcd "$pki"
    put "$upload/credentials/etcd-ca.crt" "$pki/ca.crt" -m 644
    if [ $changed = yes ] || [ ! -e "$pki/peer.crt" ]; then
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=$NAME" \
            -CA "$pki/ca.crt" -CAkey "$upload/credentials/etcd-ca.key" -addext basicConstraints=critical,CA:FALSE \
            -addext "subjectAltName=IP:$address" -addext extendedKeyUsage=serverAuth,clientAuth \
            -keyout "$pki/peer.key" -out "$pki/peer.crt" 2>/dev/null
        chown etcd: "$pki"/peer.*
    fi
    for name in "${!controls[@]}"; do cluster+=${cluster:+,}$name=https://${controls[$name]}:2380; done
    cat >"$upload/etcd.default" <<SETTINGS
# Written by Vagrant (vagrant/install.sh).
ETCD_NAME=$NAME
ETCD_INITIAL_CLUSTER=$cluster
ETCD_LISTEN_PEER_URLS=https://$address:2380
ETCD_INITIAL_ADVERTISE_PEER_URLS=https://$address:2380
ETCD_PEER_TRUSTED_CA_FILE=$pki/ca.crt
ETCD_PEER_CERT_FILE=$pki/peer.crt
ETCD_PEER_KEY_FILE=$pki/peer.key
ETCD_PEER_CLIENT_CERT_AUTH=true
# A member that was cut off does not depose the leader when it comes back.
ETCD_PRE_VOTE=true
ETCD_LISTEN_CLIENT_URLS=http://127.0.0.1:2379
ETCD_ADVERTISE_CLIENT_URLS=http://127.0.0.1:2379
SETTINGS
    put "$upload/etcd.default" /etc/default/etcd -m 644
}

configure_api_server() {
    local home=/var/lib/nodeagent-apiserver file storage="" before=$changed
    changed=no
    for file in ca.crt ca.key tokens.csv; do
        put "$upload/credentials/$file" "$home/pki/$file" -m 600 -o nodeagent-apiserver -g nodeagent-apiserver
    done
    # Another authority did not sign the certificates that are there.
    if [ $changed = yes ]; then rm -f "$home"/pki/{server,admin,reader}.*; fi
    if [ "$before" = yes ]; then changed=yes; fi
    chown nodeagent-apiserver: "$home" "$home/pki"
    chmod 700 "$home" "$home/pki"
    if [ "$CONTROLS" -gt 1 ]; then storage=" --storage etcd --etcd-servers http://127.0.0.1:2379"; fi
    echo "NODEAGENT_APISERVER_OPTIONS=\"--listen $address:6443$storage\
 --service-cluster-ip-range 10.96.0.0/16,fd00:10:96::/112 --pod-cidr 10.244.0.0/16 --pod-cidr fd00:244::/32\"" \
        >"$upload/apiserver.default"
    put "$upload/apiserver.default" /etc/default/nodeagent-apiserver -m 644
}

configure_agent() {
    local cidrs=${CLUSTER_CIDRS:-10.244.0.0/16,fd00:244::/32} servers="" name
    if [ "$CONTROLS" -gt 1 ] && [ "$OWN_CLUSTER" = yes ]; then
        for name in "${!controls[@]}"; do servers+=${servers:+, }https://${controls[$name]}:6443; done
        servers="
  master: [$servers]"
    fi
    local names="\"$LOCAL_DNS\"" clients=""
    # The DNS Service of an existing cluster stays with its own pods, and ours are none of those.
    if [ "$OWN_CLUSTER" = yes ]; then
        names="\"$DNS\", \"$DNS6\", $names"
    else
        clients='"10.247.0.0/16", "fd00:247::/32"'
    fi
    cat >"$upload/nodeagent.yaml" <<CONFIGURATION
# Written by Vagrant (vagrant/install.sh).
apiVersion: nodeagent.io/v1alpha1
kind: NodeAgentConfiguration
source:
  kubeconfig: /etc/nodeagent/kubeconfig$servers
node:
  name: $NAME
traffic:
  clusterCIDRs: ["${cidrs//,/\", \"}"]
dns:
  enabled: true
  listen: [$names]
  clients: [$clients]
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

begin() { # UNIT: the same, without waiting for it
    systemctl --quiet enable "$1"
    if [ $changed = yes ]; then systemctl restart --no-block "$1"; else systemctl start --no-block "$1"; fi
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
if [ "$CONTROLS" -gt 1 ] && [ -n "$address" ]; then
    # Debian's would start at once, as a cluster of its own.
    if [ ! -x /usr/bin/etcd ]; then systemctl --quiet mask etcd.service; fi
    need etcd-server
    if [ -L /etc/systemd/system/etcd.service ]; then systemctl --quiet unmask etcd.service; fi
fi
mkdir -p "$settings"
install_package
package_changed=$changed

changed=no
install_programs
be_patient
write_settings
if [ $changed = yes ]; then
    systemctl daemon-reload
    systemctl restart nodeagent-cluster-network.service
fi
systemctl --quiet enable nodeagent-cluster-network.service
if [ -z "$address" ]; then run_pods; fi

if [ -n "$address" ]; then
    if [ "$CONTROLS" -gt 1 ]; then
        changed=no
        configure_etcd
        begin etcd.service
    fi
    changed=$package_changed
    configure_api_server
    if [ "$NAME" = $last_control ]; then
        run nodeagent-apiserver.service
        python3 "$programs/objects.py" declare
    else
        begin nodeagent-apiserver.service
    fi
fi

changed=$package_changed
configure_agent
if [ -n "$address" ] && [ "$NAME" != $last_control ]; then
    begin nodeagent.service
    say "begun: ready with $last_control"
else
    run nodeagent.service
    say "ready: $(systemctl show --value --property StatusText nodeagent.service)"
fi
