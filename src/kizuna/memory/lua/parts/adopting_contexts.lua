-- Contexts that others wrote get what ours have. After `places`, `ending_contexts` and `using_contexts`; wants `bounds`.

-- Its place after this, or nil if there is no context.
local function adopt_context(id)
  local key = context_of .. id
  if redis.call("TYPE", key).ok ~= "hash" then
    return nil
  end
  local is = redis.call("HMGET", key, "type", "name", "expiresAt", "createdAt", "version", "atEnd", "updatedAt", "id")
  local created = tonumber(is[4]) or now
  local expires = tonumber(is[3]) or now + clamped("context", 0)
  -- An index has to have a name.
  local type_ = is[1] and is[1] ~= "" and is[1] or "untyped"
  local place = {type_, is[2] or "", is[6] or "delete"}
  local was = context_place_of(id)
  if was and was[1] ~= place[1] then
    redis.pcall("SREM", contexts_of_type .. was[1], id)
  end
  redis.call("HSET", key, "id", is[8] or id, "type", type_, "version", is[5] or "1", "createdAt",
    is[4] or whole(created), "updatedAt", is[7] or whole(created), "expiresAt", is[3] or whole(expires))
  redis.call("PEXPIREAT", key, whole(expires))
  try("HSET", context_places, id, cmsgpack.pack(place))
  try("SADD", contexts_of_type .. place[1], id)
  try("ZADD", contexts_expiry, whole(expires), id)
  return place
end
