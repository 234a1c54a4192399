"""The state that the agent sent: the zones that are answered from, and a full state that is not complete yet."""

from nodeagent.model.names import ObjectKey
from nodeagent.names.feed.feed_messages import Begin, End, Namespaces, Pods, Put, Remove, Settings, ToProcess
from nodeagent.names.zone.index import Index
from nodeagent.names.zone.lookup import Lookup, ZoneSettings
from nodeagent.names.zone.prepared_answers import PreparedAnswers


def empty_answers(settings: Settings) -> PreparedAnswers:
    """Returns answers without objects: SERVFAIL for every name of the zones."""
    zone_settings = ZoneSettings(
        zones=settings.zones,
        ttl=settings.ttl,
        pods=settings.pods,
        server=ObjectKey(*settings.server),
        addresses=tuple(address for address, _ in settings.listening),
    )
    return PreparedAnswers(Lookup(zone_settings, Index()))


class ReceivedState:
    """The state received so far. `answers` is replaced by each full state, and updated in place by each change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.answers = empty_answers(settings)
        self.zone = settings.zones[0].rstrip(".") + "."
        self._incoming: PreparedAnswers | None = None

    def take(self, message: ToProcess) -> bool:
        """Applies one message. Returns whether it completed a full state. Raises TypeError for other messages."""
        target = self._incoming if self._incoming is not None else self.answers
        match message:
            case Begin():
                self._incoming = empty_answers(self._settings)
            case End():
                target.changed(message.serial)
                target.synced = True
                self.answers, self._incoming = target, None
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
                raise TypeError(f"this message changes no state: {message!r}")
        return False

    def discard_incomplete_state(self) -> None:
        """Discards an incomplete full state, after the agent disconnected."""
        self._incoming = None
