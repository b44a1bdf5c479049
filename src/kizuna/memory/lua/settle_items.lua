-- Make everything about items agree with their hashes; whoever wrote or removed them.
--
-- USES time        what time it is
-- USES announcing  tells what happened
-- USES places      where items stand
-- USES ending      how items end
-- USES field_numbers which field is where
-- USES fields      what is read of items
-- USES adopting    items that others wrote get what ours have
-- KEYS expiry       when items end; also says where to look on a cluster
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV usual_ms     how long an item lives that names no end
-- ARGV type_        the type in whose index they were found; empty: in another
-- ARGV context      the context in whose index they were found; empty: in another
-- ARGV priority     the priority in whose index they were found; empty: in another
-- ARGV again        1: also those that seem to be in order
-- ROW ARGV id       the item
--
-- Returns for each row "settled", "ended", "forgotten" or "fine"

-- Where it was found, as a place; whatever it stands in beside is left alone.
local found_in = {type_, context, priority}

local function forget(id)
  local is_due = tonumber(redis.call("ZSCORE", expiry, id) or "inf") <= now
  leave(id, found_in)
  if is_due then
    -- Nobody has seen what it was.
    announce("expired", id, type_ ~= "" and type_, context ~= "" and context, "", "time")
    return "ended"
  end
  return "forgotten"
end

local function stands_there(place)
  for at = 1, 3 do
    if found_in[at] ~= "" and found_in[at] ~= place[at] then
      return false
    end
  end
  return true
end

local function settle(id)
  local place = place_of(id)
  if redis.call("TYPE", item_of .. id).ok ~= "hash" then
    if not place then
      return forget(id)
    end
    return end_gone(id, place) and "ended" or "forgotten"
  end
  local is = redis.call("HMGET", item_of .. id, "type", "contextId", "priority")
  local is_known = place and stands_there(place) and stands_at(place, is[1], is[2], is[3])
  if is_known and again ~= "1" and redis.call("ZSCORE", expiry, id) then
    return "fine"
  end
  place = adopt(id)
  if refusal then
    return refusal
  end
  if not stands_there(place) then
    leave(id, found_in, {
      type_ == "" and "" or place[1], context == "" and "" or place[2], priority == "" and "" or place[3],
    })
  end
  return "settled"
end

local results = {}
for i = 1, rows do
  refusal = nil
  results[i] = settle(row(i))
end
end_dependents(1000)
return results
