-- End a context before its time; then, in steps, its items, or leave them to the global one.
--
-- USES time                what time it is
-- USES announcing          tells what happened
-- USES places              where items stand
-- USES ending              how items end
-- USES ending_contexts     how contexts end
-- USES using_contexts      the bounds of lives
-- USES adopting_contexts   contexts that others wrote get what ours have
-- KEYS context      the context
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ARGV id           its id
-- ARGV at_end       what becomes of its items: delete or leave; empty: what it was told
-- ARGV most         how many items are ended at once
--
-- Returns {"removed" or "missing", 1 if items are left}

local found = "missing"
local place = redis.call("EXISTS", context) == 1 and (context_place_of(id) or adopt_context(id))
if place then
  end_context(id, place, "deleted", "", at_end ~= "" and at_end)
  found = "removed"
elseif context_place_of(id) then
  end_context(id, context_place_of(id), "expired", "time")
end
if redis.call("HEXISTS", contexts_ending, id) == 1 then
  end_items_of(id, tonumber(most))
end
end_dependents(1000)
return {found, redis.call("HEXISTS", contexts_ending, id)}
