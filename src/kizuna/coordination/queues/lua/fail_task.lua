-- Take a task from a consumer that could not do it: it is tried again later, or given up.
--
-- KEYS held      the tasks of this consumer
-- KEYS running   who runs which task
-- KEYS consumers until when each consumer has its lease
-- KEYS info      the task
-- KEYS delayed   tasks that wait for their time
-- KEYS dead      tasks that were given up
-- KEYS idle      consumers that wait for a task
-- ARGV consumer  who could not do it
-- ARGV leaves    1: the consumer ends with its task
-- ARGV id        the name of the task
-- ARGV number    the number it was handed out with
-- ARGV reason    why it failed
-- ARGV retry     1: try again, if it has attempts left
-- ARGV attempts  how often it is tried, unless it says otherwise itself
-- ARGV first_ms  the wait before the second attempt, which doubles from then on
-- ARGV longest_ms the longest wait
-- ARGV jitter    what the wait is multiplied with
-- ARGV dead_ms   how long a task that was given up is kept
-- ARGV finished  the channel on which finished tasks are named
-- ARGV info_of   what the key of a task begins with
-- ARGV rates_of  what the key of a minute begins with
-- ARGV wake_of   what the channel of a consumer begins with
--
-- Returns {"lost"}, {"delayed", ms until it is tried again} or {"dead"}

if redis.call("HGET", held, id) ~= number then
  return {"lost"}
end
local known = redis.call("HMGET", info, "failures", "attempts")
local failures = (tonumber(known[1]) or 0) + 1
local is_dead = retry ~= "1" or failures >= (tonumber(known[2]) or tonumber(attempts))
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local wait_ms = math.floor(math.min(first_ms * 2 ^ math.min(failures - 1, 40), tonumber(longest_ms)) * jitter)

-- The first write frees memory, so that also a full server lets its tasks be worked down.
redis.call("HDEL", held, id)
local added = redis.pcall("ZADD", is_dead and dead or delayed, is_dead and now or now + wait_ms, id)
local written = added
if type(added) == "number" then
  written = redis.pcall("HSET", info, "state", is_dead and "dead" or "delayed", "failures", failures, "reason", reason)
end
if type(written) == "table" then
  redis.pcall("ZREM", is_dead and dead or delayed, id)
  redis.call("HSET", held, id, number)
  return written
end
redis.call("HDEL", running, id)
redis.call("HDEL", info, "progress", "note")

if leaves == "1" then
  redis.call("ZREM", consumers, consumer)
end
local minute = rates_of .. math.floor(now / 60000)
if redis.pcall("HINCRBY", minute, "failed", 1) == 1 then
  redis.pcall("PEXPIRE", minute, 3660000)
end
if not is_dead then
  -- One of those who wait has to know when it will be due.
  local woken = redis.pcall("ZPOPMIN", idle)
  if woken[1] then
    redis.pcall("PUBLISH", wake_of .. woken[1], "look")
  end
  return {"delayed", wait_ms}
end

redis.pcall("PEXPIRE", info, dead_ms)
redis.pcall("HINCRBY", minute, "dead", 1)
redis.pcall("PUBLISH", finished, id)
-- Those that were kept long enough: a few at a time, but more than come in.
local old = redis.pcall("ZRANGEBYSCORE", dead, "-inf", now - dead_ms, "LIMIT", 0, 20)
for _, forgotten in ipairs(old) do
  redis.pcall("DEL", info_of .. forgotten)
  redis.pcall("ZREM", dead, forgotten)
end
return {"dead"}
