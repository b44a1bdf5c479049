-- Whether a member belongs in an index: an item or context that is there and says so, or that has just ended and is
-- still in its place. After `time`; wants `of`, what its members are, `field`, by what it is, `name`, whose, and `grace_ms`.

local NUMBER_OF = {type = 1, contextId = 2, priority = 3, dependsOn = 4, generation = 5}

local function readable(unpack_, packed)
  local could, value = pcall(unpack_, packed)
  return could and type(value) == "table" and value or nil
end

-- A key of another type is none.
local function is_hash(key)
  local length = redis.pcall("HLEN", key)
  return type(length) == "number" and length > 0
end

local function place_in_item(id)
  local key = item_of .. id
  if not is_hash(key) then
    return nil
  end
  if field == "" then
    return {}
  end
  local is = redis.call("HMGET", key, "type", "contextId", "priority", "more")
  local more = is[4] and readable(cjson.decode, is[4]) or {}
  return {is[1] or "", is[2] or "global", is[3] or "5", more.dependsOn or false, more.generation or false}
end

local function place_in_context(id)
  local key = context_of .. id
  return is_hash(key) and {redis.call("HGET", key, "type") or ""} or nil
end

-- One that has ended stands where it stood, until somebody clears up after it.
local function place_of_ended(id, ends, places)
  local due = redis.pcall("ZSCORE", ends, id)
  local ago = type(due) == "string" and now - tonumber(due)
  -- The clock of the script and that by which keys end may be a little apart.
  if ago and ago >= -5 and ago < tonumber(grace_ms) then
    local packed = redis.pcall("HGET", places, id)
    return type(packed) == "string" and readable(cmsgpack.unpack, packed) or nil
  end
end

local function is_right(place)
  local value = place[NUMBER_OF[field]]
  if type(value) ~= "table" then
    return value == name, value or ""
  end
  for _, one in ipairs(value) do
    if one == name then
      return true
    end
  end
  return false, table.concat(value, " ")
end

-- nil if it does; else {"no item" or "foreign", what it has instead}.
local function stray(id)
  local place
  if of == "item" then
    place = place_in_item(id) or place_of_ended(id, items_expiry, item_places)
  else
    place = place_in_context(id) or place_of_ended(id, contexts_expiry, context_places)
  end
  if not place then
    return {"no " .. of, ""}
  end
  if field ~= "" then
    local right, instead = is_right(place)
    return not right and {"foreign", instead} or nil
  end
end
