-- Write items, each with everything that belongs to it: its indexes, its end, and what is told about it.
--
-- USES time            what time it is
-- USES announcing      tells what happened
-- USES places          where items stand
-- USES room            whether there is room for anything new
-- USES ending          how items end
-- USES repeating       whether a write has happened before
-- USES using_contexts  an active context lives longer
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ARGV replaces     1: one of the same id is replaced; else that is refused
-- ARGV carried      of one that comes from another shard, version, creation and end (false: as if it were new), as
--                   msgpack; empty: it is new
-- ROW KEYS item     the item
-- ROW ARGV id       its id
-- ROW ARGV type_    its type
-- ROW ARGV content  what is remembered
-- ROW ARGV context  where it belongs
-- ROW ARGV priority how important it is
-- ROW ARGV metadata what else is known about it
-- ROW ARGV kind     item, result or state
-- ROW ARGV ttl_ms   how long it is to live
-- ROW ARGV more     what few items have, as JSON; empty if nothing
-- ROW ARGV token    by this the write is known when it is repeated
-- ROW ARGV tried_ms how long ago it was tried first, in ms; empty: it is tried for the first time
--
-- Returns for each row {"written", version, created, expires, life, generation's number}, {"exists"}, {"held"} while it
-- is on its way to another shard, or {"forgotten"} if nobody can tell any more whether it has happened before

-- The item that stands in our way, and its place; one that has ended is put away first.
local function standing(item, id)
  local was = redis.pcall("HMGET", item, "version", "token", "createdAt", "expiresAt", "ttlMs", "generationNumber",
    "type", "contextId", "priority", "heldUntil")
  if was.err then
    refusal = was
    return nil
  end
  local place = place_of(id)
  if not (was[1] or was[3] or was[4] or was[7] or was[8]) then
    if place then
      end_gone(id, place)
    end
    return nil
  end
  place = place or {was[7] or "", was[8] or "global", was[9] or "5"}
  if is_outdated(place[5], was[6]) then
    end_item(id, place, "deleted", "generation")
    return nil
  end
  return was, place
end

-- As it was before, as far as that can be.
local function take_back(id, place, was, place_was)
  leave(id, place, place_was)
  if place_was then
    redis.pcall("HSET", item_places, id, cmsgpack.pack(place_was))
    redis.pcall("ZADD", items_expiry, was[4] or now_text, id)
  end
end

local function write(item, id, type_, content, context, priority, metadata, kind, ttl_ms, more, token, tried_ms)
  local was, place_was = standing(item, id)
  if refusal then
    return refusal
  end
  if was and was[2] == token then
    return {"written", was[1], was[3], was[4], was[5], was[6] or "0"}
  end
  local before, written, at = has_happened(id, token, tried_ms)
  if before == "forgotten" then
    return {"forgotten"}
  elseif before == "yes" then
    -- What others have made of it since, or that it has ended, is theirs; this is what we made.
    local life = clamped(kind, tonumber(ttl_ms))
    local created = was and written ~= "1" and was[3] or at
    return {"written", written, created, whole(at + life), whole(life), was and was[6] or "0"}
  end
  if was and (tonumber(was[10]) or 0) > now then
    return {"held"}
  end
  if was and replaces ~= "1" then
    return {"exists"}
  end

  local place, number = {type_, context, priority}, "0"
  if more ~= "" then
    local also = cjson.decode(more)
    place[4], place[5] = also.dependsOn or false, also.generation or false
    number = place[5] and redis.call("HGET", generations, place[5]) or "0"
  end
  local version = was and (tonumber(was[1]) or 1) + 1 or 1
  local created = was and tonumber(was[3]) and was[3] or now_text
  local life = clamped(kind, tonumber(ttl_ms))
  local expires = whole(now + life)
  if carried ~= "" then
    local from = cmsgpack.unpack(carried)
    version, created, expires = from[1], from[2], from[3] or expires
  end

  enter(id, place, created, expires)
  if place[5] then
    try("ZADD", items_of_generation .. place[5], number, id)
  end
  try("HSET", item, "id", id, "type", type_, "content", content, "contextId", context, "priority", priority,
    "createdAt", created, "expiresAt", expires, "metadata", metadata, "version", version, "updatedAt", now_text,
    "ttlMs", life, "token", token)
  if refusal then
    take_back(id, place, was, place_was)
    return refusal
  end
  redis.call("PEXPIREAT", item, expires)
  if more ~= "" then
    redis.call("HSET", item, "more", more, "generationNumber", number)
  elseif was then
    redis.call("HDEL", item, "more", "generationNumber")
  end
  if was then
    leave(id, {was[7] or place[1], was[8] or place[2], was[9] or place[3]}, place)
    leave(id, place_was, place)
    has_changed(id)
  end
  use_context(context)
  local is_new = not was and carried == ""
  announce(is_new and "created" or "updated", id, type_, context, version, not is_new and "replaced" or "", token)
  return {"written", version, created, expires, life, number}
end

local results = {}
for i = 1, rows do
  refusal = no_room
  results[i] = refusal or write(row(i))
end
end_dependents(1000)
return results
