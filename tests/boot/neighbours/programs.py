"""Other programs of a node, as Debian 12 has them: how each is prepared, started, reloaded, restarted, stopped, and what lets Services
through where it closes the way.

Commands are for the shell of the machine. Pods are in POD_RANGES behind `cni0`; the node has its addresses on `eth0`.
"""

from dataclasses import dataclass, field

from nodeagent.lab.net.topology import POD_BRIDGE
from tests.harness.worlds.topology import POD_CIDRS
from tests.netns.neighbours.scene import RULES

PUBLISHED = 8088
"""The port of the node that a container of Docker or Podman answers on."""


@dataclass(frozen=True)
class Program:
    """One of them. files: path → text, written before it is prepared; `cure`: what an administrator does so that Services work, once and for
    good, while it runs or not; shown: the same for people, where that is not the same. closes: what the verdict on a connection that it stops
    must name. serves: a port of the node at which it answers.
    """

    name: str
    package: str
    start: str
    reload: str
    restart: str
    stop: str
    files: dict[str, str] = field(default_factory=dict)
    prepare: str = ""
    cure: str = ""
    shown: str = ""
    closes: str = ""
    serves: int = 0
    remark: str = ""

    def __str__(self) -> str:
        return self.name


def unit(name: str, service: str, package: str = "", **more: object) -> Program:
    """One that is a unit of systemd and nothing else."""
    verbs = {verb: f"systemctl {verb} {service}" for verb in ("start", "reload", "restart", "stop")}
    return Program(name, package or name, **(verbs | more))  # type: ignore[arg-type]


CRUN = """#!/bin/bash
# Without control groups and kernel keys, which a container in a container may not make.
words=(--cgroup-manager=disabled)
for word; do words+=("$word"); [ "$word" = create ] && words+=(--no-new-keyring); done
exec crun "${words[@]}"
"""
IMAGE = (
    "mkdir -p /image/bin /image/www; cp /bin/busybox /image/bin/; echo published > /image/www/index.html; "
    "tar -C /image -cf /image.tar ."
)
HTTPD = "busy /bin/busybox httpd -f -p 80 -h /www"
BETWEEN_PODS = f"-A FORWARD -i {POD_BRIDGE} -o {POD_BRIDGE} -j ACCEPT"


def saved_rules(icmp: str) -> str:
    """What many a server has in /etc/iptables: nothing comes in but ssh, nothing goes through."""
    return f"""*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p {icmp} -j ACCEPT
-A INPUT -p tcp --dport 22 -j ACCEPT
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
"""


def persistent(variant: str) -> Program:
    """The service that loads /etc/iptables, with one of both kinds of iptables."""
    accept = [
        f"sed -i 's|^COMMIT|&|; 0,/^COMMIT/s|^COMMIT|-A FORWARD -d {cidr} -j ACCEPT\\n{BETWEEN_PODS}\\nCOMMIT|' /etc/iptables/rules.v{version}"
        for cidr, version in zip(POD_CIDRS, (4, 6), strict=True)
    ]
    return unit(
        f"iptables-{variant}",
        "netfilter-persistent",
        "iptables-persistent",
        files={
            "/etc/iptables/rules.v4": saved_rules("icmp"),
            "/etc/iptables/rules.v6": saved_rules("ipv6-icmp"),
            "/etc/default/netfilter-persistent": "FLUSH_ON_STOP=1\n",
        },
        prepare="dpkg --purge ufw; dpkg --force-confold --install /beside/*.deb; systemctl stop netfilter-persistent; "
        + "; ".join(
            f"update-alternatives --set {tool} /usr/sbin/{tool}-{variant}" for tool in ("iptables", "ip6tables")
        ),
        reload="netfilter-persistent reload",
        shown="; ".join([*(f"-A FORWARD -d {cidr} -j ACCEPT" for cidr in POD_CIDRS), BETWEEN_PODS]),
        cure="; ".join(accept),
        closes="FORWARD",
        remark="`FORWARD` and `INPUT` closed in `/etc/iptables`, flushed when stopped",
    )


def recorded(name: str, file: str) -> Program:
    """Rules of one that Debian does not have, as they were written down: loaded, loaded again in their place, and flushed."""
    text = (RULES / file).read_text()
    tables = [line[1:] for line in text.splitlines() if line.startswith("*")]
    flush = "; ".join(f"iptables -t {table} -F; iptables -t {table} -X" for table in tables)
    return Program(
        name,
        "",
        start="iptables-restore --noflush /recorded",
        reload="iptables-restore /recorded",
        restart=f"{flush}; iptables-restore --noflush /recorded",
        stop=flush,
        files={"/recorded": text},
        remark=f"rules of `{file}`, not the program",
    )


NETWORKD = """[Match]
Name=eth0
[Network]
LinkLocalAddressing=ipv6
IPv6AcceptRA=no
Address=192.168.0.2/24
Address=2001:db8::2/64
[Route]
Gateway=169.254.1.1
GatewayOnLink=yes
[Route]
Gateway=fe80::1
GatewayOnLink=yes
Metric=1024
"""
NETWORKD_TOO = "[Match]\nName=nodeagent0\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
NETWORKD_BEGINS = (
    "systemctl start dbus; ip address flush dev eth0; systemctl start systemd-networkd; "
    "until ip -6 route show default | grep -q fe80::1; do sleep 0.1; done; systemctl stop systemd-networkd.socket systemd-networkd"
)
"""As at a boot: the addresses are its own. Of those that somebody else gave the link, that of systemd 252 (Debian 12) does not get over the
missing flag `noprefixroute`, and sets them again without end."""
KEYFILE = """[connection]
id=uplink
type=ethernet
interface-name=eth0
[ipv4]
method=manual
address1=192.168.0.2/24
route1=0.0.0.0/0,169.254.1.1
route1_options=onlink=true
[ipv6]
method=manual
address1=2001:db8::2/64
gateway=fe80::1
"""
KEEPALIVED = """global_defs {
    vrrp_strict
    nftables
}
vrrp_instance trial {
    state MASTER
    interface eth0
    virtual_router_id 51
    priority 150
    advert_int 1
    virtual_ipaddress { 192.168.0.50/24 }
}
"""
ELECTED = "; until ip -o address show dev eth0 | grep -q 192.168.0.50; do sleep 0.1; done"
CONNTRACKD = """General { HashSize 8192
 HashLimit 65535
 Syslog on
 LockFile /var/lock/conntrack.lock
 UNIX { Path /var/run/conntrackd.ctl }
 SocketBufferSize 262142
 SocketBufferSizeMaxGrown 655355
 Systemd on
}
Sync { Mode NOTRACK { }
 UDP { IPv4_address 192.168.0.2
 IPv4_Destination_Address 192.168.0.3
 Port 3780
 Interface eth0 }
}
"""
JAILS = """[sshd]
enabled = false
[by-iptables]
enabled = true
filter = sshd
backend = polling
logpath = /var/log/trial.log
port = 1:65535
banaction = iptables-multiport
[by-nft]
enabled = true
filter = sshd
backend = polling
logpath = /var/log/trial.log
port = 1:65535
banaction = nftables-multiport
"""
BAN = "; fail2ban-client set by-iptables banip 203.0.113.66; fail2ban-client set by-nft banip 203.0.113.67"

PROGRAMS = (
    unit(
        "firewalld",
        "firewalld",
        prepare="systemctl start dbus",
        cure=f"firewall-offline-cmd --zone=trusted --add-interface={POD_BRIDGE}",
        closes="firewalld",
        remark="its default zone",
    ),
    unit(
        "ufw",
        "ufw",
        prepare="ufw allow 22/tcp",
        start="sed -i s/ENABLED=no/ENABLED=yes/ /etc/ufw/ufw.conf; systemctl start ufw",
        reload="ufw reload",
        cure="; ".join(
            [
                f"ufw route allow in on {POD_BRIDGE} out on {POD_BRIDGE}",
                *(f"ufw route allow to {cidr}" for cidr in POD_CIDRS),
            ]
        ),
        closes="FORWARD",
        remark="its default policies",
    ),
    unit(
        "docker.io",
        "docker",
        files={
            "/usr/local/bin/crun-plain": CRUN,
            "/etc/docker/daemon.json": '{"runtimes":{"plain":{"path":"/usr/local/bin/crun-plain"}},"default-runtime":"plain"}',
        },
        prepare=f"chmod +x /usr/local/bin/crun-plain; {IMAGE}; sysctl -qw net.ipv4.ip_forward=0",
        start="systemctl start docker; docker inspect pub >/dev/null 2>&1 || { docker import /image.tar busy; "
        f"docker run --detach --restart=always --stop-timeout=1 --name pub -p {PUBLISHED}:80 {HTTPD}; }}",
        stop="systemctl stop docker.socket docker",
        shown=f"iptables -I DOCKER-USER -d {POD_CIDRS[0]} -j ACCEPT; iptables -I DOCKER-USER -s {POD_CIDRS[0]} -j ACCEPT",
        cure="iptables -N DOCKER-USER 2>/dev/null; "
        + "; ".join(f"iptables -I DOCKER-USER {side} {POD_CIDRS[0]} -j ACCEPT" for side in ("-d", "-s")),
        closes="FORWARD",
        serves=PUBLISHED,
        remark="a container with a published port; it turns forwarding on",
    ),
    Program(
        "podman",
        "podman",
        start=f"podman start pub 2>/dev/null || {{ podman import /image.tar busy; "
        f"podman run --detach --cgroups=disabled --name pub -p {PUBLISHED}:80 {HTTPD}; }}",
        reload="podman network reload --all",
        restart="podman restart --time 1 pub",
        stop="podman stop --time 1 pub",
        files={
            "/etc/containers/containers.conf": '[network]\nnetwork_backend="netavark"\n[engine]\ncgroup_manager="cgroupfs"\n'
            'events_logger="file"\nruntime="crun"\n',
            "/etc/containers/storage.conf": '[storage]\ndriver="vfs"\nrunroot="/run/containers/storage"\n'
            'graphroot="/var/lib/containers/storage"\n',
        },
        prepare=IMAGE,
        serves=PUBLISHED,
        remark="netavark; a container with a published port",
    ),
    unit(
        "libvirt",
        "libvirtd",
        "libvirt-daemon-system",
        prepare="systemctl start dbus",
        start="systemctl start libvirtd; virsh net-start default",
        stop="virsh net-destroy default; systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd",
        remark="its network `default`",
    ),
    unit(
        "NetworkManager",
        "NetworkManager",
        "network-manager",
        files={"/etc/NetworkManager/system-connections/uplink.nmconnection": KEYFILE},
        prepare="chmod 600 /etc/NetworkManager/system-connections/*; systemctl start dbus",
        reload="nmcli connection reload; nmcli device reapply eth0",
        remark="the uplink by a keyfile",
    ),
    unit(
        "systemd-networkd",
        "systemd-networkd",
        "systemd",
        files={"/etc/systemd/network/10-uplink.network": NETWORKD},
        prepare=NETWORKD_BEGINS,
        reload="networkctl reload; networkctl reconfigure eth0",
        stop="systemctl stop systemd-networkd.socket systemd-networkd",
        remark="the uplink by a `.network` file",
    ),
    unit(
        "systemd-networkd (greedy)",
        "systemd-networkd",
        "systemd",
        files={
            "/etc/systemd/network/10-uplink.network": NETWORKD,
            "/etc/systemd/network/20-ours.network": NETWORKD_TOO,
        },
        prepare=NETWORKD_BEGINS,
        reload="networkctl reload; networkctl reconfigure eth0 nodeagent0",
        stop="systemctl stop systemd-networkd.socket systemd-networkd",
        remark="a `.network` file that matches `nodeagent0`, without its addresses",
    ),
    unit(
        "keepalived",
        "keepalived",
        files={"/etc/keepalived/keepalived.conf": KEEPALIVED},
        start=f"systemctl start keepalived{ELECTED}",
        restart=f"systemctl restart keepalived{ELECTED}",
        remark="an address by VRRP, `vrrp_strict`",
    ),
    persistent("nft"),
    persistent("legacy"),
    unit("nftables.service", "nftables", "nftables", remark="Debian's `/etc/nftables.conf`, which flushes the ruleset"),
    unit(
        "conntrackd",
        "conntrackd",
        files={"/etc/conntrackd/conntrackd.conf": CONNTRACKD},
        reload="conntrackd -R; conntrackd -c; conntrackd -n",
        remark="synchronising with a node that does not answer",
    ),
    unit(
        "fail2ban",
        "fail2ban",
        files={"/etc/fail2ban/jail.local": JAILS},
        prepare="touch /var/log/trial.log",
        start=f"systemctl start fail2ban; sleep 1{BAN}",
        restart=f"systemctl restart fail2ban; sleep 1{BAN}",
        remark="a host outside banned by iptables and by nft",
    ),
    recorded("Tailscale", "tailscale.iptables"),
    recorded("Calico", "calico.iptables"),
    recorded("Cilium", "cilium.iptables"),
)
