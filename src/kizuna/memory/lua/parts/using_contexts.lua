-- A context that is active lives its whole life again whenever it is used. After `time` and `announcing`; wants
-- `bounds`.

local used = {}

-- The shortest and the longest life of a kind, in ms.
local bounds_of = {}

local function clamped(kind, life)
  local bound = bounds_of[kind]
  if not bound then
    local least, most = string.match(bounds, kind .. ":(%d+):(%d+)")
    bound = {tonumber(least), tonumber(most)}
    bounds_of[kind] = bound
  end
  return math.max(bound[1], math.min(bound[2], life))
end

local function use_context(id)
  if id == "global" or used[id] then
    return
  end
  used[id] = true
  if redis.call("EXISTS", context_of .. id) == 0 then
    return
  end
  local is = redis.pcall("HMGET", context_of .. id, "expiresAt", "ttlMs", "name", "type", "version", "createdAt")
  local expires = not is.err and tonumber(is[1])
  if not expires or redis.pcall("SISMEMBER", contexts_active, id) ~= 1 then
    return
  end
  local life = tonumber(is[2]) or clamped("context", expires - (tonumber(is[6]) or expires))
  -- Not at each use: a tenth of its life more or less is not worth a write.
  if now + life - expires > life / 10 then
    local later = whole(now + life)
    redis.call("HSET", context_of .. id, "expiresAt", later)
    redis.call("PEXPIREAT", context_of .. id, later)
    redis.call("ZADD", contexts_expiry, later, id)
    announce_context("updated", id, is[3], is[4], is[5], "used")
  end
end
