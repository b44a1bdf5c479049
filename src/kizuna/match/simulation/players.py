"""Parties that come and queue, drawn from a population. The same seed brings the same ones, whoever matches them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from kizuna.match.openmatch import messages_pb2
from kizuna.match.simulation.draws import Choice, Draw
from kizuna.match.simulation.population import HOURS_A_DAY, Population
from kizuna.match.tickets import Ticket, new_ticket

HOUR_S = 3600
# Those who always come back have to sleep some time.
_MOST_RETURNS = 1000
# A Monday, in UTC.
_MIDNIGHT_S = 1_767_571_200


@dataclass(slots=True, eq=False)
class Party:
    message: messages_pb2.Ticket
    """What each of its tickets says, but for the id and the time."""
    players: int
    patience_s: float
    returns: int
    """How often it queues again, after a match."""

    def queue(self, number: int, now_s: float) -> Ticket:
        message = messages_pb2.Ticket()
        message.CopyFrom(self.message)
        message.id = f"{number:020}"
        message.create_time.FromNanoseconds(round(now_s * 1e9))
        return Ticket(message)


class Players:
    def __init__(self, population: Population, seed: int) -> None:
        self._population = population
        self._chance = random.Random(seed)  # noqa: S311 - not a secret
        self._sizes = Choice(population.party_sizes or {"1": 1.0})
        self._strings = {arg: Choice(shares) for arg, shares in population.strings.items()}
        self._homes = Choice({name: region.share for name, region in population.regions.items()})
        self._latencies = {
            name: {
                population.latency_arg + to: Draw(shape="lognormal", mean=ms, deviation=ms * region.deviation)
                for to, ms in region.latency_ms.items()
            }
            for name, region in population.regions.items()
        }

    @property
    def start_s(self) -> float:
        return _MIDNIGHT_S + self._population.starts_at * HOUR_S

    def arrivals(self, hours: float) -> Iterator[tuple[float, Party]]:
        """When somebody comes, in seconds since the epoch, and who."""
        curve, chance = self._population.arrivals, self._chance
        now_s, end_s = self.start_s, self.start_s + hours * HOUR_S
        while curve.most and (now_s := now_s + chance.expovariate(curve.most / 60)) < end_s:
            # As often as the busiest hour would have it; some of them stay away in the others.
            if chance.random() * curve.most < curve.at(now_s / HOUR_S % HOURS_A_DAY):
                yield now_s, self._party()

    def _party(self) -> Party:
        population, chance = self._population, self._chance
        doubles = {population.skill_arg: population.skill.draw(chance)}
        players = int(self._sizes.draw(chance))
        if population.party_sizes:
            doubles[population.party_arg] = float(players)
        if population.regions:
            latencies = self._latencies[self._homes.draw(chance)]
            doubles |= {arg: draw.draw(chance) for arg, draw in latencies.items()}
        strings = {arg: choice.draw(chance) for arg, choice in self._strings.items()}
        tags = [tag for tag, share in population.tags.items() if chance.random() < share]
        message = new_ticket(tags=tags, doubles=doubles, strings=strings)
        return Party(message, players, max(population.patience_s.draw(chance), 0.0), self._returns())

    def _returns(self) -> int:
        times = 0
        while times < _MOST_RETURNS and self._chance.random() < self._population.come_back:
            times += 1
        return times
