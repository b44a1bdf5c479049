-- How items end, and with them what depends on them. After `time`, `announcing` and `places`.

-- Names whose dependents are to end.
local changed_now = {}

local function has_changed(name)
  if redis.call("EXISTS", dependents_of .. name) == 1 then
    changed_now[#changed_now + 1] = name
  end
end

local function end_item(id, place, event, reason)
  local is = redis.call("HMGET", item_of .. id, "version", "type", "contextId", "priority")
  -- First what frees memory: a full server takes that, and then the rest.
  redis.call("DEL", item_of .. id)
  leave(id, {is[2] or place[1], is[3] or place[2], is[4] or place[3]}, place)
  leave(id, place)
  announce(event, id, place[1], place[2], is[1] or "", reason)
  has_changed(id)
end

-- An item that is gone, but still stands somewhere. If its time had come, it expired; else somebody took it away, and
-- has told of it or not.
local function end_gone(id, place)
  local due = tonumber(redis.call("ZSCORE", items_expiry, id) or "inf")
  if due <= now then
    end_item(id, place, "expired", "time")
    return true
  end
  leave(id, place)
  has_changed(id)
  return false
end

-- What depends on what has changed, and on that, up to about so many; the sweeper ends the rest.
local function end_dependents(most)
  local ended = 0
  while #changed_now > 0 and ended < most do
    local name = changed_now[#changed_now]
    -- Whatever somebody else put there must not fail a change that is already made.
    local ids = redis.pcall("SRANDMEMBER", dependents_of .. name, 100)
    if ids.err or #ids == 0 then
      changed_now[#changed_now] = nil
      redis.call("SREM", changed, name)
    end
    for _, id in ipairs(ids) do
      local place = place_of(id)
      redis.call("SREM", dependents_of .. name, id)
      if place and redis.call("EXISTS", item_of .. id) == 0 then
        end_gone(id, place)
      elseif place then
        end_item(id, place, "deleted", "changed")
      end
      ended = ended + (place and 1 or 0)
    end
  end
  for _, name in ipairs(changed_now) do
    redis.call("SADD", changed, name)
  end
  return ended
end
