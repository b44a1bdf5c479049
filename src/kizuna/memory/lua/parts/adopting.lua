-- Items that others wrote get what ours have. After `ending` and `fields`; wants `usual_ms`, the life of one that names
-- no end.

-- An index has to have a name.
local function named(value, usual)
  return value and value ~= "" and value or usual
end

-- What an item is known by, after this: its place, or nil if there is no item.
local function adopt(id)
  local key = item_of .. id
  local kind = redis.call("TYPE", key).ok
  if kind ~= "hash" then
    return nil
  end
  local is = redis.call("HMGET", key, "type", "contextId", "priority", "createdAt", "expiresAt", "version", "more",
    "generationNumber", "id")
  local created, expires = tonumber(is[4]) or now, tonumber(is[5]) or now + usual_ms
  -- What would break our arithmetic is none.
  if created ~= created or math.abs(created) > 1e15 then
    created = now
  end
  if expires ~= expires or math.abs(expires) > 1e15 then
    expires = now + usual_ms
  end
  local place = {named(is[1], "untyped"), named(is[2], "global"), named(is[3], "5")}
  if is[7] and pcall(cjson.decode, is[7]) then
    local more = cjson.decode(is[7])
    if type(more) == "table" and (more.dependsOn or more.generation) then
      place[4], place[5] = more.dependsOn or false, more.generation or false
    end
  end

  local fields = {}
  local function complete(field, had, value)
    if had ~= value then
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
  end
  complete("id", is[9] or nil, is[9] or id)
  complete("type", is[1] or nil, place[1])
  complete("contextId", is[2] or nil, place[2])
  complete("priority", is[3] or nil, place[3])
  -- Not every number that Lua reads is one to the sorted sets: 0x10 is none.
  complete("createdAt", is[4] or nil, whole(created))
  complete("expiresAt", is[5] or nil, whole(expires))
  complete("version", is[6] or nil, is[6] or "1")
  if #fields > 0 then
    redis.call("HSET", key, unpack(fields))
  end
  -- What was just told about it is true only if it ends when it says.
  redis.call("PEXPIREAT", key, whole(expires))

  local was = place_of(id)
  if was then
    leave(id, was, place)
  end
  -- Whoever wrote it may have put it there.
  leave(id, {is[1] or "", is[2] or "", is[3] or ""}, place)
  enter(id, place, whole(created), whole(expires))
  if place[5] then
    try("ZADD", items_of_generation .. place[5], tonumber(is[8]) or 0, id)
  end
  local priority = tonumber(place[3])
  if not (priority and priority >= 1 and priority <= 10 and priority % 1 == 0) then
    try("SADD", odd_priorities, place[3])
  end
  return place
end

-- The place of an item that is there and has not ended, whoever wrote it; else nil.
local function living(id, is)
  local place = place_of(id)
  if is_nothing(is) and not is[EXPIRES] then
    if place then
      end_gone(id, place)
    end
    return nil
  end
  local is_whole = is[VERSION] and tonumber(is[EXPIRES]) and tonumber(is[CREATED])
  if not (is_whole and place and stands_at(place, is[TYPE], is[CONTEXT], is[PRIORITY])) then
    place = adopt(id)
  end
  if place and is_outdated(place[5], is[GENERATION_NUMBER]) then
    end_item(id, place, "deleted", "generation")
    return nil
  end
  return place
end
