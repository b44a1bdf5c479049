-- What is read of items. After `time` and `field_numbers`.

-- All false if there is no item; a table with `err` if there is something else.
local function fields_of(id)
  return redis.pcall("HMGET", item_of .. id, "id", "type", "content", "contextId", "priority", "createdAt",
    "expiresAt", "metadata", "version", "updatedAt", "ttlMs", "more", "generationNumber", "token", "heldUntil")
end

local function is_nothing(is)
  return not (is[ID] or is[TYPE] or is[CONTENT])
end

-- Whether it is on its way to another shard: then it is there, or still here, in a moment.
local function is_held(is)
  return is[HELD_UNTIL] and tonumber(is[HELD_UNTIL]) > now
end

local function kind_of(is)
  return is[MORE] and string.match(is[MORE], '"kind":"(%l+)"') or "item"
end
