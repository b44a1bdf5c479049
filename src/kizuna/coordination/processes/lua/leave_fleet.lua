-- Say goodbye: others see the process leave now, and not when it has been silent for long enough.
--
-- KEYS info        what the process says about itself
-- KEYS heartbeat   present while the process is heard of
-- KEYS active      all processes that are at work
-- KEYS zombies     those that died without saying goodbye
-- KEYS deadlines   until when each has to be heard of again
-- ARGV process     its name
-- ARGV token       tells two bearers of one name apart
--
-- Returns "left"; "not ours" if another one has the name now, or nobody; "dead" if it waits for its burial

local bearer, died_at, given_back_at = unpack(redis.call("HMGET", info, "token", "died_at", "given_back_at"))
if bearer ~= token then
  return "not ours"
end
if died_at and not given_back_at then
  return "dead"
end
redis.call("DEL", info, heartbeat)
redis.call("SREM", active, process)
redis.call("SREM", zombies, process)
redis.call("ZREM", deadlines, process)
return "left"
