-- Change a context, or let it live longer.
--
-- USES time                what time it is
-- USES announcing          tells what happened
-- USES places              where items stand
-- USES ending              how items end
-- USES ending_contexts     how contexts end
-- USES using_contexts      the bounds of lives
-- USES adopting_contexts   contexts that others wrote get what ours have
-- USES repeating           whether a write has happened before
-- KEYS context      the context
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ARGV id           its id
-- ARGV expected     the version that it has to have; empty: whatever it is
-- ARGV touches      1: nothing but its life changes, and never becomes shorter
-- ARGV name         the new name; this and all below: empty if it stays
-- ARGV type_        the new type
-- ARGV metadata     the new metadata
-- ARGV ttl_ms       how long it is to live from now on
-- ARGV at_end       what becomes of its items: delete or leave
-- ARGV is_active    1 or 0: whether it lives longer by being used
-- ARGV token        by this the write is known when it is repeated
-- ARGV tried_ms     how long ago it was tried first, in ms; empty: it is tried for the first time
-- ARGV fields       the names of the fields that are returned, as msgpack
--
-- Returns {"changed", 1 if it is active, values of the fields}, {"missing"}, {"conflict", version}, or
-- {"forgotten"} if nobody can tell any more whether it has happened before

local returned = cmsgpack.unpack(fields)

local function outcome()
  return {"changed", redis.call("SISMEMBER", contexts_active, id), redis.call("HMGET", context, unpack(returned))}
end

local place = context_place_of(id)
local is = redis.call("HMGET", context, "version", "expiresAt", "ttlMs", "token", "createdAt")
if not (place and is[1] and is[2]) then
  place = adopt_context(id)
  if not place then
    return {"missing"}
  end
  is = redis.call("HMGET", context, "version", "expiresAt", "ttlMs", "token", "createdAt")
end
if token ~= "" and is[4] == token then
  return outcome()
end
-- At the version that it expects, it has not.
local before = has_happened(id, token, expected ~= is[1] and tried_ms or "")
if before == "forgotten" then
  return {"forgotten"}
elseif before == "yes" then
  return outcome()
end
if expected ~= "" and expected ~= is[1] then
  return {"conflict", is[1]}
end

local life = tonumber(is[3]) or tonumber(is[2]) - (tonumber(is[5]) or now)
if ttl_ms ~= "" then
  life = clamped("context", tonumber(ttl_ms))
end
local expires = tonumber(is[2])
if touches == "1" or is_active == "1" then
  expires = math.max(expires, now + clamped("context", life))
elseif ttl_ms ~= "" then
  expires = now + life
end

local to = {type_ ~= "" and type_ or place[1], name ~= "" and name or place[2], at_end ~= "" and at_end or place[3]}
local version = touches == "1" and is[1] or whole(tonumber(is[1]) + 1)
local values = {"version", version, "expiresAt", whole(expires), "token", token, "name", to[2], "type", to[1],
  "atEnd", to[3]}
local function set(field, value)
  if value ~= "" then
    values[#values + 1], values[#values + 2] = field, value
  end
end
set("metadata", metadata)
set("ttlMs", ttl_ms ~= "" and whole(life) or "")
set("updatedAt", touches == "1" and "" or whole(now))

try("SADD", contexts_of_type .. to[1], id)
try("HSET", context, unpack(values))
if refusal then
  return refusal
end
if to[1] ~= place[1] then
  redis.call("SREM", contexts_of_type .. place[1], id)
end
redis.call("HSET", context_places, id, cmsgpack.pack(to))
redis.call("PEXPIREAT", context, whole(expires))
redis.call("ZADD", contexts_expiry, whole(expires), id)
if is_active == "1" then
  redis.call("SADD", contexts_active, id)
elseif is_active == "0" then
  redis.call("SREM", contexts_active, id)
end
announce_context("updated", id, to[2], to[1], version, touches == "1" and "touched" or "", token)
if touches ~= "1" then
  has_changed(id)
end
end_dependents(1000)
return outcome()
