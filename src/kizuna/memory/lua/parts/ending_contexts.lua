-- How contexts end. After `time`, `announcing`, `places` and `ending`. The place of a context is {type, name, at_end}.

local function context_place_of(id)
  local packed = redis.call("HGET", context_places, id)
  local could, place = pcall(cmsgpack.unpack, packed or "")
  return could and type(place) == "table" and place[1] and place or nil
end

local function leave_contexts(id, place)
  redis.pcall("SREM", contexts_of_type .. place[1], id)
  redis.pcall("SREM", contexts_active, id)
  redis.pcall("ZREM", contexts_expiry, id)
  redis.pcall("HDEL", context_places, id)
end

-- Its items are ended after it, in steps: those that were created until now.
local function end_context(id, place, event, reason, at_end)
  local version = redis.call("HGET", context_of .. id, "version")
  redis.call("DEL", context_of .. id)
  leave_contexts(id, place)
  redis.call("HSET", contexts_ending, id, cmsgpack.pack({at_end or place[3] or "delete", now, event}))
  announce_context(event, id, place[2], place[1], version, reason)
  has_changed(id)
end

local function leave_to_global(id, place)
  local version = redis.call("HGET", item_of .. id, "version")
  if not version then
    end_gone(id, place)
    return
  end
  local to = {place[1], "global", place[3], place[4], place[5]}
  local is = redis.call("HMGET", item_of .. id, "createdAt", "expiresAt")
  version = whole((tonumber(version) or 1) + 1)
  enter(id, to, tonumber(is[1]) and is[1] or now_text, tonumber(is[2]) and is[2] or now_text)
  redis.call("HSET", item_of .. id, "contextId", "global", "version", version, "updatedAt", whole(now), "token", "")
  leave(id, place, to)
  announce("updated", id, place[1], "global", version, "context")
  has_changed(id)
end

-- Where an item stands that somebody else wrote, and nobody has taken in yet; nil if there is none.
local function place_of_stranger(id, context)
  local is = redis.pcall("HMGET", item_of .. id, "type", "contextId", "priority", "version")
  if is.err or is[2] ~= context then
    return nil
  end
  if not is[4] then
    redis.call("HSET", item_of .. id, "version", 1)
  end
  return {is[1] or "", context, is[3] or "5"}
end

local function end_with_context(id, place, rule)
  if redis.call("EXISTS", item_of .. id) == 0 then
    end_gone(id, place)
  elseif rule[1] == "leave" then
    leave_to_global(id, place)
  else
    end_item(id, place, rule[3], "context")
  end
end

-- Up to so many items of contexts that have ended. Returns how many.
local function end_items_of(id, most)
  local could, rule = pcall(cmsgpack.unpack, redis.call("HGET", contexts_ending, id))
  if not could or type(rule) ~= "table" or not tonumber(rule[2]) then
    -- Nobody knows what was to become of them, so they stay.
    redis.call("HDEL", contexts_ending, id)
    return 0
  end
  local ids = members_of("ZRANGEBYSCORE", context_order_of .. id, "-inf", whole(rule[2]), "LIMIT", 0, most)
  for _, item in ipairs(ids) do
    local place = place_of(item)
    if place and place[2] == id then
      end_with_context(item, place, rule)
    else
      redis.call("ZREM", context_order_of .. id, item)
    end
  end
  if #ids == most then
    return most
  end
  -- What is in the index and not in its order was written by others, a moment ago.
  local strangers = members_of("SRANDMEMBER", items_of_context .. id, most)
  for _, item in ipairs(strangers) do
    local place = not place_of(item) and place_of_stranger(item, id)
    if place then
      end_with_context(item, place, rule)
    end
  end
  redis.call("HDEL", contexts_ending, id)
  return #ids
end
