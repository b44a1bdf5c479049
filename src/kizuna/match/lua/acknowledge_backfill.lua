-- A game server says that it lives and still has free places.
--
-- KEYS body         where the backfill is stored
-- ARGV root         what all keys begin with
-- ARGV id           its id
-- ARGV expires_ms   how long it lives without an acknowledgement
-- ARGV backfill_ms  how long it is stored
--
-- Returns {"acknowledged", what is stored}, {"missing"} or {"expired"}

local time = redis.call("TIME")
local now_ns = time[1] .. string.format("%06d000", time[2])
local stored = redis.call("HEXISTS", all_backfills, id) == 1 and redis.call("GET", body)
if not stored then
  return {"missing"}
end
local acknowledged = tonumber(redis.call("ZSCORE", backfill_acks, id) or "0")
if acknowledged < tonumber(now_ns) - expires_ms * 1000000 then
  return {"expired"}
end
redis.call("ZADD", backfill_acks, now_ns, id)
redis.call("PEXPIRE", body, backfill_ms)
return {"acknowledged", stored}
