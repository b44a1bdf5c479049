-- Where items stand: a place is {type, context, priority, depends on (or false), generation (or false)}.

-- The first refusal of a row; what is tried after it does not happen.
local refusal

local function try(...)
  if refusal then
    return nil
  end
  local reply = redis.pcall(...)
  if type(reply) == "table" and reply.err then
    refusal = reply
    return nil
  end
  return reply
end

-- What an index has. None, if somebody else put something in its place: one sweep is for all, and goes on.
local function members_of(...)
  local ids = redis.pcall(...)
  return ids.err and {} or ids
end

-- nil if it has none, or one that nobody can read.
local function place_of(id)
  local packed = redis.call("HGET", item_places, id)
  if not packed then
    return nil
  end
  local could, place = pcall(cmsgpack.unpack, packed)
  return could and type(place) == "table" and place[3] and place or nil
end

local function enter(id, place, created, expires)
  try("HSET", item_places, id, cmsgpack.pack(place))
  try("SADD", items_of_type .. place[1], id)
  try("ZADD", type_order_of .. place[1], created, id)
  try("SADD", items_of_context .. place[2], id)
  try("ZADD", context_order_of .. place[2], created, id)
  try("ZADD", items_of_priority .. place[3], created, id)
  try("ZADD", items_expiry, expires, id)
  if place[4] then
    for _, name in ipairs(place[4]) do
      try("SADD", dependents_of .. name, id)
    end
  end
end

-- Out of whatever `kept`, the place that it has instead, does not have as well. Somebody else may have put something
-- in the place of an index: that is no reason to keep the others.
local function leave(id, place, kept)
  if not kept or kept[1] ~= place[1] then
    redis.pcall("SREM", items_of_type .. place[1], id)
    redis.pcall("ZREM", type_order_of .. place[1], id)
  end
  if not kept or kept[2] ~= place[2] then
    redis.pcall("SREM", items_of_context .. place[2], id)
    redis.pcall("ZREM", context_order_of .. place[2], id)
  end
  if not kept or kept[3] ~= place[3] then
    redis.pcall("ZREM", items_of_priority .. place[3], id)
  end
  if place[4] then
    local still = {}
    for _, name in ipairs(kept and kept[4] or {}) do
      still[name] = true
    end
    for _, name in ipairs(place[4]) do
      if not still[name] then
        redis.pcall("SREM", dependents_of .. name, id)
      end
    end
  end
  if place[5] and not (kept and kept[5] == place[5]) then
    redis.pcall("ZREM", items_of_generation .. place[5], id)
  end
  if not kept then
    redis.pcall("ZREM", items_expiry, id)
    redis.pcall("HDEL", item_places, id)
  end
end

-- Whether it is where its hash says; else somebody wrote it anew, who knows nothing of places.
local function stands_at(place, type_, context, priority)
  return place[1] == type_ and place[2] == context and place[3] == priority
end

-- Whether its generation was raised since it was made: to everybody who reads, it has ended.
local function is_outdated(generation, number)
  return generation and (tonumber(redis.call("HGET", generations, generation)) or 0) > (tonumber(number) or 0)
end
