-- Find the processes that were not heard of in time.
--
-- Nobody is overdue because the server was away: when nobody has looked for a while, perhaps nobody could be heard of
-- either. Twice as long as that was, everybody is given again, since who reconnects waits longer and longer between two
-- attempts. Not more than twice in a row: if those who look are merely slow, the dead have to be found in the end. And
-- not when somebody comes who never looked before, to the same server, before anybody can have given up on it: then there
-- was nobody to look, and whose connection is gone is dead.
--
-- KEYS deadlines   until when each process has to be heard of again
-- KEYS looked      when somebody looked last, and until when nobody is overdue
-- KEYS active      all processes that are at work
-- KEYS zombies     those that died without saying goodbye
-- ARGV first       1: we look for the first time
-- ARGV gap_ms      how far apart two looks may be
-- ARGV given_up_ms how long a connection without answers is kept
-- ARGV mercy_ms    the longest that is given
-- ARGV at_most     how many to find
--
-- Returns {now, how many are active, how many are zombies, {process, its deadline, process, its deadline …}}

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last, mercy_until, mercies, server_then =
  unpack(redis.call("HMGET", looked, "at", "mercy_until", "mercies", "server"))
local info = redis.pcall("INFO", "server")
local server = type(info) == "string" and string.match(info, "run_id:(%w+)") or ""
local gap = now - tonumber(last or 0)
mercy_until, mercies = tonumber(mercy_until or 0), tonumber(mercies or 0)
local nobody_was_there = first == "1" and server ~= "" and server == server_then and gap < tonumber(given_up_ms)
-- The time of a server that took over may also be behind.
if (gap > tonumber(gap_ms) or gap < 0) and mercies < 2 and not nobody_was_there then
  mercy_until = now + math.min(2 * math.abs(gap), mercy_ms)
  mercies = mercies + 1
elseif now >= mercy_until then
  mercies = 0
end

-- This write comes first because a full server does not refuse it, nor then the others.
redis.call("DEL", looked)
redis.call("HSET", looked, "at", now, "mercy_until", mercy_until, "mercies", mercies, "server", server)
redis.call("PEXPIRE", looked, 10 * mercy_ms)
local overdue = {}
if now >= mercy_until then
  local before_now = "(" .. string.format("%d", now)
  overdue = redis.call("ZRANGEBYSCORE", deadlines, "-inf", before_now, "WITHSCORES", "LIMIT", 0, at_most)
end
return {now, redis.call("SCARD", active), redis.call("SCARD", zombies), overdue}
