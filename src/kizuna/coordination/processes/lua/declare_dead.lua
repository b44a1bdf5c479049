-- Declare a process dead, unless it was heard of since its silence was found.
--
-- KEYS info        what the process says about itself
-- KEYS heartbeat   present while the process is heard of
-- KEYS active      all processes that are at work
-- KEYS zombies     those that died without saying goodbye
-- KEYS deadlines   until when each has to be heard of again
-- ARGV process     its name
-- ARGV deadline    the one it missed; empty for a process that has none and lives by its heartbeat alone
-- ARGV kept_s      how long it is remembered
--
-- Returns "dead", to one caller only; "alive"; or "gone" if it has left, or another caller was first

local due = redis.call("ZSCORE", deadlines, process)
if due and due ~= deadline then
  return "alive"
end
if not due and (deadline ~= "" or redis.call("SISMEMBER", active, process) == 0) then
  return "gone"
end
if not due and redis.call("EXISTS", heartbeat) == 1 then
  -- One that came back by the same plain commands that it is known by.
  redis.call("SREM", zombies, process)
  return "alive"
end

local time = redis.call("TIME")
redis.call("ZREM", deadlines, process)
redis.call("DEL", heartbeat)
redis.call("SREM", active, process)
redis.call("SADD", zombies, process)
redis.call("HSET", info, "died_at", time[1] * 1000 + math.floor(time[2] / 1000))
redis.call("HDEL", info, "given_back_at")
redis.call("EXPIRE", info, kept_s)
return "dead"
