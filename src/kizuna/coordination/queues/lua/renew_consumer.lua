-- Let the lease of a consumer begin anew, whatever it holds.
--
-- KEYS consumers until when each consumer has its lease
-- KEYS held      the tasks of this consumer
-- ARGV consumer  who renews
-- ARGV lease_ms  how long the lease lasts from now on
--
-- Returns {"renewed", number of its tasks} or {"gone", 0}

if not redis.call("ZSCORE", consumers, consumer) then
  return {"gone", 0}
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The first write is one that a full server lets pass: nothing of this is new.
redis.call("ZREM", consumers, "")
redis.call("ZADD", consumers, "XX", now + lease_ms, consumer)
return {"renewed", redis.call("HLEN", held)}
