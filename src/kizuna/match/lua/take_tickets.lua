-- Take those of some tickets that wait and that nobody else is matching.
--
-- USES guard        whether others are picking tickets
-- USES lists        some commands take many members
-- USES pending      whether somebody else has a ticket
-- KEYS tickets      those that wait
-- KEYS held         what this backend has taken, should it die
-- ARGV root         what all keys begin with
-- ARGV token        by which the lock is ours, or nothing
-- ARGV ids          the tickets
-- ARGV pending_s    how long one is left to whoever took it
-- ARGV held_s       how long to remember what was taken
-- ARGV begins       "1" for the first of the tickets of a batch
--
-- Returns {"taken", the time in microseconds, how many somebody else has, the ids that were taken}, or {"locked"}

if locked then
  return {"locked"}
end
local wanted = split(ids)
local taken, busy = {}, 0
for first = 1, #wanted, MOST do
  local last = math.min(first + MOST - 1, #wanted)
  local waits = redis.call("SMISMEMBER", tickets, unpack(wanted, first, last))
  local since = redis.call("ZMSCORE", proposed_tickets, unpack(wanted, first, last))
  for i = first, last do
    if waits[i - first + 1] == 1 then
      if is_pending(since[i - first + 1]) then
        busy = busy + 1
      else
        taken[#taken + 1] = wanted[i]
      end
    end
  end
end
if begins == "1" then
  -- Whose time is up goes, also those whose ticket is gone and whom nobody will ever take again.
  redis.call("ZREMRANGEBYSCORE", proposed_tickets, "-inf", "(" .. oldest)
  redis.call("DEL", held)
  redis.call("RPUSH", held, now)
end
for first = 1, #taken, MOST do
  local last = math.min(first + MOST - 1, #taken)
  local pairs_ = {}
  for i = first, last do
    pairs_[#pairs_ + 1] = now
    pairs_[#pairs_ + 1] = taken[i]
  end
  redis.call("ZADD", proposed_tickets, unpack(pairs_))
  redis.call("RPUSH", held, unpack(taken, first, last))
end
redis.call("EXPIRE", held, held_s)
return {"taken", time[1] .. string.format("%06d", time[2]), busy, table.concat(taken, " ")}
