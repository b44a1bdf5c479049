-- Write items whose ids were just made, and about which nothing is unusual: the quick way of `write_items`, for most.
--
-- USES time            what time it is
-- USES announcing      tells what happened
-- USES room            whether there is room for anything new
-- USES using_contexts  an active context lives longer
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ROW KEYS item     the item
-- ROW ARGV id       its id
-- ROW ARGV type_    its type
-- ROW ARGV content  what is remembered
-- ROW ARGV context  where it belongs
-- ROW ARGV priority how important it is
-- ROW ARGV metadata what else is known about it
-- ROW ARGV kind     item, result or state
-- ROW ARGV ttl_ms   how long it is to live
-- ROW ARGV token    by this the write is known when it is repeated
--
-- Returns for each row {"written", version, created, expires, life, generation's number}, or {"other"}: nothing was
-- written, and `write_items` knows what to do

local function create(item, id, type_, content, context, priority, metadata, kind, ttl_ms, token)
  local life = clamped(kind, tonumber(ttl_ms))
  local expires = whole(now + life)
  redis.call("HSET", item, "id", id, "type", type_, "content", content, "contextId", context, "priority", priority,
    "createdAt", now_text, "expiresAt", expires, "metadata", metadata, "version", 1, "updatedAt", now_text, "ttlMs",
    life, "token", token)
  redis.call("PEXPIREAT", item, expires)
  redis.call("SADD", items_of_type .. type_, id)
  redis.call("ZADD", type_order_of .. type_, now_text, id)
  redis.call("SADD", items_of_context .. context, id)
  redis.call("ZADD", context_order_of .. context, now_text, id)
  redis.call("ZADD", items_of_priority .. priority, now_text, id)
  redis.call("ZADD", items_expiry, expires, id)
  return {"written", 1, now_text, expires, life, "0"}
end

-- Somebody has put something else in the place of an index: as if nothing had been written.
local function take_back(item, id, type_, _, context, priority)
  redis.call("DEL", item)
  redis.pcall("HDEL", item_places, id)
  redis.pcall("SREM", items_of_type .. type_, id)
  redis.pcall("ZREM", type_order_of .. type_, id)
  redis.pcall("SREM", items_of_context .. context, id)
  redis.pcall("ZREM", context_order_of .. context, id)
  redis.pcall("ZREM", items_of_priority .. priority, id)
  redis.pcall("ZREM", items_expiry, id)
end

local results = {}
for i = 1, rows do
  local item, id, type_, _, context, priority, _, _, _, token = row(i)
  local place = cmsgpack.pack({type_, context, priority})
  local outcome = no_room
  -- Whose id has a place was written before, by whoever repeats it.
  if not no_room and redis.call("HSETNX", item_places, id, place) == 1 then
    local could, written = pcall(create, row(i))
    if could then
      outcome = written
      use_context(context)
      announce("created", id, type_, context, 1, "", token)
    else
      take_back(row(i))
    end
  end
  results[i] = outcome or {"other"}
end
return results
