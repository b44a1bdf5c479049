-- Write a context, with everything that belongs to it.
--
-- USES time             what time it is
-- USES announcing       tells what happened
-- USES places           where items stand
-- USES ending           how items end
-- USES ending_contexts  how contexts end
-- USES using_contexts   the bounds of lives
-- USES repeating        whether a write has happened before
-- KEYS context      the context
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ARGV id           its id
-- ARGV name         its name
-- ARGV type_        its type
-- ARGV metadata     what else is known about it
-- ARGV ttl_ms       how long it is to live
-- ARGV at_end       what becomes of its items: delete or leave
-- ARGV is_active    1: it lives longer by being used
-- ARGV token        by this the write is known when it is repeated
-- ARGV tried_ms     how long ago it was tried first, in ms; empty: it is tried for the first time
--
-- Returns {"written", version, created, expires, life}, {"exists"}, or {"forgotten"} if nobody can tell any more whether
-- it has happened before

local was = redis.call("HMGET", context, "version", "token", "createdAt", "expiresAt", "ttlMs", "id")
if was[2] == token then
  return {"written", was[1], was[3], was[4], was[5]}
end
local life = clamped("context", tonumber(ttl_ms))
local before, version, at = has_happened(id, token, tried_ms)
if before == "forgotten" then
  return {"forgotten"}
elseif before == "yes" then
  -- What others have made of it since, or that it has ended, is theirs; this is what we made.
  return {"written", version, at, whole(at + life), life}
end
if was[1] or was[3] or was[4] or was[6] then
  return {"exists"}
end
local left = context_place_of(id)
if left then
  end_context(id, left, "expired", "time")
end

local expires = whole(now + life)
try("HSET", context_places, id, cmsgpack.pack({type_, name, at_end}))
try("SADD", contexts_of_type .. type_, id)
try("ZADD", contexts_expiry, expires, id)
if is_active == "1" then
  try("SADD", contexts_active, id)
end
try("HSET", context, "id", id, "name", name, "type", type_, "createdAt", whole(now), "updatedAt", whole(now),
  "expiresAt", expires, "metadata", metadata, "version", 1, "ttlMs", life, "atEnd", at_end, "token", token)
if refusal then
  leave_contexts(id, {type_})
  return refusal
end
redis.call("PEXPIREAT", context, expires)
announce_context("created", id, name, type_, 1, "", token)
end_dependents(1000)
return {"written", 1, whole(now), expires, life}
