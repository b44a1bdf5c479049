-- Take a name in the fleet, unless somebody else has it, or what its last bearer held is not given back yet.
--
-- KEYS info        what the process says about itself
-- KEYS heartbeat   present while the process is heard of
-- KEYS active      all processes that are at work
-- KEYS zombies     those that died without saying goodbye
-- KEYS deadlines   until when each has to be heard of again
-- ARGV process     the name
-- ARGV token       tells two bearers of one name apart
-- ARGV client      the connection that the heartbeat uses; 0 if that is not known
-- ARGV silence_ms  how long it may be silent
-- ARGV kept_s      how long it is remembered after its last heartbeat
-- ARGV facts       what it says about itself: a JSON object of texts
--
-- Returns {"registered"}; {"taken", heartbeats so far, -1 of one that only outsiders know}; or {"unburied"}

local bearer, beats, died_at, given_back_at =
  unpack(redis.call("HMGET", info, "token", "beats", "died_at", "given_back_at"))
if bearer ~= token then
  if redis.call("ZSCORE", deadlines, process) then
    return {"taken", tonumber(beats or 0)}
  end
  if redis.call("SISMEMBER", active, process) == 1 and redis.call("EXISTS", heartbeat) == 1 then
    return {"taken", -1}
  end
end
-- Before that, a janitor would take away what the new bearer of the name gets hold of.
if died_at and not given_back_at then
  return {"unburied"}
end

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = {}
for name, value in pairs(cjson.decode(facts)) do
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
redis.call("DEL", info)
redis.call("HSET", info, "token", token, "beats", 1, "started_at", now, "heard_at", now, "client", client, unpack(fields))
redis.call("EXPIRE", info, kept_s)
redis.call("SET", heartbeat, "alive", "EX", kept_s)
redis.call("SADD", active, process)
redis.call("SREM", zombies, process)
redis.call("ZADD", deadlines, now + silence_ms, process)
return {"registered"}
