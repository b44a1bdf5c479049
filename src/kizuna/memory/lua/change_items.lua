-- Change items, and move them in their indexes.
--
-- USES time            what time it is
-- USES announcing      tells what happened
-- USES places          where items stand
-- USES room            whether there is room for anything new
-- USES ending          how items end
-- USES field_numbers   which field is where
-- USES fields          what is read of items
-- USES repeating       whether a write has happened before
-- USES adopting        items that others wrote get what ours have
-- USES using_contexts  an active context lives longer
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ARGV usual_ms     how long an item lives that names no end
-- ROW KEYS item     the item
-- ROW ARGV id       its id
-- ROW ARGV expected the version that it has to have; empty: whatever it is
-- ROW ARGV content  the new content; this and all below: empty if it stays
-- ROW ARGV metadata the new metadata
-- ROW ARGV type_    the new type
-- ROW ARGV context  the new context
-- ROW ARGV priority the new priority
-- ROW ARGV ttl_ms   how long it is to live from now on
-- ROW ARGV unseals  1: a content that is sealed may be replaced by one that is not
-- ROW ARGV token    by this the write is known when it is repeated
-- ROW ARGV tried_ms how long ago it was tried first, in ms; empty: it is tried for the first time
--
-- Returns for each row {"changed", values of the fields; but not a content or metadata that is new}, {"missing"},
-- {"conflict", version}, {"sealed"} if its content is and the new one is not, {"held"} while it is on its way to another
-- shard, or {"forgotten"} if nobody can tell any more whether it has happened before

local function move(id, is, place, to)
  enter(id, to, is[CREATED], is[EXPIRES])
  if refusal then
    leave(id, to, place)
    redis.pcall("HSET", item_places, id, cmsgpack.pack(place))
  end
end

local function is_sealed(content)
  return content and string.find(content, '^%s*{%s*"_encrypted"%s*:%s*true') ~= nil
end

local function change(item, id, expected, content, metadata, type_, context, priority, ttl_ms, unseals, token,
  tried_ms)
  local is = fields_of(id)
  if is.err then
    return is
  end
  local place
  -- What others wrote has no version, and what has a generation may have ended.
  if not (is[VERSION] and is[EXPIRES] and is[TYPE] and is[CONTEXT]) or is[GENERATION_NUMBER] or is_nothing(is) then
    place = living(id, is)
    if refusal or not place then
      return refusal or {"missing"}
    end
    is = fields_of(id)
  end
  if is[TOKEN] == token then
    return {"changed", is}
  end
  -- At the version that it expects, it has not.
  local before, version, at = has_happened(id, token, expected ~= is[VERSION] and tried_ms or "")
  if before == "forgotten" then
    return {"forgotten"}
  elseif before == "yes" then
    -- What others have made of it since is theirs; this is what we made.
    is[VERSION], is[UPDATED] = version, at
    return {"changed", is}
  end
  if is_held(is) then
    return {"held"}
  end
  if expected ~= "" and expected ~= is[VERSION] then
    return {"conflict", is[VERSION]}
  end
  if content ~= "" and unseals ~= "1" and is_sealed(is[CONTENT]) and not is_sealed(content) then
    return {"sealed"}
  end

  local values = {"version", whole((tonumber(is[VERSION]) or 1) + 1), "updatedAt", now_text, "token", token}
  local function set(number, field, value)
    if value ~= "" then
      is[number] = value
      values[#values + 1], values[#values + 2] = field, value
    end
  end
  local was_in = is[CONTEXT]
  local moves = type_ ~= "" or context ~= "" or priority ~= ""
  place = moves and (place or living(id, is))
  set(TYPE, "type", type_)
  set(CONTEXT, "contextId", context)
  set(PRIORITY, "priority", priority)
  if ttl_ms ~= "" then
    local life = clamped(kind_of(is), tonumber(ttl_ms))
    set(EXPIRES, "expiresAt", whole(now + life))
    set(LIFE, "ttlMs", whole(life))
  end
  local to = moves and {is[TYPE], is[CONTEXT], is[PRIORITY], place[4], place[5]}
  if moves then
    move(id, is, place, to)
  end
  set(CONTENT, "content", content)
  set(METADATA, "metadata", metadata)
  try("HSET", item, unpack(values))
  if refusal then
    return refusal
  end
  if moves then
    leave(id, place, to)
  end
  if ttl_ms ~= "" then
    redis.call("PEXPIREAT", item, is[EXPIRES])
    redis.call("ZADD", items_expiry, is[EXPIRES], id)
  end
  is[VERSION], is[UPDATED] = values[2], values[4]
  use_context(is[CONTEXT])
  announce("updated", id, is[TYPE], is[CONTEXT], is[VERSION], is[CONTEXT] ~= was_in and "moved" or "", token)
  has_changed(id)
  -- Who has just sent these need not be sent them.
  is[CONTENT], is[METADATA] = content == "" and is[CONTENT], metadata == "" and is[METADATA]
  return {"changed", is}
end

local results = {}
for i = 1, rows do
  refusal = no_room
  results[i] = refusal or change(row(i))
end
end_dependents(1000)
return results
