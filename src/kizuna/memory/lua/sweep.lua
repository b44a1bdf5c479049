-- End what is due, and go on with what was begun: items, contexts, their items, dependents, older generations.
--
-- USES time             what time it is
-- USES announcing       tells what happened
-- USES places           where items stand
-- USES ending           how items end
-- USES ending_contexts  how contexts end
-- KEYS expiry       when items end; also says where to look on a cluster
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV most         how many are ended at once, about
--
-- Returns {how many ended, 1 if there may be more, ms until the next one is due (-1: none), how late the latest was in
-- ms, items in the index of ends, items that have a place, contexts in the index of ends, contexts that have a place}

local left = tonumber(most)
local ended, latest = 0, 0

local function count(number)
  left, ended = left - number, ended + number
end

-- When this key ends: with its time to live, or when it says so, whichever comes first; 0 if it is not there, nil if it
-- is no hash. Others may have changed one, and not the other, nor the index.
local function end_of(key)
  local told = redis.pcall("HGET", key, "expiresAt")
  if type(told) == "table" then
    return nil
  end
  local ttl = redis.call("PTTL", key)
  local ends = math.min(ttl >= 0 and now + ttl or math.huge, tonumber(told or "") or math.huge)
  return ends < math.huge and ends or 0
end

-- Those that ended last, in the order of their ends: should there be very many from before, these are told in time.
local due = redis.call("ZREVRANGEBYSCORE", expiry, whole(now), "-inf", "WITHSCORES", "LIMIT", 0, left)
for at = #due - 1, 1, -2 do
  local id = due[at]
  local place = place_of(id)
  local ends = end_of(item_of .. id)
  if not ends then
    leave(id, place or {"", "", ""})
  elseif ends > now then
    -- Somebody let it live longer, and did not say so here.
    redis.call("ZADD", expiry, whole(ends), id)
  else
    latest = math.max(latest, now - tonumber(due[at + 1]))
    if place then
      end_item(id, place, "expired", "time")
    else
      -- Nobody has seen what it was; but the priority is one of ten, most likely.
      for priority = 1, 10 do
        redis.pcall("ZREM", items_of_priority .. priority, id)
      end
      redis.call("DEL", item_of .. id)
      redis.call("ZREM", expiry, id)
      announce("expired", id, nil, nil, "", "time")
      has_changed(id)
    end
  end
end
count(#due / 2)

local due_contexts = left > 0 and redis.call("ZRANGEBYSCORE", contexts_expiry, "-inf", whole(now), "LIMIT", 0, left) or {}
for _, id in ipairs(due_contexts) do
  local ends = end_of(context_of .. id)
  if not ends then
    leave_contexts(id, context_place_of(id) or {""})
  elseif ends > now then
    redis.call("ZADD", contexts_expiry, whole(ends), id)
  else
    end_context(id, context_place_of(id) or {"", false}, "expired", "time")
  end
end
count(#due_contexts)

while left > 0 do
  local ending = redis.call("HRANDFIELD", contexts_ending)
  if not ending then
    break
  end
  count(math.max(1, end_items_of(ending, left)))
end

while left > 0 do
  local generation = redis.call("SRANDMEMBER", generations_raised)
  if not generation then
    break
  end
  local older = "(" .. whole(tonumber(redis.call("HGET", generations, generation)) or 0)
  local ids = members_of("ZRANGEBYSCORE", items_of_generation .. generation, "-inf", older, "LIMIT", 0, left)
  for _, id in ipairs(ids) do
    local place = place_of(id)
    if place and place[5] == generation then
      end_item(id, place, "deleted", "generation")
    else
      redis.call("ZREM", items_of_generation .. generation, id)
    end
  end
  if #ids < left then
    redis.call("SREM", generations_raised, generation)
  end
  count(math.max(1, #ids))
end

for _, name in ipairs(redis.call("SRANDMEMBER", changed, 10)) do
  changed_now[#changed_now + 1] = name
end
local had_changed = #changed_now > 0
count(end_dependents(math.max(1, left)))

local next_due = redis.call("ZRANGE", expiry, 0, 0, "WITHSCORES")[2]
local next_context = redis.call("ZRANGE", contexts_expiry, 0, 0, "WITHSCORES")[2]
local soonest = math.min(tonumber(next_due or "inf"), tonumber(next_context or "inf"))
local more = left <= 0 or had_changed and redis.call("EXISTS", changed) == 1
return {
  ended, more and 1 or 0, soonest < math.huge and math.max(0, soonest - now) or -1, latest,
  redis.call("ZCARD", expiry), redis.call("HLEN", item_places),
  redis.call("ZCARD", contexts_expiry), redis.call("HLEN", context_places),
}
