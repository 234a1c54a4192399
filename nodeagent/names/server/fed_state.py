"""What the process was fed: the zones that are answered from, and a full state that is on its way."""

from nodeagent.model.names import ObjectKey
from nodeagent.names.feed.feed_messages import Begin, End, Namespaces, Pods, Put, Remove, Settings, ToProcess
from nodeagent.names.zone.index import Index
from nodeagent.names.zone.lookup import Lookup, ZoneSettings
from nodeagent.names.zone.prepared_answers import Answers


def empty_answers(settings: Settings) -> Answers:
    """Answers of no objects: SERVFAIL for every name of the zones."""
    zone_settings = ZoneSettings(
        zones=settings.zones,
        ttl=settings.ttl,
        pods=settings.pods,
        server=ObjectKey(*settings.server),
        addresses=tuple(address for address, _ in settings.listening),
    )
    return Answers(Lookup(zone_settings, Index()))


class ReceivedState:
    """The state received so far. `answers` changes when a full state is complete, and within itself with every change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.answers = empty_answers(settings)
        self.zone = settings.zones[0].rstrip(".") + "."
        self._coming: Answers | None = None

    def take(self, message: ToProcess) -> bool:
        """Apply one message; whether a full state became complete with it."""
        target = self._coming if self._coming is not None else self.answers
        match message:
            case Begin():
                self._coming = empty_answers(self._settings)
            case End():
                target.changed(message.serial)
                target.synced = True
                self.answers, self._coming = target, None
                return True
            case Put():
                for names in message.services:
                    target.put(names, message.serial)
            case Remove():
                for namespace, name in message.services:
                    target.remove(ObjectKey(namespace, name), message.serial)
            case Namespaces():
                target.lookup.index.set_namespaces(message.names)
                target.changed(message.serial)
            case Pods():
                target.lookup.index.put_pods(message.pods)
                target.changed(message.serial)
            case _:
                raise TypeError(f"no change of state: {message!r}")
        return False

    def forget_coming(self) -> None:
        """The agent went away in the middle of a full state."""
        self._coming = None
