"""Turns every request into a reply or a watch. No request can take the server down."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import unquote

from aiohttp import web

from nodeagent.apiserver.api import authorization, discovery, protobuf_answers, replies, request_figures
from nodeagent.apiserver.api.authorization import ANONYMOUS, Role, TokenReader, User
from nodeagent.apiserver.api.bodies import parse_object
from nodeagent.apiserver.api.health_checks import CHECKS, HealthChecks
from nodeagent.apiserver.api.impersonation import acting_user
from nodeagent.apiserver.api.intake import Intake
from nodeagent.apiserver.api.request_target import (
    ACCEPTED,
    Target,
    accepts_json,
    as_text,
    check_timeout,
    parse_target,
    prefers,
    shape_of,
    verb_of,
)
from nodeagent.apiserver.api.resource_verbs import ResourceVerbs
from nodeagent.apiserver.api.review_shapes import ReviewKind, review_at
from nodeagent.apiserver.api.reviews import Reviews
from nodeagent.apiserver.api.sending import WHOLE_BYTES, send, stream
from nodeagent.apiserver.api.watches import Watch
from nodeagent.apiserver.machinery.loop_time import LoopTime
from nodeagent.apiserver.machinery.request_worker import LARGE_BYTES, Worker
from nodeagent.apiserver.machinery.schema import gnostic
from nodeagent.apiserver.machinery.schema.openapi import OpenApi
from nodeagent.kinds.description import status
from nodeagent.kinds.description.documents import encode
from nodeagent.kinds.description.resources import Catalog, Resource
from nodeagent.runtime.serving.admission import Admission
from nodeagent.runtime.serving.origins import AllowedHosts, is_of_another_page

logger = logging.getLogger(__name__)
Answer: TypeAlias = replies.Reply | Watch | protobuf_answers.ProtobufWatch
_UNKNOWN: Final = HTTPStatus.UNAUTHORIZED
_HUNG_UP: Final = 499
"""The code that is counted if the client disconnected before it got an answer."""
_EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2+nodeagent",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


@dataclass(frozen=True, slots=True)
class _ParsedRequest:
    """A parsed request. `verb` is empty if the resource does not support the HTTP method."""

    segments: tuple[str, ...]
    query: dict[str, str]
    target: Target | None
    resource: Resource | None
    verb: str


class ApiHandler:
    """Answers requests.

    everybody_is_admin: for a loopback listener without credentials.
    scrape, scrape_checks: return the text of /metrics and of /metrics/slis.
    """

    def __init__(
        self,
        objects: ResourceVerbs,
        catalog: Catalog,
        tokens: TokenReader,
        health: HealthChecks,
        *,
        address: str,
        admission: Admission,
        figures: request_figures.RequestFigures,
        scrape: Callable[[], Awaitable[bytes]],
        scrape_checks: Callable[[], Awaitable[bytes]],
        protobuf: protobuf_answers.ProtobufAnswers,
        loop_time: LoopTime,
        worker: Worker,
        everybody_is_admin: bool = False,
    ) -> None:
        self._objects = objects
        self._catalog = catalog
        self._tokens = tokens
        self._health = health
        self._address = address
        self._admission = admission
        self._figures = figures
        self._scrapes = {("metrics",): scrape, ("metrics", "slis"): scrape_checks}
        self._intake = Intake()
        self._hosts = AllowedHosts()
        self._protobuf = protobuf
        self._loop_time = loop_time
        self._worker = worker
        self._default_user = (
            authorization.user_of("system:admin", [authorization.ADMINS]) if everybody_is_admin else ANONYMOUS
        )
        self._openapi = OpenApi(catalog)
        self._reviews = Reviews(catalog, tokens)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request; counts it and logs unexpected exceptions."""
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        asked = self._parse(request)
        user, labels = ANONYMOUS, _labels(request, asked)
        is_known = False
        began = self._figures.begin(labels)
        answer: Answer | None = None
        sent_bytes = 0
        try:
            try:
                user = self._authenticate(request)
                is_known = self._admit_user(peer, user)
                answer = await self._answer(request, asked, acting_user(user, request.headers.items()))
                if isinstance(answer, replies.Reply):
                    answer = await replies.prefetch(answer, WHOLE_BYTES, self._next_piece(user))
            except status.ApiError as error:
                answer = replies.error_reply(error)
            except Exception:
                # The boundary between requests: an error in one of them must not end the others.
                logger.exception("request failed method=%s path=%s", request.method, request.path)
                answer = replies.error_reply(
                    status.internal_error("the request could not be carried out; see the server's log")
                )
            if isinstance(answer, replies.Reply):
                response = await send(request, answer, self._next_piece(user), partial(self._loop_time.turn, user.name))
                sent_bytes = response.body_length
                return response
            self._figures.streams(labels)
            return await stream(request, answer, partial(self._loop_time.turn, user.name))
        finally:
            if answer is not None and not isinstance(answer, replies.Reply):
                self._figures.ended(labels, began)
            else:
                code, length = (answer.status, answer.length) if answer is not None else (_HUNG_UP, 0)
                who = labels if code != _UNKNOWN else request_figures.labels_without_credentials(request.method)
                self._figures.answered(who, began, code, sent_bytes if length is None else length)
            if is_known:
                self._admission.end(peer)

    def _admit_user(self, peer: object, user: User) -> bool:
        """Returns whether the user has shown credentials; then the connection no longer counts as a stranger's. Raises ApiError
        429 if the user has too many connections."""
        if user is ANONYMOUS:
            return False
        if not self._admission.begin(peer, user.name):
            raise status.too_many_requests(f'User "{user.name}" has too many connections')
        return True

    def _next_piece(self, user: User) -> replies.NextPiece:
        return partial(self._loop_time.next_piece, user.name)

    def _parse(self, request: web.BaseRequest) -> _ParsedRequest:
        segments = tuple(as_text(unquote(part)) for part in request.rel_url.raw_path.strip("/").split("/"))
        query = {as_text(name): as_text(request.query[name]) for name in request.query}
        target = parse_target(segments)
        resource = self._catalog.find(target.group, target.version, target.plural) if target else None
        verb = verb_of(request.method, target, query) if target is not None and resource is not None else ""
        return _ParsedRequest(segments, query, target, resource, verb)

    async def _answer(self, request: web.BaseRequest, about: _ParsedRequest, user: User) -> Answer:
        target, resource, verb = about.target, about.resource, about.verb
        if verb != "watch":
            check_timeout(about.query)
        if target is None or resource is None:
            review = review_at(target) if target is not None else None
            if target is not None and review is not None and request.method == "POST":
                return await self._answer_review(request, about, target, review, user)
            authorization.authorize(
                user, "get" if request.method in ("GET", "HEAD") else request.method.lower(), request.path, ""
            )
            if target is not None:
                # For every method: 405 would say that the resource exists.
                if target.version == "v1" and target.group in ("", *discovery.group_names(self._catalog)):
                    raise status.ApiError(
                        404, "NotFound", "the server could not find the requested resource", details={}
                    )
                return replies.text_reply("404 page not found\n", 404)
            scrape = self._scrapes.get(about.segments)
            if scrape is not None and request.method in ("GET", "HEAD"):
                async with self._intake.read(request, about.query, user, "", is_large=True):
                    return replies.Reply(body=await scrape(), content_type=_EXPOSITION)
            return await self._answer_plain_path(request, about.segments, user)
        authorization.authorize(
            user,
            verb or ("get" if request.method == "HEAD" else request.method.lower()),
            request.path,
            target.plural,
            target.namespace,
            target.name,
            target.group,
            subresource=target.subresource,
            confidential=resource.confidential,
        )
        if not verb:
            raise status.method_not_allowed()
        accept = request.headers.get("Accept", "")
        handle = partial(self._handle, request, about, target, resource, user)
        if protobuf_answers.wants_protobuf(accept) or (
            verb in ("get", "list", "watch") and protobuf_answers.prefers_protobuf(accept)
        ):
            return await self._handle_in_protobuf(handle, verb, resource, accept)
        if not accepts_json(accept):
            raise status.not_acceptable(ACCEPTED)
        return await handle(accept)

    async def _handle_in_protobuf(
        self, handle: Callable[[str], Awaitable[replies.Reply | Watch]], verb: str, resource: Resource, accept: str
    ) -> Answer:
        """Returns an answer in protobuf. handle: gives the answer in the form that an Accept header names."""
        try:
            answer = await handle(protobuf_answers.json_equivalent(accept))
        except status.ApiError as error:
            answer = replies.error_reply(error)
        try:
            return await self._protobuf.answer(answer, resource)
        except status.ApiError:
            # The list is too long for protobuf.
            if verb != "list" or not accepts_json(accept):
                raise
            return await handle(accept)

    async def _handle(
        self,
        request: web.BaseRequest,
        about: _ParsedRequest,
        target: Target,
        resource: Resource,
        user: User,
        accept: str,
    ) -> replies.Reply | Watch:
        """Carries out a request for a resource. The caller has checked that the user may make it."""
        objects, query, verb = self._objects, about.query, about.verb
        if verb in ("get", "list", "watch"):
            is_large = verb == "list" and objects.has_many(resource)
            async with self._intake.read(request, query, user, accept, is_large=is_large) as asked_for:
                return await objects.handle(verb, resource, target, asked_for)
        async with self._intake.write(
            request, query, user, accept, lambda size: objects.admit(verb, resource, target, user, size)
        ) as asked_for:
            return await objects.handle(verb, resource, target, asked_for)

    async def _answer_review(
        self, request: web.BaseRequest, about: _ParsedRequest, target: Target, review: ReviewKind, user: User
    ) -> replies.Reply:
        authorization.authorize(user, "create", request.path, review.plural, target.namespace, "", review.group)
        accept = request.headers.get("Accept", "")
        shape_of(accept, ())  # raises: reviews are answered in JSON only
        async with self._intake.write(request, about.query, user, accept, lambda size: size > LARGE_BYTES) as asked_for:
            sent = parse_object(await asked_for.read(), asked_for.content_type, review.sent)
        return replies.document_reply(self._reviews.answer(review, sent, user, target.namespace), 201)

    def _authenticate(self, request: web.BaseRequest) -> User:
        certificate = None
        transport = request.transport
        if transport is not None:
            certificate = authorization.certificate_user(transport.get_extra_info("peercert"))
        header, host, origin = (request.headers.get(name, "") for name in ("Authorization", "Host", "Origin"))
        if self._default_user.role is Role.ADMIN:
            # Everybody is an administrator here, also a page in a browser.
            why = self._hosts.why_refused(host, origin)
            if why:
                raise status.forbidden_page(why)
            if not header:
                return certificate or self._default_user
        elif certificate is not None and not header and is_of_another_page(host, origin):
            # A browser sends its client certificate with requests of any page.
            raise status.forbidden_page("a certificate is not for pages of other origins")
        return authorization.authenticate(header, self._tokens, certificate)

    async def _answer_plain_path(
        self, request: web.BaseRequest, segments: tuple[str, ...], user: User
    ) -> replies.Reply:
        if request.method not in ("GET", "HEAD"):
            raise status.method_not_allowed()
        match segments:
            case ("version",):
                return replies.document_reply(dict(VERSION))
            case ("livez" | "readyz" | "healthz" as endpoint,):
                excluded = request.query.getall("exclude", ())
                return self._health.answer(endpoint, user, verbose="verbose" in request.query, excluded=excluded)
            case ("livez" | "readyz" | "healthz" as endpoint, name) if name in CHECKS:
                return self._health.single(endpoint, name)
            case ("openapi", *rest):
                return await self._openapi_reply("/".join(rest), request.headers.get("Accept", ""))
        found_document = self._discovery_reply(request, segments)
        return found_document or replies.text_reply("404 page not found\n", 404)

    async def _openapi_reply(self, path: str, accept: str) -> replies.Reply:
        binary = path == "v2" and prefers(accept, gnostic.ASKED_AS)
        name = "v2.protobuf" if binary else path
        found = await self._worker.run_large(lambda: self._openapi.document(name))
        if found is None:
            return replies.text_reply("404 page not found\n", 404)
        return replies.Reply(body=found, content_type=gnostic.MEDIA_TYPE if binary else replies.JSON)

    def _discovery_reply(self, request: web.BaseRequest, segments: tuple[str, ...]) -> replies.Reply | None:
        groups = self._catalog.groups()
        match segments:
            case ("api" | "apis" as root,):
                if discovery.wants_aggregated(request.headers.get("Accept", "")):
                    shown = encode(discovery.aggregated(self._catalog, core=root == "api"))
                    return replies.cached_reply(shown, discovery.AGGREGATED, request.headers.get("If-None-Match", ""))
                return replies.document_reply(
                    discovery.api_versions(self._address) if root == "api" else discovery.api_groups(self._catalog)
                )
            case ("api", "v1"):
                return replies.document_reply(discovery.api_resources("", groups[""]))
            case ("apis", group) if group in discovery.group_names(self._catalog):
                return replies.document_reply(discovery.api_group(group))
            case ("apis", group, "v1") if group in discovery.group_names(self._catalog):
                return replies.document_reply(discovery.api_resources(group, groups.get(group, [])))
        return None


def _labels(request: web.BaseRequest, asked: _ParsedRequest) -> request_figures.Labels:
    if asked.target is None or asked.resource is None:
        return request_figures.labels_of_path(request.method, asked.segments[0])
    return request_figures.labels_of_resource(
        asked.verb,
        request.method,
        asked.resource,
        asked.target,
        dry_run=asked.query.get("dryRun"),
        content_type=request.headers.get("Content-Type", ""),
    )
