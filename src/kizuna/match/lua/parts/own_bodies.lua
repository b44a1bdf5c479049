-- Behind an empty prefix, any key without a colon might be meant: only what holds its own id is a ticket,
-- and is no backfill.
local function is_ticket(id)
  local key = body_of .. id
  if redis.call("TYPE", key).ok ~= "string" then
    return false
  end
  return string.find(redis.call("GET", key), id, 1, true) ~= nil and redis.call("HEXISTS", all_backfills, id) == 0
end
