-- Take the lock if it is free and nobody is before us, and number the taking, so that late writers can be refused.
--
-- The same token may ask again: it finds what it was given the first time.
--
-- KEYS lock      fencing number and token of the holder; expires with the lease
-- KEYS line      those who wait, by when they came
-- KEYS turn      the one who may take the lock that was just released
-- KEYS fence     last fencing number handed out
-- KEYS held      the locks that our process holds, by when their leases end
-- ARGV token     who we are
-- ARGV lease_ms  how long the lease lasts
-- ARGV came_us   when we came, if we have waited; 0 if we will from now on; empty if we will not
--
-- Returns {"taken", fencing number}
-- or {"held", ms until it may be free (-1: never, -2: now, but others are before us), our place in line, when we came}

-- Each outlives the last one who cared for it: who waits asks every ten seconds, who holds renews within a lease.
local LINE_MS, HELD_MS = 120000, 2 * 86400000

local time = redis.call("TIME")
local now_us = time[1] * 1000000 + time[2]

local function take()
  -- Not less than the time, so that the numbers rise even over a server that has lost the last one.
  local number = now_us
  local last = tonumber(redis.call("SET", fence, string.format("%.0f", number), "GET") or 0)
  if last >= number then
    number = last + 1
    redis.call("SET", fence, string.format("%.0f", number))
  end
  redis.call("ZADD", held, now_us / 1000 + lease_ms, lock)
  redis.call("PEXPIRE", held, HELD_MS)
  -- Now and then, what was never released and has ended is forgotten.
  if number % 16 == 0 then
    redis.call("ZREMRANGEBYSCORE", held, "-inf", now_us / 1000)
  end
  -- Last, so that nothing is locked should one of the others be refused.
  redis.call("SET", lock, string.format("%.0f:%s", number, token), "PX", lease_ms)
  return {"taken", number}
end

if redis.call("EXISTS", lock, line, turn) == 0 then
  return take()
end

local value = redis.call("GET", lock)
local number, holder = string.match(value or "", "^(%d+):(.+)$")
if holder == token then
  redis.call("PEXPIRE", lock, lease_ms)
  return {"taken", tonumber(number)}
end

-- If it is nobody's turn, one that had it is gone, or a lease ended: whoever has waited may take the lock then.
local whose = redis.call("GET", turn)
local has_waited = came_us ~= "" and came_us ~= "0"
if not value and (whose == token or (not whose and (has_waited or redis.call("EXISTS", line) == 0))) then
  local taken = take()
  redis.call("ZREM", line, token)
  redis.call("DEL", turn)
  return taken
end

local free_in_ms = redis.call("PTTL", value and lock or turn)
if came_us == "" then
  return {"held", free_in_ms, 0, 0}
end
came_us = has_waited and came_us or string.format("%.0f", now_us)
redis.call("ZADD", line, came_us, token)
redis.call("PEXPIRE", line, LINE_MS)
return {"held", free_in_ms, redis.call("ZRANK", line, token), tonumber(came_us)}
