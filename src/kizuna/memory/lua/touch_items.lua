-- Let items live longer: as long again as they were given, or so long from now; never shorter.
--
-- USES time            what time it is
-- USES announcing      tells what happened
-- USES places          where items stand
-- USES room            whether there is room for anything new
-- USES ending          how items end
-- USES field_numbers   which field is where
-- USES fields          what is read of items
-- USES adopting        items that others wrote get what ours have
-- USES using_contexts  an active context lives longer
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ARGV usual_ms     how long an item lives that names no end
-- ROW KEYS item     the item
-- ROW ARGV id       its id
-- ROW ARGV ttl_ms   how long it is to live from now on; empty: as long as it was given
--
-- Returns for each row {"touched", values of the fields}, {"missing"}, or {"held"} while it is on its way to another shard

local function touch(item, id, ttl_ms)
  local is = fields_of(id)
  if is.err then
    return is
  end
  local place = living(id, is)
  if refusal or not place then
    return refusal or {"missing"}
  end
  is = is[VERSION] and is or fields_of(id)
  if is_held(is) then
    return {"held"}
  end
  local given = tonumber(is[LIFE]) or tonumber(is[EXPIRES]) - tonumber(is[CREATED])
  local expires = now + clamped(kind_of(is), tonumber(ttl_ms) or given)
  if expires > tonumber(is[EXPIRES]) then
    is[EXPIRES] = whole(expires)
    try("HSET", item, "expiresAt", is[EXPIRES])
    if refusal then
      return refusal
    end
    redis.call("PEXPIREAT", item, is[EXPIRES])
    redis.call("ZADD", items_expiry, is[EXPIRES], id)
    announce("updated", id, place[1], place[2], is[VERSION], "touched")
  end
  use_context(place[2])
  return {"touched", is}
end

local results = {}
for i = 1, rows do
  refusal = no_room
  results[i] = refusal or touch(row(i))
end
end_dependents(1000)
return results
