-- Give items a new content or metadata, where nothing else changes: the quick way of `change_items`, for most.
--
-- USES time            what time it is
-- USES announcing      tells what happened
-- USES field_numbers   which field is where
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
  local is_usual = not is.err and is[ID] and is[TYPE] and is[CONTENT] and is[CONTEXT] and is[PRIORITY] and is[CREATED]
    and is[EXPIRES] and tonumber(is[VERSION]) and is[LIFE] and not is[MORE] and not is[GENERATION_NUMBER]
    and not is[HELD_UNTIL] and not string.find(is[CONTENT], '^%s*{%s*"_encrypted"')
  if no_room then
    results[i] = no_room
  elseif not is_usual or redis.call("EXISTS", dependents_of .. id) == 1 then
    results[i] = {"other"}
  elseif is[TOKEN] == token then
    results[i] = {"changed", is}
  elseif expected ~= "" and expected ~= is[VERSION] then
    results[i] = {"conflict", is[VERSION]}
  else
    is[VERSION], is[UPDATED] = whole(tonumber(is[VERSION]) + 1), now_text
    if metadata == "" then
      redis.call("HSET", item, "content", content, "version", is[VERSION], "updatedAt", now_text, "token", token)
    else
      redis.call("HSET", item, "content", content ~= "" and content or is[CONTENT], "metadata", metadata, "version",
        is[VERSION], "updatedAt", now_text, "token", token)
    end
    -- Who has just sent these need not be sent them.
    is[CONTENT], is[METADATA] = content == "" and is[CONTENT], metadata == "" and is[METADATA]
    use_context(is[CONTEXT])
    announce("updated", id, is[TYPE], is[CONTEXT], is[VERSION], "", token)
    results[i] = {"changed", is}
  end
end
return results
