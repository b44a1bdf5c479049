-- End the items that depend on something that has changed.
--
-- USES time        what time it is
-- USES announcing  tells what happened
-- USES places      where items stand
-- USES ending      how items end
-- KEYS dependents   those of this name; also says where to look on a cluster
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV name         what has changed
-- ARGV changed_ms   when; whoever was created after that knew of it. Empty: now
-- ARGV most         how many are ended at once, about
--
-- Returns {how many ended, 1 if there are more}

-- Taken out while the others are ended.
local later = {}
if changed_ms ~= "" then
  for _, id in ipairs(redis.call("SRANDMEMBER", dependents, tonumber(most))) do
    local created = redis.pcall("HGET", item_of .. id, "createdAt")
    if type(created) == "string" and (tonumber(created) or 0) > tonumber(changed_ms) then
      later[#later + 1] = id
      redis.call("SREM", dependents, id)
    end
  end
end

has_changed(name)
local ended = end_dependents(tonumber(most))
for _, id in ipairs(later) do
  redis.call("SADD", dependents, id)
end
return {ended, #changed_now > 0 and 1 or 0}
