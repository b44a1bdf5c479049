-- Begin the leases of locks anew, of those that are still held as they were.
--
-- KEYS held          the locks that our process holds, by when their leases end
-- ROW KEYS lock      fencing number and token of the holder
-- ROW ARGV value     the same as we know it
-- ROW ARGV lease_ms  how long the lease lasts
--
-- Returns "kept" or "lost" for each

local HELD_MS = 2 * 86400000

local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local outcomes = {}
for i = 1, rows do
  local lock, value, lease_ms = row(i)
  outcomes[i] = "lost"
  if redis.call("GET", lock) == value then
    -- First what a full server does not refuse; after that, it refuses nothing of this call.
    redis.call("PEXPIRE", lock, lease_ms)
    redis.call("ZADD", held, now_ms + lease_ms, lock)
    outcomes[i] = "kept"
  end
end
redis.call("PEXPIRE", held, HELD_MS)
return outcomes
