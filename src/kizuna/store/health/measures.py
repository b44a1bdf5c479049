"""The numbers of the server, of our connections and of our events, for `kizuna.metrics`.

Read at a scrape, from what is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from kizuna.metrics import Measure
from kizuna.store.health.info import Info, fragmentation, hit_rate_of, memory_limit, number

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.events.reader import Events


class Row(NamedTuple):
    kind: Literal["counter", "gauge"]
    name: str
    help: str
    read: Callable[[Info], float]


def _field(name: str) -> Callable[[Info], float]:
    return lambda info: number(info, name)


FROM_INFO = (
    Row("gauge", "kizuna_server_uptime_seconds", "Since the server was started.", _field("uptime_in_seconds")),
    Row("gauge", "kizuna_server_memory_used_bytes", "Memory that the server uses.", _field("used_memory")),
    Row("gauge", "kizuna_server_memory_peak_bytes", "The most it has used.", _field("used_memory_peak")),
    Row("gauge", "kizuna_server_memory_limit_bytes", "maxmemory, or the machine's memory.", memory_limit),
    Row("gauge", "kizuna_server_memory_fragmentation_ratio", "Memory held per byte in use.", fragmentation),
    Row("gauge", "kizuna_server_clients_connected", "Connections of clients.", _field("connected_clients")),
    Row("gauge", "kizuna_server_clients_blocked", "Clients in a blocking command.", _field("blocked_clients")),
    Row("counter", "kizuna_server_commands_processed_total", "Commands run.", _field("total_commands_processed")),
    Row("counter", "kizuna_server_net_input_bytes_total", "Bytes received.", _field("total_net_input_bytes")),
    Row("counter", "kizuna_server_net_output_bytes_total", "Bytes sent.", _field("total_net_output_bytes")),
    Row("counter", "kizuna_server_keys_expired_total", "Keys that ended by their TTL.", _field("expired_keys")),
    Row("counter", "kizuna_server_keys_evicted_total", "Keys thrown away when full.", _field("evicted_keys")),
    Row("counter", "kizuna_server_keyspace_hits_total", "Reads that found their key.", _field("keyspace_hits")),
    Row("counter", "kizuna_server_keyspace_misses_total", "Reads that found none.", _field("keyspace_misses")),
    Row("gauge", "kizuna_server_keyspace_hit_ratio", "Share of reads that found their key.", hit_rate_of),
)


# Each is an attribute of `Events.counts`.
EVENTS = {
    "received": "Messages that the servers sent.",
    "dropped": "Events that a slow reader had to be spared.",
    "look_agains": "Times that readers were told to look again.",
    "reconnects": "Connections made anew.",
    "canary_failures": "Times that a connection did not prove that it hears.",
}


def server_measures(infos: dict[str, Info]) -> Iterator[Measure]:
    """Of each primary, labelled with its address; a sum over primaries is for the scraper to make."""
    for row in FROM_INFO:
        for server, info in infos.items():
            yield Measure(row.kind, row.name, row.help, row.read(info), {"server": server})


def store_measures(store: Store) -> Iterator[Measure]:
    """Of this process's own connections."""
    links = store.topology.links()
    connected = sum(link.wire is not None for link in links)
    made = sum(link.connections for link in links)
    yield Measure("gauge", "kizuna_store_links", "Connections that this process keeps to primaries.", len(links))
    yield Measure("gauge", "kizuna_store_links_connected", "Of these, how many are open now.", connected)
    yield Measure("counter", "kizuna_store_connections_total", "Connections made, reconnections included.", made)


def events_measures(events: Events) -> Iterator[Measure]:
    """Of what this process hears; all 0 if it does not listen."""
    for name, meaning in EVENTS.items():
        yield Measure("counter", f"kizuna_events_{name}_total", meaning, getattr(events.counts, name))
    if (age_s := events.seconds_since_canary) is not None:
        meaning = "Since the connection that is worst off proved that it hears."
        yield Measure("gauge", "kizuna_events_canary_age_seconds", meaning, age_s)
