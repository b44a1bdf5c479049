-- Give items a new content or metadata, where nothing else changes: the quick way of `change_items`, for most.
--
-- USES time            what time it is
-- USES announcing      tells what happened
-- USES room            whether there is room for anything new
-- USES using_contexts  an active context lives longer
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ROW KEYS item     the item
-- ROW ARGV id       its id
-- ROW ARGV expected the version that it has to have; empty: whatever it is
-- ROW ARGV content  the new content; empty if it stays, and only the metadata is new
-- ROW ARGV metadata the new metadata; empty if it stays
-- ROW ARGV token    by this the write is known when it is repeated
--
-- Returns for each row {"changed", values of the fields; but not a content or metadata that is new},
-- {"conflict", version}, or {"other"}: nothing was written, and `change_items` knows what to do

local results = {}
for i = 1, rows do
  local item, id, expected, content, metadata, token = row(i)
  local is = redis.pcall("HMGET", item, "id", "type", "content", "contextId", "priority", "createdAt", "expiresAt",
    "metadata", "version", "updatedAt", "ttlMs", "more", "generationNumber", "token", "heldUntil")
  -- Ours, with nothing unusual about it, and nothing depends on it.
  local is_usual = not is.err and is[1] and is[2] and is[3] and is[4] and is[5] and is[6] and is[7] and is[9] and is[11]
    and not is[12] and not is[13] and not is[15] and not string.find(is[3], '^%s*{%s*"_encrypted"')
  if no_room then
    results[i] = no_room
  elseif not is_usual or redis.call("EXISTS", dependents_of .. id) == 1 then
    results[i] = {"other"}
  elseif is[14] == token then
    results[i] = {"changed", is}
  elseif expected ~= "" and expected ~= is[9] then
    results[i] = {"conflict", is[9]}
  else
    is[9], is[10] = whole(tonumber(is[9]) + 1), now_text
    if metadata == "" then
      redis.call("HSET", item, "content", content, "version", is[9], "updatedAt", now_text, "token", token)
    else
      redis.call("HSET", item, "content", content ~= "" and content or is[3], "metadata", metadata, "version", is[9],
        "updatedAt", now_text, "token", token)
    end
    -- Who has just sent these need not be sent them.
    is[3], is[8] = content == "" and is[3], metadata == "" and is[8]
    use_context(is[4])
    announce("updated", id, is[2], is[4], is[9])
    results[i] = {"changed", is}
  end
end
return results
