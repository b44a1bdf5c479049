-- Say that the process is alive.
--
-- KEYS info        what the process says about itself
-- KEYS heartbeat   present while the process is heard of
-- KEYS active      all processes that are at work
-- KEYS deadlines   until when each has to be heard of again
-- ARGV process     its name
-- ARGV token       tells two bearers of one name apart
-- ARGV client      the connection that this came on; 0 if that is not known
-- ARGV silence_ms  how long it may be silent from now on
-- ARGV kept_s      how long it is remembered after this
--
-- Returns "alive"; "dead" if it was declared so; "taken" if another one has the name; "forgotten" if nobody has it

local bearer, died_at = unpack(redis.call("HMGET", info, "token", "died_at"))
if bearer and bearer ~= token then
  return "taken"
end
if died_at then
  return "dead"
end
if not bearer or not redis.call("ZSCORE", deadlines, process) then
  return "forgotten"
end

-- This write comes first because a full server does not refuse it, nor then the others: nobody dies of a full server.
redis.call("EXPIRE", info, kept_s)
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("HSET", info, "heard_at", now, "client", client)
redis.call("HINCRBY", info, "beats", 1)
redis.call("SET", heartbeat, "alive", "EX", kept_s)
redis.call("SADD", active, process)
redis.call("ZADD", deadlines, now + silence_ms, process)
return "alive"
