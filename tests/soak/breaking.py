"""Carries out steps: what each kind does to the lab, and how it is undone.

A step never waits for its end. What lasts is undone later by `tend`, and is over when the lab shows it: an agent is ready, a server
answers. A step that does not apply, because its place is broken already or there is nothing to change, does nothing.
"""

import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from nodeagent.lab.cluster import READY
from nodeagent.lab.control_faults import etcd_of
from nodeagent.lab.control_plane import answers
from nodeagent.lab.etcd import EtcdCluster
from nodeagent.lab.net.namespace_process import AgentProcess, Launcher
from nodeagent.lab.net.network_namespaces import LabError, run_ip
from nodeagent.lab.net.topology import UNDERLAY
from tests.harness.small_disk import fill
from tests.soak.exhaustion import address_space, descriptors, limit
from tests.soak.offers import headless_spec, spec_of
from tests.soak.records import EVERYWHERE, End, Fault, Step
from tests.soak.schedule import SLOTS
from tests.soak.stage import PLAIN_NODES, Stage

HEADLESS_SHARE = 5
"""One of so many Services is headless."""
KILLED_SHARE = 3
"""One of so many upgraded agents is killed, maybe before it has replaced the tables, and started again."""
LEAST_PODS = 2
MOST_PODS = 4
"""On a node."""
LEASES_EVERY = 5.0
LEAKS_EVERY = 0.4
SETTLED_WITHIN = 60.0
ETCD = "etcd"
CLOCK_JUMPS = (3600, 86400, 90, -45)
"""Seconds. Back as far as the certificates are valid already."""
OTHERS_TABLES = (
    "table inet others {\nchain in { type filter hook input priority 10; ct state established accept; }\n}\n",
    "table ip others {\nchain post { type nat hook postrouting priority 110; ip saddr 192.0.2.0/24 masquerade; }\n}\n",
    (
        "table inet others {\nset s { type ipv4_addr; elements = { 192.0.2.1 }; }\n"
        "chain f { type filter hook forward priority 5; ip saddr @s drop; }\n}\n"
    ),
    "table netdev others {\n}\n",
)


@dataclass(slots=True, eq=False)
class Broken:
    """Something that is broken. over: whether it has ended, asked after `undo`. is_begun, is_undone: whether `undo` was begun, and
    whether it has returned."""

    step: Step
    began: float
    undo_at: float
    undo: Callable[[], None]
    over: Callable[[], bool]
    is_begun: bool = False
    is_undone: bool = False
    kind: str = ""


class Breaker:
    """faults: what was broken and is over. restarts: programs that ended by themselves are started again, as systemd does."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.faults: list[Fault] = []
        self._broken: list[Broken] = []
        self._leases_at = self._leaks_at = 0.0
        self._meant_to_be_down: set[str] = set()
        stage.tend = self.tend

    # -- while time passes --------------------------------------------------------------------------------------

    def rest(self, seconds: float) -> None:
        """Lets time pass, and does what is due."""
        ends = time.monotonic() + seconds
        while True:
            self.tend()
            left = ends - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.05))

    def tend(self) -> None:
        """Undoes what is due, notes what is over, renews Leases, counts leaks, starts what ended by itself."""
        self._end_faults()  # one that is being undone may wait for another: its write needs the API server
        self._start_ended()
        now = time.monotonic()
        if now >= self._leaks_at:
            self._leaks_at = now + LEAKS_EVERY
            self.stage.count_leaks()
        if now >= self._leases_at:
            self._leases_at = now + LEASES_EVERY
            with suppress(LabError):
                self.stage.renew_leases()

    def _end_faults(self) -> None:
        for broken in list(self._broken):
            if not broken.is_begun and time.monotonic() >= broken.undo_at:
                broken.is_begun = True
                broken.undo()
                broken.is_undone = True
            if broken.is_undone and broken in self._broken and broken.over():
                self._broken.remove(broken)
                where = broken.step.where or EVERYWHERE
                self.faults.append(Fault(broken.kind or broken.step.kind, where, broken.began, time.monotonic()))

    def _start_ended(self) -> None:
        assert self.stage.control is not None
        programs = {
            **{name: ("agent", name, agent) for name, agent in self.stage.agents.items()},
            self.server_name: ("server", "", self._server()),
        }
        if self.stage.control.etcd is not None:
            programs[ETCD] = ("etcd", "", self._member())
        for name, (program, where, process) in programs.items():
            if not process.running and name not in self._meant_to_be_down:
                self.stage.ends.append(End(time.monotonic(), program, where or EVERYWHERE, process.last_words()))
                kind = {"agent": "agent-kill", "server": "api-kill", "etcd": "etcd-kill"}[program]
                self._restart(Step(kind, where), name, process, down=1.0)

    def open_faults(self) -> tuple[Fault, ...]:
        """Returns what is broken now."""
        now = time.monotonic()
        return tuple(
            Fault(one.kind or one.step.kind, one.step.where or EVERYWHERE, one.began, now) for one in self._broken
        )

    def undo_all(self) -> None:
        """Undoes everything, and waits until it is over. Raises LabError if it is not."""
        for broken in self._broken:
            broken.undo_at = 0.0
        deadline = time.monotonic() + SETTLED_WITHIN
        while self._broken:
            self.rest(0.05)
            if time.monotonic() > deadline:
                names = ", ".join(f"{one.step.kind} {one.step.where}" for one in self._broken)
                raise LabError(f"not over within {SETTLED_WITHIN:.0f} s: {names}")

    def hasten(self) -> None:
        """Undoes everything now, without waiting until it is over."""
        for broken in self._broken:
            broken.undo_at = 0.0
        self.tend()

    def expect_down(self, name: str) -> None:
        """A program was ended on purpose: it is not started again."""
        self._meant_to_be_down.add(name)

    def expect_up(self, name: str) -> None:
        """It runs again."""
        self._meant_to_be_down.discard(name)

    # -- steps --------------------------------------------------------------------------------------------------

    def carry_out(self, step: Step) -> None:
        """Does a step, after its pause."""
        self.rest(step.pause)
        family = step.kind.partition("-")[0]
        if family in ("agent", "api", "dns", "etcd", "cut", "clock", "disk", "others") and any(
            one.step.kind.partition("-")[0] == family and one.step.where == step.where for one in self._broken
        ):
            return
        getattr(self, "_" + step.kind.replace("-", "_"))(step)

    def _lasts(
        self,
        step: Step,
        undo: Callable[[], None],
        over: Callable[[], bool] = lambda: True,
        *,
        began: float = 0.0,
        kind: str = "",
    ) -> None:
        now = time.monotonic()
        self._broken.append(Broken(step, began or now, now + step.seconds, undo, over, kind=kind))

    def _service(self, step: Step) -> None:
        headless = step.choice % HEADLESS_SHARE == 0
        self.stage.put_service(step.where, headless_spec(step.choice) if headless else spec_of(step.choice))

    def _service_delete(self, step: Step) -> None:
        self.stage.delete_service(step.where)

    def _pods(self, step: Step) -> list[str]:
        """Returns the pods of the step's node that nothing is done to."""
        return sorted(
            name
            for name, pod in self.stage.states.items()
            if pod.node == step.where and pod.ready and pod.joined and not pod.terminating
        )

    def _pod_add(self, step: Step) -> None:
        if len(self._pods(step)) < MOST_PODS:
            self.stage.begin_pod(step.where)

    def _chosen(self, step: Step) -> str:
        pods = self._pods(step)
        return pods[step.choice % len(pods)] if len(pods) >= LEAST_PODS else ""

    def _pod_remove(self, step: Step) -> None:
        if pod := self._chosen(step):
            self.stage.terminate(pod)
            self._lasts(step, lambda: self.stage.end_pod(pod))

    def _pod_unready(self, step: Step) -> None:
        if pod := self._chosen(step):
            self.stage.set_ready(pod, ready=False)
            self._lasts(step, lambda: self.stage.set_ready(pod, ready=True))

    def _pod_leave(self, step: Step) -> None:
        if pod := self._chosen(step):
            self.stage.set_joined(pod, joined=False)
            self._lasts(step, lambda: self.stage.set_joined(pod, joined=True))

    def _others_table(self, step: Step) -> None:
        text = OTHERS_TABLES[step.choice % len(OTHERS_TABLES)]
        family = text.split()[1]
        self.stage.world.nft(step.where, text)

        def take_away() -> None:
            # A flush may have taken it already.
            self.stage.world.nft(step.where, f"add table {family} others\ndelete table {family} others")

        self._lasts(step, take_away)

    def _flush(self, step: Step) -> None:
        began = time.monotonic()
        self.stage.world.nft(step.where, "flush ruleset")
        if step.where in PLAIN_NODES or any(
            one.step.where == step.where for one in self._broken if "agent" in one.step.kind
        ):
            # Owned tables are owned by a process: one that is away does not protect them.
            self._lasts(step, lambda: None, lambda: self._has_tables(step.where), began=began, kind="flush-plain")

    def _has_tables(self, node: str) -> bool:
        listed = self.stage.world.run(node, ["nft", "list", "tables"]).stdout
        return listed.count(" nodeagent\n") == len(self.stage.settings.of_families(("ip", "ip6")))

    def _cut(self, step: Step) -> None:
        underlay = ["-n", self.stage.world.namespace(UNDERLAY)]
        began = time.monotonic()
        run_ip(underlay, [f"link set {step.where} down"])
        self._lasts(step, lambda: run_ip(underlay, [f"link set {step.where} up"]), began=began)

    def _clock(self, step: Step) -> None:
        self.stage.set_clock(CLOCK_JUMPS[step.choice % len(CLOCK_JUMPS)])
        self._lasts(step, lambda: self.stage.set_clock(0))

    def _disk(self, step: Step) -> None:
        filler = fill(self.stage.clock_file.parent)
        self._lasts(step, lambda: filler.unlink(missing_ok=True))

    # -- processes ----------------------------------------------------------------------------------------------

    def _agent(self, step: Step) -> AgentProcess:
        return self.stage.agents[step.where]

    def _restart(self, step: Step, name: str, process: AgentProcess, *, down: float) -> None:
        """A process that has ended is started again after a while."""
        began, printed = time.monotonic(), len(process.lines)
        self._meant_to_be_down.add(name)

        def start() -> None:
            process.restart(Launcher())
            self._meant_to_be_down.discard(name)

        def ready() -> bool:
            if name in self.stage.agents:
                return any(READY in line for line in process.lines[printed:])
            if name == ETCD and not self._etcd().answers(self._host):
                return False
            return answers(self.stage.api)

        self._broken.append(Broken(step, began, began + down, start, ready))

    def _agent_kill(self, step: Step) -> None:
        self._meant_to_be_down.add(step.where)
        self._agent(step).kill()
        self._restart(step, step.where, self._agent(step), down=step.seconds)

    def _agent_restart(self, step: Step) -> None:
        self._meant_to_be_down.add(step.where)
        self._agent(step).stop()
        self._restart(step, step.where, self._agent(step), down=0.0)

    def _agent_upgrade(self, step: Step) -> None:
        self._meant_to_be_down.add(step.where)
        began = time.monotonic()
        self._agent(step).stop()
        self.stage.upgrade_agent(step.where)
        self._meant_to_be_down.discard(step.where)
        next_one = self._agent(step)
        printed = 0

        def kill_some() -> None:
            nonlocal printed
            if step.choice % KILLED_SHARE == 0:
                next_one.kill()
                printed = len(next_one.lines)
                next_one.restart(Launcher())

        self._lasts(step, kill_some, lambda: any(READY in line for line in next_one.lines[printed:]), began=began)

    def _agent_stop(self, step: Step) -> None:
        self.stage.freeze_agent(step.where)
        self._lasts(step, lambda: self.stage.thaw_agent(step.where))

    def _agent_descriptors(self, step: Step) -> None:
        self._exhaust(step, "nofile", descriptors, self._agent(step).pid, lambda: self._names(step))

    def _agent_memory(self, step: Step) -> None:
        self._exhaust(step, "as", address_space, self._agent(step).pid, lambda: self._names(step))

    def _dns_memory(self, step: Step) -> None:
        for pid in self._names(step):
            self._exhaust(step, "as", address_space, pid)

    def _names(self, step: Step) -> list[int]:
        """Returns the pid of the node's DNS process, if there is one."""
        try:
            return [self.stage.dns_process(step.where)]
        except LabError:
            return []

    def _exhaust(
        self,
        step: Step,
        what: str,
        used: Callable[[int], int],
        pid: int,
        children: Callable[[], Iterable[int]] = lambda: (),
    ) -> None:
        """A process gets no more of a resource than it has. what: as prlimit(1) calls it. children: processes that may have inherited
        that, asked at the end."""
        with suppress(OSError):
            most = limit(pid, f"--{what}", "--output=SOFT", "--noheadings", "--raw")
            limit(pid, f"--{what}={used(pid)}:")

            def allow() -> None:
                for each in (pid, *children()):
                    with suppress(OSError):
                        limit(each, f"--{what}={most}:")

            self._lasts(step, allow)

    def _server(self) -> AgentProcess:
        assert self.stage.control is not None
        [server] = self.stage.control.servers.values()
        return server

    @property
    def _host(self) -> str:
        assert self.stage.control is not None
        return self.stage.control.hosts[0]

    @property
    def server_name(self) -> str:
        return f"server of {self._host}"

    def _api_kill(self, step: Step) -> None:
        self._meant_to_be_down.add(self.server_name)
        self._server().kill()
        self._restart(step, self.server_name, self._server(), down=step.seconds)

    def _api_restart(self, step: Step) -> None:
        self._meant_to_be_down.add(self.server_name)
        self._server().stop()
        self._restart(step, self.server_name, self._server(), down=0.0)

    def _api_stop(self, step: Step) -> None:
        self._server().signal(signal.SIGSTOP)
        self._lasts(step, lambda: self._server().signal(signal.SIGCONT))

    def _api_descriptors(self, step: Step) -> None:
        self._exhaust(step, "nofile", descriptors, self._server().pid)

    def _api_memory(self, step: Step) -> None:
        self._exhaust(step, "as", address_space, self._server().pid)

    def _etcd(self) -> EtcdCluster:
        assert self.stage.control is not None
        return etcd_of(self.stage.control)

    def _member(self) -> AgentProcess:
        [member] = self._etcd().members.values()
        return member

    def _etcd_kill(self, step: Step) -> None:
        self._meant_to_be_down.add(ETCD)
        self._member().kill()
        self._restart(step, ETCD, self._member(), down=step.seconds)

    def _etcd_restart(self, step: Step) -> None:
        self._meant_to_be_down.add(ETCD)
        self._member().stop()
        self._restart(step, ETCD, self._member(), down=0.0)

    def _etcd_stop(self, step: Step) -> None:
        self._member().signal(signal.SIGSTOP)
        self._lasts(step, lambda: self._member().signal(signal.SIGCONT))

    def _etcd_space(self, step: Step) -> None:
        began = time.monotonic()
        self._etcd().fill()
        self._lasts(step, self._etcd().make_room, began=began)

    def _dns_kill(self, step: Step) -> None:
        self.stage.signal_dns(step.where, signal.SIGKILL)
        self._lasts(step, lambda: None)

    def _dns_stop(self, step: Step) -> None:
        self.stage.signal_dns(step.where, signal.SIGSTOP)
        self._lasts(step, lambda: self.stage.signal_dns(step.where, signal.SIGCONT))

    # -- quiet --------------------------------------------------------------------------------------------------

    def come_back(self, pods_each: int) -> None:
        """Undoes everything; then there are the Services and as many pods as at the beginning."""
        self.undo_all()
        for node in sorted(self.stage.upgraded):
            self.carry_out(Step("agent-upgrade", node))
        for name in SLOTS:
            self.stage.delete_service(name)
        for node in self.stage.nodes:
            here = sorted(name for name, pod in self.stage.states.items() if pod.node == node)
            for name in here[pods_each:]:
                self.stage.end_pod(name)
            for _ in range(pods_each - len(here)):
                self.stage.begin_pod(node)
        self.undo_all()
