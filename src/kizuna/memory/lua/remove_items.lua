-- End items before their time.
--
-- USES time        what time it is
-- USES announcing  tells what happened
-- USES places      where items stand
-- USES ending      how items end
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV reason       why they end; moved: they live on in another shard, and nobody is told
-- ROW KEYS item     the item
-- ROW ARGV id       its id
-- ROW ARGV expected the version that it has to have; empty: whatever it is
--
-- Returns for each row {"removed"}, {"missing"}, {"conflict", version}, or {"held"} while it is on its way to another
-- shard

-- Those that are to end, by their order and by their ids.
local ending, is_ending = {}, {}

local function remove(item, id, expected)
  local place = place_of(id)
  local is = redis.pcall("HMGET", item, "type", "contextId", "priority", "version", "generationNumber", "id", "heldUntil")
  if is.err then
    return is
  end
  if is_ending[id] or not (is[1] or is[2] or is[3] or is[4] or is[6]) then
    if place and not is_ending[id] then
      end_gone(id, place)
    end
    return {"missing"}
  end
  if place and is_outdated(place[5], is[5]) then
    end_item(id, place, "deleted", "generation")
    return {"missing"}
  end
  if reason ~= "moved" and (tonumber(is[7]) or 0) > now then
    return {"held"}
  end
  if expected ~= "" and expected ~= (is[4] or "1") then
    return {"conflict", is[4] or "1"}
  end
  place = place or {is[1] or "", is[2] or "global", is[3] or "5"}
  leave(id, {is[1] or place[1], is[2] or place[2], is[3] or place[3]}, place)
  is_ending[id] = true
  ending[#ending + 1] = {id = id, item = item, place = place, version = is[4] or ""}
  return {"removed"}
end

-- Once for all that have the same type, context or priority: what stands at this number in their places.
local function leave_together(command, beginning, number)
  local of = {}
  for _, entry in ipairs(ending) do
    local name = entry.place[number]
    of[name] = of[name] or {}
    table.insert(of[name], entry.id)
  end
  for name, ids in pairs(of) do
    redis.pcall(command, beginning .. name, unpack(ids))
  end
end

-- First what frees memory: a full server takes that, and then the rest.
local function remove_all()
  local items, ids = {}, {}
  for at, entry in ipairs(ending) do
    items[at], ids[at] = entry.item, entry.id
  end
  redis.call("DEL", unpack(items))
  redis.pcall("HDEL", item_places, unpack(ids))
  redis.pcall("ZREM", items_expiry, unpack(ids))
  leave_together("SREM", items_of_type, 1)
  leave_together("ZREM", type_order_of, 1)
  leave_together("SREM", items_of_context, 2)
  leave_together("ZREM", context_order_of, 2)
  leave_together("ZREM", items_of_priority, 3)
  for _, entry in ipairs(ending) do
    local id, place = entry.id, entry.place
    if place[4] or place[5] then
      leave(id, place)
    end
    if reason ~= "moved" then
      announce("deleted", id, place[1], place[2], entry.version, reason)
      has_changed(id)
    end
  end
end

local results = {}
for i = 1, rows do
  results[i] = remove(row(i))
end
if #ending > 0 then
  remove_all()
end
end_dependents(1000)
return results
