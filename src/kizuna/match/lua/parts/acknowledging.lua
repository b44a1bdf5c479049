-- When a backfill was last acknowledged, and whether that is too long ago. Wants `expires_ms`.
local time = redis.call("TIME")
local now_ns = time[1] .. string.format("%06d000", time[2])

local function has_expired(id)
  local acknowledged = tonumber(redis.call("ZSCORE", backfill_acks, id) or "0")
  return acknowledged < tonumber(now_ns) - expires_ms * 1000000
end
