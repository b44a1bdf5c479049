-- Make everything about contexts agree with their hashes; whoever wrote or removed them.
--
-- USES time                what time it is
-- USES announcing          tells what happened
-- USES places              where items stand
-- USES ending              how items end
-- USES ending_contexts     how contexts end
-- USES using_contexts      the bounds of lives
-- USES adopting_contexts   contexts that others wrote get what ours have
-- KEYS expiry       when contexts end; also says where to look on a cluster
-- ARGV root         what all keys begin with
-- ARGV feed_length  how many events the feed holds, about
-- ARGV bounds       the shortest and longest life of each kind, in ms
-- ARGV type_        the type in whose index they were found; empty: in another
-- ARGV again        1: also those that seem to be in order
-- ROW ARGV id       the context
--
-- Returns for each row "settled", "ended", "forgotten" or "fine"

local function settle(id)
  local place = context_place_of(id)
  if redis.call("EXISTS", context_of .. id) == 0 then
    if tonumber(redis.call("ZSCORE", expiry, id) or "inf") <= now then
      end_context(id, place or {type_, false}, "expired", "time")
      return "ended"
    end
    leave_contexts(id, place or {type_})
    if type_ ~= "" then
      redis.pcall("SREM", contexts_of_type .. type_, id)
    end
    return "forgotten"
  end
  if place and again ~= "1" and redis.call("ZSCORE", expiry, id) then
    return "fine"
  end
  place = adopt_context(id)
  if refusal then
    return refusal
  end
  if type_ ~= "" and place[1] ~= type_ then
    redis.pcall("SREM", contexts_of_type .. type_, id)
  end
  return "settled"
end

local results = {}
for i = 1, rows do
  refusal = nil
  results[i] = settle(row(i))
end
end_dependents(1000)
return results
